"""`noetl executions`: the runs of a server."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, Spec
from noetl.cli.history import EVENTS, LOGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.api.client import Client
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_HEAD = ("EXECUTION", "STATUS", "PLAYBOOK", "STARTED", "DURATION", "STEPS", "NOW AT")


def list_executions(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    status: Annotated[
        list[str] | None, typer.Option("--status", metavar="STATUS", help="Only these.")
    ] = None,
    path: Annotated[
        str | None, typer.Option("--path", metavar="PATH", help="Of a playbook; etl/* of many.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Started then or later; 2h ago.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Started before then.")
    ] = None,
    parent: Annotated[
        str | None,
        typer.Option("--parent", metavar="ID", help="Children of a run; none: nobody's."),
    ] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="With this label.")
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="TEXT", help="Path or error begins so.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="How many (50).")
    ] = 50,
    everything: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--all", help="All of them.")
    ] = False,
) -> None:
    """List runs, the newest first.

    A time is like 2026-01-31T12:00:00Z, or how long ago: 90s, 10m, 2h, 7d.
    """
    from noetl.api.plain import plain
    from noetl.cli.inputs import pair
    from noetl.cli.listing import Look, pages, show_list
    from noetl.cli.references import execution_of
    from noetl.cli.remote import ask
    from noetl.cli.times import moment
    from noetl.clock import SystemClock

    out: Output = ctx.obj
    now = SystemClock().now()
    filters: dict[str, Any] = {
        "status": status or None,
        "path": path,
        "since": moment("--since", since, now) if since else None,
        "until": moment("--until", until, now) if until else None,
        "label": [":".join(pair("--label", word)) for word in labels or ()] or None,
        "q": text,
    }

    async def work(client: "Client") -> tuple[list[dict[str, Any]], str | None]:
        if parent is not None:
            is_id = parent != "none"
            filters["parent_execution_id"] = await execution_of(client, parent) if is_id else parent

        async def page(size: int, cursor: str | None) -> "tuple[Sequence[Any], str | None]":
            more = {"cursor": cursor} if cursor else {}
            found = await client.executions(**filters, limit=size, **more)
            return [plain(item) for item in found.items], found.next_cursor

        return await pages(page, None if everything else limit)

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


def cancel(
    ctx: typer.Context,
    executions: Annotated[
        list[str], typer.Argument(metavar="ID", help="Ids, @latest, or @latest:PATH.")
    ],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; the run's log keeps it.")
    ] = "",
    no_cascade: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--no-cascade", help="Let the runs that it has started go on.")
    ] = False,
) -> None:
    """Cancel runs, and the runs that they have started.

    A run that is cancelled already is no error; one that has ended otherwise ends with 6.
    Every run that is named is tried.
    """
    from noetl.api.executions import Control
    from noetl.cli.listing import Look, show_list
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    body = Control(reason=reason, cascade=not no_cascade)

    async def work(client: "Client") -> "list[tuple[dict[str, Any], Any]]":
        return [await _cancelled(client, word, body) for word in executions]

    done = ask(out, work)
    failures = [failure for _, failure in done if failure is not None]
    items = [item for item, _ in done]
    if failures and out.is_structured:
        raise _first(failures, items)
    look = Look(head=("EXECUTION", "STATUS", "CHILDREN", "MESSAGE"), row=_cancel_row, name=_name)
    cancelled = [item for item, failure in done if failure is None]
    if cancelled:
        show_list(out, cancelled, look)
    for item, failure in done:
        if failure is not None and len(done) > 1:
            out.note(f"{item['execution_id']}: {failure.message}")
    if failures:
        raise _first(failures, items)


async def _cancelled(client: "Client", word: str, body: Any) -> tuple[dict[str, Any], Any]:  # noqa: ANN401 - imported when it is needed
    """What became of one run, or the failure that kept it."""
    from noetl.api.plain import plain
    from noetl.api.problems import Refused
    from noetl.cli.failures import failure_of
    from noetl.cli.references import execution_of

    name = word
    try:
        name = await execution_of(client, word)
        return plain(await client.cancel(name, body)), None
    except Refused as fault:
        failure = failure_of(fault)
        return {"execution_id": name, "error": {"code": fault.code, "message": fault.message}}, (
            failure
        )


def _first(failures: list[Any], items: list[dict[str, Any]]) -> Any:  # noqa: ANN401 - as above
    """The first failure stands for all of them."""
    first = failures[0]
    if len(items) > 1:
        first.details = {**first.details, "items": items}
    return first


def _name(item: dict[str, Any]) -> str:
    return f"execution/{item['execution_id']}"


def _row(item: dict[str, Any]) -> tuple[str, ...]:
    from noetl.cli.times import ago
    from noetl.cli.tree import duration
    from noetl.clock import SystemClock

    steps = item["steps"]
    done = steps["completed"] + steps["failed"] + steps["skipped"]
    return (
        item["execution_id"],
        item["status"],
        f"{item['path']}@{item['version']}",
        ago(item["started_at"], SystemClock().now()),
        duration(item["duration_ms"]),
        f"{done}/{steps['total']}",
        ", ".join(item["current_steps"]) or "-",
    )


def _cancel_row(item: dict[str, Any]) -> tuple[str, ...]:
    return item["execution_id"], item["status"], str(item["cancelled_children"]), item["message"]


COMMAND = Group(
    about="List, show, follow and cancel runs: named by id, @latest, or @latest:PATH.",
    commands={
        "list": Spec(
            run=list_executions,
            outputs=_OUTPUTS,
            examples=(
                "noetl executions list --status RUNNING --since 2h",
                "noetl executions list --path 'examples/*' --limit 5 -o name",
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
            takes="nothing",
            is_remote=True,
        ),
        "events": EVENTS,
        "logs": LOGS,
        "cancel": Spec(
            run=cancel,
            outputs=_OUTPUTS,
            examples=(
                'noetl executions cancel @latest --reason "not needed" || echo "it has ended"',
                "noetl executions list --status RUNNING -o name | xargs -r noetl executions cancel",
            ),
            takes="nothing",
            is_remote=True,
        ),
    },
    examples=("noetl executions list", "noetl executions get @latest -o json"),
)
