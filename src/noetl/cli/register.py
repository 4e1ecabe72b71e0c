"""`noetl register`: documents into the catalog of a server."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.cli.output import Output

_TESTS = (".test.yaml", ".test.yml")
_KINDS = frozenset({"playbook", "subscription", "credential"})
"""Words that may stand before `--file`: a document says itself what it is."""


def register(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Documents, folders of them, or - for stdin."),
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("-f", "--file", metavar="FILE", help="Another way to name a document."),
    ] = None,
    recursive: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("-R", "--recursive", help="Take the folders of folders too.")
    ] = False,
    message: Annotated[
        str, typer.Option("--message", metavar="TEXT", help="Why, kept with each new version.")
    ] = "",
) -> None:
    """Put documents into the catalog: changed ones become a new version.

    What is there already stays as it is (`unchanged`). A document that is refused does not keep
    the others out; the command ends with 7 then. Tests (*.test.yaml) of a folder are left out.
    """
    from noetl.cli.files import names
    from noetl.cli.listing import show_list
    from noetl.cli.refusals import REFUSED, failure, tell
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    named = [word for word in words or () if not (files and word in _KINDS)]
    wanted = [*named, *(files or ())]
    if not wanted:
        raise CommandFailed("usage", "no document is named", hint="write `noetl register FILE`")
    found = [
        name
        for name in names(wanted, is_deep=recursive)
        if name in wanted or not name.endswith(_TESTS)
    ]

    async def work(client: "Client") -> list[dict[str, Any]]:
        return [await _registered(client, name, message) for name in found]

    items = ask(out, work)
    refused = [item for item in items if item["status"] == REFUSED]
    if refused and out.is_structured:
        raise failure(items, refused)
    kept = [item for item in items if item["status"] != REFUSED]
    if kept:
        show_list(out, kept, _look())
    for item in refused:
        tell(out, item)
    if refused:
        raise failure(items, refused)


async def _registered(client: "Client", name: str, message: str) -> dict[str, Any]:
    """What became of one file."""
    from noetl.api.catalog import Register
    from noetl.api.plain import plain
    from noetl.api.problems import Refused
    from noetl.cli.files import read
    from noetl.cli.refusals import is_of_file, refusal, refusal_of

    try:
        text = read(name).data.decode("utf-8")
        made = await client.register(Register(content=text, message=message))
    except UnicodeDecodeError as fault:
        detail = f"the file is not UTF-8: {fault.reason} at byte {fault.start}"
        return refusal(name, "invalid_playbook", detail)
    except Refused as fault:
        if not is_of_file(fault):
            raise
        return refusal(name, fault.code, fault.message, fault.problem.errors)
    except CommandFailed as fault:
        return refusal_of(name, fault)
    status = "registered" if made.changed else "unchanged"
    return {"file": name, **plain(made), "status": status}


def _look() -> Any:  # noqa: ANN401 - imported when it is needed
    from noetl.cli.listing import Look

    return Look(
        head=("PATH", "VERSION", "STATUS", "FILE"),
        row=lambda item: (item["path"], str(item["version"]), item["status"], item["file"]),
        name=lambda item: f"{item['kind']}/{item['path']}@{item['version']}",
    )


COMMAND = Spec(
    run=register,
    outputs=("table", "json", "yaml", "jsonl", "name"),
    examples=(
        "noetl register examples/hello.yaml",
        'noetl register examples -R --message "first" -o json',
    ),
    is_remote=True,
    is_mutating=True,
)
