"""`noetl executions events` and `logs`: what happened in a run, and what its steps wrote."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.api.client import Client
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output
    from noetl.cli.watching import Wanted

_Execution = Annotated[str, typer.Argument(metavar="ID", help="An id, @latest, or @latest:PATH.")]
_EVENT_HEAD = ("SEQ", "TIME", "EVENT", "STEP", "STATUS", "ERROR")
_PAGE = 1000


def events(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    execution: _Execution,
    follow: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("-f", "--follow", help="Go on until the run has ended.")
    ] = False,
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only these; command.*.")
    ] = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="STEP", help="Only of this step.")
    ] = None,
    after: Annotated[
        int, typer.Option("--after", metavar="SEQ", min=0, help="Only behind this number.")
    ] = 0,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="How many (50).")
    ] = 50,
    everything: Annotated[  # noqa: FBT002 - as above
        bool, typer.Option("--all", help="All of them.")
    ] = False,
) -> None:
    """Show the event log of a run, in the order of `seq`.

    With -f: the live tree of steps on stderr, or every event as it comes with -o jsonl. It goes
    on where it was when the server is restarted, and shows each event once.
    """
    from noetl.cli.listing import Look, show_list
    from noetl.cli.remote import ask
    from noetl.cli.watching import Wanted, follow_events

    out: Output = ctx.obj
    wanted = Wanted(types=tuple(types or ()), step=step, after=after)
    if follow:
        follow_events(out, execution, wanted)
        return
    most = None if everything else limit
    items, cursor = ask(out, lambda client: _events(client, execution, wanted, most))
    look = Look(head=_EVENT_HEAD, row=_event_row, name=_event_name, nothing="there is no event")
    show_list(out, items, look, cursor)


async def _events(
    client: "Client", execution: str, wanted: "Wanted", limit: int | None
) -> tuple[list[dict[str, Any]], str | None]:
    from noetl.cli.listing import pages
    from noetl.cli.references import execution_of

    name = await execution_of(client, execution)
    filters = wanted.filters()

    async def page(size: int, cursor: str | None) -> "tuple[Sequence[Any], str | None]":
        more = {"cursor": cursor} if cursor else {}
        found = await client.events(name, after=wanted.after, limit=size, **filters, **more)
        return found.items, found.next_cursor

    return await pages(page, limit, _PAGE)


def _event_row(row: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    error = row.get("error") or {}
    told = f"{error.get('kind', '')}: {error.get('message', '')}" if error else ""
    at = At(row["created_at"], is_of_day=True)
    return str(row["seq"]), at, row["event_type"], row["step"], row["status"], told


def _event_name(row: dict[str, Any]) -> str:
    return f"event/{row['event_id']}"


def logs(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    execution: _Execution,
    step: Annotated[
        str | None, typer.Option("--step", metavar="STEP", help="Only of this step.")
    ] = None,
    follow: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("-f", "--follow", help="Go on until the run has ended.")
    ] = False,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Written then or later; 10m.")
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", metavar="N", min=0, help="Only the last lines.")
    ] = None,
) -> None:
    """Show the lines that the steps of a run wrote, with step and attempt."""
    from noetl.cli.times import moment
    from noetl.cli.watching import Lines, show_lines
    from noetl.clock import SystemClock

    out: Output = ctx.obj
    at = moment("--since", since, SystemClock().now()) if since else None
    show_lines(out, execution, Lines(step=step, since=at, tail=tail, is_followed=follow))


EVENTS = Spec(
    run=events,
    outputs=("table", "json", "yaml", "jsonl", "name"),
    examples=(
        "noetl executions events @latest --type 'step.*' --all",
        "noetl executions events @latest -f -o jsonl",
    ),
    takes="executions",
    is_remote=True,
)
LOGS = Spec(
    run=logs,
    outputs=("table", "json", "yaml", "jsonl"),
    examples=(
        "noetl executions logs @latest --tail 20",
        "noetl executions logs @latest:examples/hello -f -o jsonl",
    ),
    takes="executions",
    is_remote=True,
)
