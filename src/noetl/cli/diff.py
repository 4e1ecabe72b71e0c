"""`noetl diff`: what differs between files and the catalog, or between two versions."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.cli.output import Output

_DIFFERENT = 7


def diff(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    first: Annotated[
        str | None,
        typer.Argument(metavar="OLD", help="PATH@VERSION; alone: beside the version before."),
    ] = None,
    second: Annotated[
        str | None, typer.Argument(metavar="NEW", help="PATH@VERSION, or what a path means.")
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option("-f", "--file", metavar="PATH", help="A document, or a folder of them."),
    ] = None,
    recursive: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("-R", "--recursive", help="Take the folders of folders too.")
    ] = False,
    exit_code: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--exit-code", help="End with 7 when something differs.")
    ] = False,
) -> None:
    """Show what differs: steps that were added, removed or changed, and the text.

    With -f, files are compared with what their paths mean in the catalog. Tests (*.test.yaml) of
    a folder are left out.
    """
    from noetl.cli.differing import between, of_files, shown
    from noetl.cli.documents import files_of
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    if (first is None) == (not files):
        hint = "write `noetl diff -f FILE`, or `noetl diff PATH@1 PATH@2`"
        raise CommandFailed("usage", "files or versions are compared, one of them", hint=hint)
    if first is not None:
        words = (first, second)
        found = ask(out, lambda client: between(client, *words))
        _show_one(out, found)
        items = [found]
    else:
        names = files_of(files or (), is_deep=recursive)
        items = ask(out, lambda client: of_files(client, names))
        if out.is_structured:
            out.items(items)
        else:
            for item in items:
                _write(out, shown(out, item), item)
    if exit_code and any(item["unified"] for item in items):
        raise typer.Exit(_DIFFERENT)


def _show_one(out: "Output", item: dict[str, Any]) -> None:
    from noetl.cli.differing import shown

    if out.is_structured:
        out.document(item)
    else:
        _write(out, shown(out, item), item)


def _write(out: "Output", lines: "Iterator[str]", item: dict[str, Any]) -> None:
    """What differs for a person; with `-o name`, only where something does."""
    from noetl.cli.text import visible

    if not item["unified"]:
        place = item.get("file") or item["path"]
        out.note(f"{visible(place)} does not differ")
    elif out.format == "name":
        out.line(visible(f"catalog://{item['path']}"))
    else:
        out.write("".join(f"{line}\n" for line in lines))


COMMAND = Spec(
    run=diff,
    outputs=("table", "json", "yaml", "jsonl", "name"),
    examples=(
        "noetl diff -f examples/hello.yaml",
        "noetl diff examples/hello@1 examples/hello -o json --exit-code",
        "noetl diff -f examples -R -o name",
    ),
    takes="playbooks",
    is_remote=True,
)
