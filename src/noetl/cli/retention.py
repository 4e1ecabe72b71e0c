"""`noetl db retention`: what is old enough to go."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec
from noetl.cli.databases import DatabaseUrl, with_database

if TYPE_CHECKING:
    from noetl.cli.output import Output


def retention(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    run: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--run", help="Let it go; without it nothing is changed.")
    ] = False,
    events: Annotated[
        int,
        typer.Option(
            "--events", metavar="DAYS", min=0, max=36_500, help="Age of months of runs; 0: never."
        ),
    ] = 0,
    commands: Annotated[
        int,
        typer.Option("--commands", metavar="DAYS", min=0, max=36_500, help="Ended commands (7)."),
    ] = 7,
    processes: Annotated[
        int,
        typer.Option(
            "--processes", metavar="MINUTES", min=0, max=36_500, help="Silent processes (60)."
        ),
    ] = 60,
    database_url: DatabaseUrl = None,
) -> None:
    """Say what is old enough to go, or let it go with --run.

    Whole months of events go at once, and only when no run of theirs lives. A server does the
    same by itself every hour.
    """
    from noetl.cli.listing import Look, show_list

    out: Output = ctx.obj
    if run:
        from noetl.cli.asking import confirm

        confirm(out, "delete what is older than that?")

    async def work(url: str) -> dict[str, Any]:
        from noetl.api.internal import Purge
        from noetl.api.plain import plain
        from noetl.server.admin import retention as make_room

        body = Purge(
            command_retention_days=commands,
            runtime_stale_minutes=processes,
            event_retention_days=events,
            dry_run=not run,
        )
        return plain(await make_room(url, body))

    found = with_database(out, database_url, work)
    if out.is_structured:
        out.document(found)
        return
    verb = "deleted" if run else "to delete"
    counts = {name: found[f"{name}_purged"] for name in ("commands", "runtime", "dedup")}
    items = [
        *({"what": name, "state": f"{rows} rows {verb}"} for name, rows in counts.items()),
        *({"what": name, "state": verb} for name in found["event_partitions_dropped"]),
        *(
            {"what": one["partition"], "state": f"kept by {', '.join(one['blockers'])}"}
            for one in found["event_partitions_kept"]
        ),
    ]
    look = Look(
        head=("WHAT", "STATE"),
        row=lambda item: (item["what"], item["state"]),
        name=lambda item: item["what"],
    )
    show_list(out, items, look)


RETENTION = Spec(
    run=retention,
    outputs=("table", "json", "yaml", "jsonl", "name"),
    examples=(
        'noetl db retention --events 90 || echo "no database"',
        'noetl db retention --run --yes -o json || echo "no database"',
    ),
    takes="nothing",
)
