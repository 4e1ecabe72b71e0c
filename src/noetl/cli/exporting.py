"""`noetl catalog export`: the documents of a server as a tree of files."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.cli.output import Output

_HEAD = ("PATH", "VERSION", "STATUS", "FILE")
_TESTS = "playbook_test"
_PER_PAGE = 20
"""Documents have up to a MiB each."""


def export(
    ctx: typer.Context,
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Where the files are written.")],
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="Like playbook, or subscription.")
    ] = None,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="PATH", help="Only paths that begin so.")
    ] = None,
) -> None:
    """Write what each path means into DIR/PATH.yaml, as it was registered.

    Files that differ are written over after a question; others in the folder stay. `noetl apply
    -f DIR -R` brings them back.
    """
    from noetl.cli.asking import confirm
    from noetl.cli.listing import Look, show_list
    from noetl.cli.remote import ask
    from noetl.cli.text import counted

    out: Output = ctx.obj
    found = ask(out, lambda client: _documents(client, kind, prefix))
    items = [_planned(Path(folder), one) for one in found]
    changed = [item for item in items if item["status"] == "overwritten"]
    if changed:
        confirm(out, f"write over {counted(len(changed), 'file')}?")
    for item, one in zip(items, found, strict=True):
        if item["status"] != "unchanged":
            _write(Path(item["file"]), one["content"])
    look = Look(head=_HEAD, row=_row, name=_name, nothing="no document was found")
    show_list(out, items, look)


async def _documents(
    client: "Client", kind: str | None, prefix: str | None
) -> list[dict[str, Any]]:
    from noetl.api.catalog import CatalogQuery
    from noetl.cli.paging import all_pages, given

    asked = given(resource_type=kind, path_prefix=prefix)
    found, _ = await all_pages(
        client,
        lambda at, more: at.catalog(CatalogQuery(content=True, **asked, **more)),
        None,
        part="entries",
        most=_PER_PAGE,
    )
    return found


def _planned(folder: Path, one: dict[str, Any]) -> dict[str, Any]:
    """What is to become of one document."""
    from noetl.dsl.metadata import is_path

    if not is_path(one["path"]):
        message = f"`{one['path']}` cannot be the path of a file"
        raise CommandFailed("file_unwritable", message, hint="the server answered it")
    suffix = ".test.yaml" if one["kind"] == _TESTS else ".yaml"
    file = folder / f"{one['path']}{suffix}"
    status = "written"
    try:
        is_same = file.read_bytes() == one["content"].encode()
        status = "unchanged" if is_same else "overwritten"
    except FileNotFoundError:
        pass
    except OSError as fault:
        raise _unwritable(file, fault) from fault
    return {
        "path": one["path"], "version": one["version"], "kind": one["kind"], "status": status,
        "file": str(file),
    }  # fmt: skip


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    except OSError as fault:
        raise _unwritable(file, fault) from fault


def _unwritable(file: Path, fault: OSError) -> CommandFailed:
    message = f"`{file}` cannot be written: {fault.strerror}"
    return CommandFailed("file_unwritable", message, hint="name another folder")


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    return item["path"], str(item["version"]), item["status"], item["file"]


def _name(item: dict[str, Any]) -> str:
    return f"{item['kind']}/{item['path']}@{item['version']}"


EXPORT = Spec(
    run=export,
    outputs=("table", "json", "yaml", "jsonl", "name"),
    examples=(
        "noetl catalog export exported --prefix examples/hello",
        "noetl catalog export exported --kind playbook --yes -o json",
    ),
    is_remote=True,
)
