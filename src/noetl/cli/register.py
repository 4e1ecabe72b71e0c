"""`noetl register`: documents into the catalog of a server."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.cli.output import Output

_TESTS = (".test.yaml", ".test.yml")
_KIND = "playbook"


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
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    named = [word for word in words or () if not (files and word == _KIND)]
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
    refused = [item for item in items if item["status"] == "refused"]
    if refused and out.is_structured:
        raise _failure(items, refused)
    kept = [item for item in items if item["status"] != "refused"]
    if kept:
        show_list(out, kept, _look())
    for item in refused:
        _tell(out, item)
    if refused:
        raise _failure(items, refused)


async def _registered(client: "Client", name: str, message: str) -> dict[str, Any]:
    """What became of one file."""
    from noetl.api.catalog import Register
    from noetl.api.plain import plain
    from noetl.api.problems import Refused
    from noetl.cli.files import read

    try:
        text = read(name).data.decode("utf-8")
        made = await client.register(Register(content=text, message=message))
    except UnicodeDecodeError as fault:
        detail = f"the file is not UTF-8: {fault.reason} at byte {fault.start}"
        return _refusal(name, "invalid_playbook", detail)
    except Refused as fault:
        is_of_file = fault.problem.status in _OF_FILE or fault.code == "reserved_namespace"
        if not is_of_file:
            raise
        return _refusal(name, fault.code, fault.message, fault.problem.errors)
    except CommandFailed as fault:
        return _refusal(name, fault.code, fault.message)
    status = "registered" if made.changed else "unchanged"
    return {"file": name, **plain(made), "status": status}


# A version that is taken, a document that is too large, one that is not valid.
_OF_FILE = (409, 413, 422)


def _refusal(name: str, code: str, detail: str, errors: tuple[Any, ...] = ()) -> dict[str, Any]:
    found = [{"file": name, **error} for error in errors]
    return {"file": name, "status": "refused", "code": code, "detail": detail, "errors": found}


def _failure(items: list[dict[str, Any]], refused: list[dict[str, Any]]) -> CommandFailed:
    first = refused[0]
    message = f"{len(refused)} of {len(items)} documents were refused"
    if len(items) == 1:
        message = f"{first['file']} was refused: {first['detail']}"
    diagnostics = [error for item in refused for error in item["errors"]]
    hint = f"check it with `noetl validate {first['file']}`"
    details = {"diagnostics": diagnostics, "items": items}
    return CommandFailed("invalid_playbook", message, hint=hint, details=details)


def _tell(out: "Output", item: dict[str, Any]) -> None:
    from noetl.cli.text import visible

    out.note(f"{visible(item['file'])}: {item['code']}: {visible(item['detail'])}")
    for error in item["errors"]:
        where = f"{error.get('line', 0)}:{error.get('column', 0)}"
        told = f"{error.get('code', '')}: {error.get('message', '')}"
        out.note(f"{visible(item['file'])}:{where}: {visible(told)}")


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
)
