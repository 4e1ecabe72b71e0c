"""`noetl subscribe`: a listener in this process, with runs here or on a server."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.cli.output import Output

_DISPATCHES = ("local", "server")


def subscribe(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="A document of kind Subscription.")],
    dispatch: Annotated[
        str, typer.Option("--dispatch", metavar="local|server", help="Where runs are started.")
    ] = "local",
    events: Annotated[
        str | None,
        typer.Option(
            "--events", metavar="FILE", help="Where events go (<name>-events.jsonl); - is stdout."
        ),
    ] = None,
    stdout: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--stdout", help="Show events as they happen, too.")
    ] = False,
    spool_dir: Annotated[
        str | None,
        typer.Option("--spool-dir", metavar="DIR", help="Where messages wait in an outage."),
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option(
            "--playbook-dir", metavar="DIR", help="Where playbooks lie (beside the file)."
        ),
    ] = None,
    credentials: Annotated[
        list[str] | None,
        typer.Option(
            "--credential",
            metavar="NAME=FILE|env:VAR",
            help="A credential of the source or of a playbook; never stored.",
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option("--max-messages", metavar="N", min=1, help="Stop after so many messages."),
    ] = None,
    once: Annotated[  # noqa: FBT002 - as above
        bool,
        typer.Option("--once", help="Stop after the first messages, when nothing waits any more."),
    ] = False,
) -> None:
    """Listen for messages in this process: no server, or one that only starts the runs.

    Each message becomes a run of the playbook that the document names, found by its path in
    `--playbook-dir`, and is acknowledged when its run has ended. In an outage messages wait in
    a folder (`local_disk` alone), and the next start goes on with them.
    Ends with 0 when all went well, 1 when a message failed or waits, 2 for a document that
    cannot be used here, 6 when another process holds the folder, 10 when `--once` finds no source.
    """
    from noetl.cli.listening import Listening

    out: Output = ctx.obj
    if dispatch not in _DISPATCHES:
        hint = "`--dispatch local` or `--dispatch server`"
        raise CommandFailed("usage", f"`--dispatch {dispatch}` is not possible here", hint=hint)
    listening = Listening(
        out=out,
        file=file,
        is_remote=dispatch == "server",
        events=events,
        is_shown=stdout,
        spool_dir=spool_dir,
        folder=folder,
        credentials=tuple(credentials or ()),
        most=most,
        is_once=once,
    )
    summary = listening.run()
    _show(out, summary.as_json())
    raise typer.Exit(0 if summary.is_well else 1)


def _show(out: "Output", told: dict[str, Any]) -> None:
    """The summary: data when it was asked for, else a remark."""
    if out.is_structured:
        out.document(told)
    else:
        out.note(" ".join(f"{name} {count}" for name, count in told.items()))


COMMAND = Spec(
    run=subscribe,
    outputs=("table", "json", "yaml"),
    examples=(
        "noetl subscribe --once readings.yaml",
        "noetl subscribe readings.yaml --max-messages 100 --credential plant=plant.yaml -o json",
    ),
    is_remote=True,
)
