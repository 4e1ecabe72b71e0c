"""`noetl executions`: the runs of a server."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli import filters
from noetl.cli.cancelling import CANCEL
from noetl.cli.command import Group, Spec
from noetl.cli.history import EVENTS, LOGS
from noetl.cli.looking import DIFF, REPLAY, WHY
from noetl.cli.paging import Everything, Limit
from noetl.cli.steering import FINALIZE, FORK, PAUSE, RERUN, RESUME

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_HEAD = ("EXECUTION", "STATUS", "PLAYBOOK", "STARTED", "DURATION", "STEPS", "NOW AT")


def list_executions(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    status: filters.Statuses = None,
    path: filters.Path = None,
    since: filters.Since = None,
    until: filters.Until = None,
    parent: filters.Parent = None,
    labels: filters.Labels = None,
    text: filters.Text = None,
    limit: Limit = 50,
    everything: Everything = False,  # noqa: FBT002 - typer reads flags from defaults
) -> None:
    """List runs, the newest first.

    A time is like 2026-01-31T12:00:00Z, or how long ago: 90s, 10m, 2h, 7d.
    """
    from noetl.cli.listing import Look, show_list
    from noetl.cli.paging import all_pages
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    wanted = filters.Filter(
        status=tuple(status or ()), path=path, since=since, until=until, parent=parent,
        labels=tuple(labels or ()), text=text,
    )  # fmt: skip

    async def work(client: "Client") -> tuple[list[dict[str, Any]], str | None]:
        asked = await wanted.asked(client)
        return await all_pages(
            client,
            lambda at, more: at.executions(**asked, **more),
            None if everything else limit,
        )

    items, cursor = ask(out, work)
    look = Look(head=_HEAD, row=_row, name=_name, nothing="no execution was found")
    show_list(out, items, look, cursor)


def get_execution(
    ctx: typer.Context,
    execution: Annotated[
        str, typer.Argument(metavar="ID", help="An id, @latest, or @latest:PATH.")
    ],
) -> None:
    """Show one run: its inputs, its steps, its result or its error."""
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.references import execution_of
    from noetl.cli.remote import ask

    out: Output = ctx.obj

    async def work(client: "Client") -> dict[str, Any]:
        found = await client.execution(await execution_of(client, execution))
        return plain(found)

    item = ask(out, work)
    show_one(out, item, _name(item))


def status_of(
    ctx: typer.Context,
    execution: Annotated[
        str, typer.Argument(metavar="ID", help="An id, @latest, or @latest:PATH.")
    ],
) -> None:
    """Show how far a run is."""
    from noetl.cli.status import show_execution

    show_execution(ctx.obj, execution)


def _name(item: dict[str, Any]) -> str:
    return f"execution/{item['execution_id']}"


def _row(item: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.text import duration
    from noetl.cli.times import At

    steps = item["steps"]
    done = steps["completed"] + steps["failed"] + steps["skipped"]
    return (
        item["execution_id"],
        item["status"],
        f"{item['path']}@{item['version']}",
        At(item["started_at"]),
        duration(item["duration_ms"]),
        f"{done}/{steps['total']}",
        ", ".join(item["current_steps"]) or "-",
    )


COMMAND = Group(
    about="List, show, follow and steer runs: named by id, @latest, or @latest:PATH.",
    commands={
        "list": Spec(
            run=list_executions,
            outputs=_OUTPUTS,
            examples=(
                "noetl executions list --status RUNNING --since 2h",
                "noetl executions list --path 'examples/*' --limit 5 -o name",
                "noetl executions list --columns execution_id,status,started_at --time iso",
            ),
            takes="nothing",
            is_remote=True,
        ),
        "get": Spec(
            run=get_execution,
            outputs=_OUTPUTS,
            examples=(
                "noetl executions get @latest",
                "noetl executions get @latest:examples/hello -o json",
            ),
            takes="executions",
            is_remote=True,
        ),
        "status": Spec(
            run=status_of,
            outputs=_OUTPUTS,
            examples=(
                "noetl executions status @latest",
                "noetl executions status @latest:examples/hello -o json",
            ),
            takes="executions",
            is_remote=True,
        ),
        "events": EVENTS,
        "logs": LOGS,
        "why": WHY,
        "replay": REPLAY,
        "diff": DIFF,
        "cancel": CANCEL,
        "pause": PAUSE,
        "resume": RESUME,
        "rerun": RERUN,
        "fork": FORK,
        "finalize": FINALIZE,
    },
    examples=("noetl executions list", "noetl executions get @latest -o json"),
)
