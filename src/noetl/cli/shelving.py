"""`noetl catalog promote`, `archive`, `restore` and `delete`: what becomes of versions."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import remote_spec
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_HEAD = ("PATH", "DELETED", "ARCHIVED", "RESTORED")
_Documents = Annotated[
    list[str], typer.Argument(metavar="PATH", help="PATH (all its versions), or PATH@VERSION.")
]


def promote(
    ctx: typer.Context,
    document: Annotated[str, typer.Argument(metavar="PATH@VERSION", help="The version.")],
) -> None:
    """Make a version what its path means: a rollback is a promotion of an older one.

    Tests that guard the document must pass first.
    """
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.references import document_of
    from noetl.cli.remote import ask

    out: Output = ctx.obj

    async def work(client: "Client") -> tuple[str, dict[str, Any]]:
        named = await document_of(client, document)
        if named.version is None:
            hint = f"write `{named.path}@VERSION`; `noetl catalog versions` shows them"
            raise CommandFailed("usage", "a version is promoted", hint=hint)
        kind = await _kind(client, named.path)
        return kind, plain(await client.promote(named.path, named.version))

    kind, found = ask(out, work)
    show_one(out, found, f"{kind}/{found['path']}@{found['version']}")


def archive(ctx: typer.Context, documents: _Documents) -> None:
    """Put versions away: they run by their catalog id only, until they are restored."""
    _settle(ctx.obj, documents, "archive_document")


def restore(ctx: typer.Context, documents: _Documents) -> None:
    """Bring versions back that were archived."""
    _settle(ctx.obj, documents, "restore_document")


def delete(ctx: typer.Context, documents: _Documents) -> None:
    """Delete versions; those that have run are archived instead."""
    from noetl.cli.asking import guard

    guard(ctx.obj, f"delete {', '.join(documents)}?")
    _settle(ctx.obj, documents, "delete_document")


def _settle(out: "Output", words: list[str], verb: str) -> None:
    """Do it with each; nothing is done when one of them is not there."""
    from noetl.api.catalog import Removal
    from noetl.api.plain import plain
    from noetl.cli.listing import Look, show_list
    from noetl.cli.references import document_of
    from noetl.cli.remote import ask

    async def work(client: "Client") -> tuple[list[str], list[dict[str, Any]]]:
        named = [await document_of(client, word) for word in words]
        kinds = [await _kind(client, one.path) for one in named]
        done = [
            plain(await getattr(client, verb)(Removal(path=one.path, version=one.version)))
            for one in named
        ]
        return kinds, done

    kinds, items = ask(out, work)
    if out.format == "name":
        for kind, item in zip(kinds, items, strict=True):
            numbers = (*item["deleted"], *item["archived"], *item["restored"])
            out.write("".join(f"{kind}/{item['path']}@{number}\n" for number in numbers))
    elif out.is_structured and len(items) == 1:
        out.document(items[0])
    else:
        show_list(out, items, Look(head=_HEAD, row=_row, name=lambda item: item["path"]))
    if not any(item["count"] for item in items):
        out.note("nothing was to be done")


async def _kind(client: "Client", path: str) -> str:
    """The kind of a document; refused when there is none."""
    return (await client.versions(path, limit=1)).items[0].kind


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    parts = (item["deleted"], item["archived"], item["restored"])
    return item["path"], *(", ".join(map(str, part)) or "-" for part in parts)


_spec = partial(remote_spec, takes="playbooks", is_mutating=True)

PROMOTE = _spec(
    promote,
    "noetl catalog promote examples/hello@1",
    "noetl catalog promote playbook/examples/hello@1 -o json",
)
ARCHIVE = _spec(
    archive,
    "noetl catalog archive examples/branches@1",
    "noetl catalog archive examples/branches -o name",
)
RESTORE = _spec(
    restore,
    "noetl catalog restore examples/branches",
    "noetl catalog restore examples/branches@1 -o json",
)
DELETE = _spec(
    delete,
    "noetl catalog delete examples/branches@1 --yes",
    "noetl catalog list --text branches -o name | xargs -r noetl catalog delete --yes -o json",
)
