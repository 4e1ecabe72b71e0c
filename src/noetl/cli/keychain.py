"""`noetl keychain`: what the server keeps of the keychains of playbooks, and until when."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, remote_spec
from noetl.cli.paging import Everything, Limit

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output

_HEAD = ("NAME", "SCOPE", "RUN", "KIND", "EXPIRES", "RENEWS", "READS")
_Playbook = Annotated[
    str, typer.Argument(metavar="PLAYBOOK", help="Path, PATH@VERSION or catalog id.")
]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the entry.")]
_Scope = Annotated[
    str, typer.Option("--scope", metavar="SCOPE", help="global (default), shared or local.")
]
_Run = Annotated[
    str | None, typer.Option("--execution", metavar="ID", help="The run of a shared or local one.")
]


def list_keychain(
    ctx: typer.Context,
    playbook: _Playbook,
    limit: Limit = 50,
    everything: Everything = False,  # noqa: FBT002 - typer reads flags from defaults
) -> None:
    """List what is kept of a playbook's keychain; values are never listed."""
    from noetl.cli.listing import Look, show_list
    from noetl.cli.paging import all_pages
    from noetl.cli.remote import ask

    out: Output = ctx.obj

    async def work(client: "Client") -> tuple[list[dict[str, Any]], str | None]:
        catalog_id = await _catalog_id(client, playbook)
        return await all_pages(
            client,
            lambda at, more: at.keychain_entries(catalog_id, **more),
            None if everything else limit,
        )

    items, cursor = ask(out, work)
    look = Look(head=_HEAD, row=_row, name=_word, nothing="nothing is kept of its keychain")
    show_list(out, items, look, cursor)


def get_entry(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    playbook: _Playbook,
    name: _Name,
    scope: _Scope = "global",
    run: _Run = None,
    reveal: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--reveal", help="Its values too; needs a permission, and is audited.")
    ] = False,
) -> None:
    """Show one entry; its values only with --reveal."""
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.paging import given
    from noetl.cli.remote import ask

    out: Output = ctx.obj

    async def work(client: "Client") -> dict[str, Any]:
        catalog_id = await _catalog_id(client, playbook)
        include = "true" if reveal else None
        asked = given(scope_type=scope, execution_id=run, include_data=include)
        return plain(await client.keychain_entry(catalog_id, name, **asked))

    found = ask(out, work)
    show_one(out, found, _word(found))


def delete_entry(
    ctx: typer.Context,
    playbook: _Playbook,
    name: _Name,
    scope: _Scope = "global",
    run: _Run = None,
) -> None:
    """Forget what is kept of an entry; the next task that names it gets it anew."""
    from noetl.api.plain import plain
    from noetl.cli.asking import guard
    from noetl.cli.listing import show_one
    from noetl.cli.paging import given
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    guard(out, f"forget what is kept of the entry {name}?")

    async def work(client: "Client") -> dict[str, Any]:
        catalog_id = await _catalog_id(client, playbook)
        asked = given(scope_type=scope, execution_id=run)
        return plain(await client.delete_keychain(catalog_id, name, **asked))

    show_one(out, ask(out, work), f"keychain/{name}")


async def _catalog_id(client: "Client", word: str) -> str:
    from noetl.cli.references import document_of

    named = await document_of(client, word)
    return (await client.resolve(named.path, named.version)).catalog_id


def _word(item: dict[str, Any]) -> str:
    return f"keychain/{item['name']}"


def _row(item: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    facts = (item["name"], item["scope_type"], item["execution_id"] or "-")
    kind = item["credential_type"] or "-"
    renews = "yes" if item["auto_renew"] else "no"
    return *facts, kind, At(item["expires_at"]), renews, str(item["access_count"])


_spec = partial(remote_spec, takes="playbook")

COMMAND = Group(
    about="List, show and forget what the server keeps of the keychains of playbooks.",
    commands={
        "list": _spec(
            list_keychain,
            "noetl keychain list examples/hello",
            "noetl keychain list examples/hello -o json",
        ),
        "get": _spec(
            get_entry,
            "noetl keychain get examples/hello token --scope global",
            "noetl keychain get examples/hello token -o json",
        ),
        "delete": _spec(
            delete_entry,
            "noetl keychain delete examples/hello token --yes",
            "noetl keychain delete examples/hello token --yes -o json",
            is_mutating=True,
        ),
    },
    examples=("noetl keychain list examples/hello", "noetl keychain list examples/hello -o name"),
)
