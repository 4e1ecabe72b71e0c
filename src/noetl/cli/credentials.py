"""`noetl credentials`: what tools prove themselves with; a value is shown only when asked for."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, remote_spec
from noetl.cli.failures import EXIT_OF_STATUS, CommandFailed
from noetl.cli.paging import Everything, Limit

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.cli.filling import Filled
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output

_HEAD = ("NAME", "TYPE", "TAGS", "CHANGED", "DESCRIPTION")
_SHOWING = ("table", "json", "yaml", "jsonl")
_PREFIX = "credential/"
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
_File = Annotated[
    str | None,
    typer.Option(
        "--from-file",
        metavar="FILE",
        help="Fields as JSON or YAML, a Credential document, or a single secret; - for stdin.",
    ),
]
_Data = Annotated[
    str | None,
    typer.Option("--data", metavar="JSON", help="The fields; the shell's history shows them."),
]


def list_credentials(
    ctx: typer.Context,
    kind: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Only those of a type.")
    ] = None,
    part: Annotated[
        str | None, typer.Option("--query", metavar="TEXT", help="A part of the name.")
    ] = None,
    limit: Limit = 50,
    everything: Everything = False,  # noqa: FBT002 - typer reads flags from defaults
) -> None:
    """List credentials, by name; their values are never listed."""
    from noetl.cli.listing import Look
    from noetl.cli.paging import given, show_pages

    asked = given(type=kind, q=part)
    look = Look(head=_HEAD, row=_row, name=_name, nothing="there is no credential")
    show_pages(
        ctx.obj,
        lambda client, more: client.credentials(**asked, **more),
        look,
        None if everything else limit,
    )


def get_credential(
    ctx: typer.Context,
    name: _Name,
    reveal: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--reveal", help="Its values too; needs a permission, and is audited.")
    ] = False,
) -> None:
    """Show what is known of a credential; its values only with --reveal."""
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    found = plain(ask(out, lambda client: client.credential(_plain(name), reveal=reveal)))
    show_one(out, found, _name(found))


def put_credential(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Its name; a document has one.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("-t", "--type", metavar="TYPE", help="Like postgres or bearer.")
    ] = None,
    file: _File = None,
    data: _Data = None,
    description: Annotated[
        str, typer.Option("--description", metavar="TEXT", help="What it is for.")
    ] = "",
    tags: Annotated[
        list[str] | None, typer.Option("--tag", metavar="TAG", help="A word to find it by.")
    ] = None,
    region: Annotated[
        str, typer.Option("--region", metavar="REGION", help="Where it has to stay.")
    ] = "",
) -> None:
    """Keep a credential under a name; one of that name is replaced.

    Without --from-file the fields are asked for at the terminal; what is secret is not echoed.
    """
    from noetl.api.credentials import CredentialPut
    from noetl.cli.filling import filled

    out: Output = ctx.obj
    found = filled(out, kind, file, data)
    named = name or found.name
    if named is None:
        raise CommandFailed("usage", "the credential has no name", hint="write it as `put NAME`")
    body = CredentialPut(
        name=_plain(named),
        type=found.type,
        data=found.data,
        from_=found.source,
        tags=tuple(tags or ()),
        description=description or found.description,
        region=region,
    )
    _keep(out, body)


def rotate_credential(
    ctx: typer.Context, name: _Name, file: _File = None, data: _Data = None
) -> None:
    """Give a credential new values; its type, tags and description stay.

    What runs now keeps the old ones until its task ends; the next task gets the new ones.
    """
    from noetl.cli.filling import filled
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    known = ask(out, lambda client: client.credential(_plain(name)))
    found = filled(out, known.type, file, data)
    _keep(out, _renewed(known, found))


def try_credential(
    ctx: typer.Context,
    name: _Name,
    wait: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--wait/--no-wait", help="Wait for what came of it (yes).")
    ] = True,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", min=0.001, help="Stop waiting then (60).")
    ] = 60.0,
) -> None:
    """Try a credential on a worker: it connects, and does nothing else.

    Ends with 0 when the worker was let in, 3 when not, 8 after --timeout.
    """
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.remote import ask

    out: Output = ctx.obj

    async def work(client: "Client") -> None:
        tested = await client.test_credential(_plain(name))
        if not wait:
            show_one(out, plain(tested), f"execution/{tested.execution_id}")
            return
        raise typer.Exit(await _awaited(out, client, tested.execution_id, timeout))

    ask(out, work)


async def _awaited(out: "Output", client: "Client", execution_id: str, timeout_s: float) -> int:
    import asyncio

    from noetl.cli.awaited import ended, show_run

    try:
        async with asyncio.timeout(timeout_s):
            run = await ended(out, client, execution_id, catalog_id="", is_followed=False)
    except TimeoutError:
        message = f"not done within {timeout_s:g} s; execution {execution_id} goes on"
        raise CommandFailed("wait_timeout", message) from None
    show_run(out, run)
    return EXIT_OF_STATUS[run.status]


def delete_credential(
    ctx: typer.Context,
    name: _Name,
    force: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--force", help="Although playbooks name it.")
    ] = False,
) -> None:
    """Delete a credential; one that playbooks name is kept, unless --force."""
    from noetl.api.plain import plain
    from noetl.cli.asking import guard
    from noetl.cli.listing import show_one
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    guard(out, f"delete the credential {name}?")
    gone = plain(ask(out, lambda client: client.delete_credential(_plain(name), force=force)))
    show_one(out, gone, f"{_PREFIX}{_plain(name)}")


def _keep(out: "Output", body: Any) -> None:  # noqa: ANN401 - imported when it is needed
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.remote import ask

    made = plain(ask(out, lambda client: client.put_credential(body)))
    show_one(out, made, _name(made))


def _renewed(known: Any, found: "Filled") -> Any:  # noqa: ANN401 - imported when they are needed
    from noetl.api.credentials import CredentialPut

    return CredentialPut(
        name=known.name,
        type=known.type,
        data=found.data,
        from_=found.source,
        meta=known.meta,
        tags=known.tags,
        description=known.description,
        region=known.region,
    )


def _plain(word: str) -> str:
    return word.removeprefix(_PREFIX)


def _name(item: dict[str, Any]) -> str:
    return f"{_PREFIX}{item['name']}"


def _row(item: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    facts = (item["name"], item["type"], ", ".join(item["tags"]) or "-")
    return *facts, At(item["updated_at"]), item["description"] or "-"


_spec = partial(remote_spec, is_mutating=True)
_PUT = _spec(
    put_credential,
    'printf %s "$TOKEN" | noetl credentials put crm --type bearer --from-file -',
    'echo \'{"user": "app"}\' | noetl credentials put crm_db -t postgres --from-file - -o json',
)

COMMAND = Group(
    about="Keep, test, rotate and delete credentials; their values stay where they are.",
    commands={
        "list": _spec(
            list_credentials,
            "noetl credentials list --type postgres",
            "noetl credentials list --query crm -o json",
            is_mutating=False,
        ),
        "get": _spec(
            get_credential,
            "noetl credentials list -o name | xargs -r -n 1 noetl credentials get",
            "noetl credentials list -o name | xargs -r -n 1 noetl credentials get -o json",
            is_mutating=False,
        ),
        "put": _PUT,
        "create": _PUT,
        "test": _spec(
            try_credential,
            "noetl credentials list --type nats -o name | xargs -r -n 1 noetl credentials test",
            "noetl credentials list --type nats -o name | xargs -r -n 1 noetl credentials test -v",
        ),
        "rotate": _spec(
            rotate_credential,
            'printf %s "$TOKEN" | noetl credentials rotate crm --from-file -',
            'printf %s "$TOKEN" | noetl credentials rotate crm --from-file - -o json',
        ),
        "delete": _spec(
            delete_credential,
            "noetl credentials list --query old -o name | xargs -r noetl credentials delete --yes",
            "noetl credentials list --query old -o name | xargs -r noetl credentials delete -y -v",
        ),
    },
    examples=("noetl credentials list", "noetl credentials list -o name"),
)
