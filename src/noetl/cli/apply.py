"""`noetl apply`: a catalog that equals files."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed
from noetl.cli.text import nearest

if TYPE_CHECKING:
    from noetl.cli.applying import Plan
    from noetl.cli.output import Output

_WHERE = ("client", "server")


def apply(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    files: Annotated[
        list[str],
        typer.Option("-f", "--file", metavar="PATH", help="A document, or a folder of them."),
    ],
    recursive: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("-R", "--recursive", help="Take the folders of folders too.")
    ] = False,
    prune: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--prune", help="Delete what the catalog has besides.")
    ] = False,
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="PATH", help="Prune only what begins so.")
    ] = "",
    dry_run: Annotated[
        str | None,
        typer.Option(
            "--dry-run", metavar="client|server", help="Only the plan; checked here or there."
        ),
    ] = None,
    message: Annotated[
        str, typer.Option("--message", metavar="TEXT", help="Why, kept with each new version.")
    ] = "",
) -> None:
    """Make the catalog equal the files: a plan is made, then carried out.

    A document is created, becomes a new version (update), is made what its path means again
    (promote), or is unchanged. With --prune everything else is deleted, except tests and what
    lies under system/: versions that have run are archived. A document that is refused does not
    keep the others out, but then nothing is pruned; the command ends with 7.
    """
    from noetl.cli.applying import perform, plan
    from noetl.cli.documents import files_of
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    if dry_run not in {None, *_WHERE}:
        hint = nearest(dry_run or "", _WHERE)
        raise CommandFailed("usage", f"`--dry-run={dry_run}` is not possible here", hint=hint)
    if prefix and not prune:
        raise CommandFailed("usage", "`--prefix` says what is pruned", hint="add `--prune`")
    names = files_of(files, is_deep=recursive)
    made = ask(
        out,
        lambda client: plan(
            client, names, on_server=dry_run != "client", prefix=prefix if prune else None
        ),
    )
    if dry_run is not None:
        _end(out, [*(one.told() for one in made.actions), *made.refused])
        return
    if prune:
        _agreed(out, made)
    _end(out, ask(out, lambda client: perform(client, made, message)))


def _agreed(out: "Output", made: "Plan") -> None:
    """Something is deleted only when somebody said so."""
    import sys

    from noetl.cli.asking import guard
    from noetl.cli.text import counted

    gone = made.prunes
    if made.refused:
        out.note("nothing is pruned, because documents were refused")
    if gone or sys.stdin is None or not sys.stdin.isatty():
        for one in () if out.is_agreed else gone:
            out.note(f"prune {one.path}@{one.before}")
        guard(out, f"delete {counted(len(gone), 'document')} of the catalog?")


def _end(out: "Output", items: list[dict[str, Any]]) -> None:
    """Show what was done, or would be, and end as the refusals say."""
    from noetl.cli.listing import show_list
    from noetl.cli.refusals import REFUSED, failure, tell

    refused = [item for item in items if item.get("status") == REFUSED]
    if refused and out.is_structured:
        raise failure(items, refused)
    kept = [item for item in items if item.get("status") != REFUSED]
    if kept or not refused:
        show_list(out, kept, _look())
    for item in refused:
        tell(out, item)
    if refused:
        raise failure(items, refused)


def _look() -> Any:  # noqa: ANN401 - imported when it is needed
    from noetl.cli.listing import Look

    return Look(
        head=("ACTION", "PATH", "FROM", "VERSION", "FILE"),
        row=_row,
        name=_name,
        nothing="nothing is to be done",
    )


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    numbers = ("-" if item[key] is None else str(item[key]) for key in ("from", "version"))
    return item["action"], item["path"], *numbers, item["file"] or "-"


def _name(item: dict[str, Any]) -> str:
    version = item["version"] or item["from"]
    return f"{item['kind']}/{item['path']}" + (f"@{version}" if version else "")


COMMAND = Spec(
    run=apply,
    outputs=("table", "json", "yaml", "jsonl", "name"),
    examples=(
        "noetl apply -f examples -R",
        "noetl apply -f examples -R --prune --dry-run=server -o json",
        "noetl apply -f examples/hello.yaml --prune --prefix examples/hello --yes",
    ),
    is_remote=True,
    is_mutating=True,
)
