"""`noetl schedules`: the time tables by which playbooks are started."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Group, remote_spec
from noetl.cli.failures import CommandFailed
from noetl.cli.paging import Everything, Limit
from noetl.cli.scheduling import BACKFILL, CREATE, NEXT

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.cli.listing import Cell
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_HEAD = ("SCHEDULE", "NAME", "PLAYBOOK", "WHEN", "STATE", "NEXT", "LAST", "LAST STATUS")
_Schedule = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its name, or its id.")]


def list_schedules(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    path: Annotated[
        str | None, typer.Option("--path", metavar="PATH", help="Of this playbook.")
    ] = None,
    paused: Annotated[bool, typer.Option("--paused", help="Only those that are paused.")] = False,  # noqa: FBT002 - typer reads flags from defaults
    active: Annotated[bool, typer.Option("--active", help="Only those that fire.")] = False,  # noqa: FBT002 - as above
    limit: Limit = 50,
    everything: Everything = False,  # noqa: FBT002 - as above
) -> None:
    """List schedules, by name."""
    from noetl.cli.listing import Look
    from noetl.cli.paging import given, show_pages

    if paused and active:
        message = "`--paused` and `--active` exclude each other"
        raise CommandFailed("usage", message, hint="leave one of them out")
    enabled = ("true" if active else "false") if paused or active else None
    asked = given(path=path, enabled=enabled)
    look = Look(head=_HEAD, row=_row, name=_name, nothing="no schedule was found")
    show_pages(
        ctx.obj,
        lambda client, more: client.schedules(**asked, **more),
        look,
        None if everything else limit,
    )


def get_schedule(ctx: typer.Context, schedule: _Schedule) -> None:
    """Show one schedule."""
    _show(ctx.obj, schedule, "schedule")


def pause(ctx: typer.Context, schedule: _Schedule) -> None:
    """Stop a schedule from firing; runs that it has started go on."""
    _show(ctx.obj, schedule, "pause_schedule")


def resume(ctx: typer.Context, schedule: _Schedule) -> None:
    """Let a schedule fire again, from now on: what it has missed is left out."""
    _show(ctx.obj, schedule, "resume_schedule")


def trigger(ctx: typer.Context, schedule: _Schedule) -> None:
    """Start a run of a schedule now; its times stay as they are."""
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.references import schedule_of
    from noetl.cli.remote import ask

    out: Output = ctx.obj

    async def work(client: "Client") -> dict[str, Any]:
        return plain(await client.trigger_schedule(await schedule_of(client, schedule)))

    found = ask(out, work)
    show_one(out, found, f"execution/{found['execution_id']}")


def delete(ctx: typer.Context, schedule: _Schedule) -> None:
    """Forget a schedule; runs that it has started go on.

    One that is a trigger of a playbook is changed there, which ends with 6 here.
    """
    from noetl.cli.asking import guard

    guard(ctx.obj, f"delete the schedule {schedule}?")
    _show(ctx.obj, schedule, "remove_schedule")


def _show(out: "Output", word: str, verb: str) -> None:
    """Do something with one schedule, and show what became of it."""
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.references import schedule_of
    from noetl.cli.remote import ask

    async def work(client: "Client") -> dict[str, Any]:
        return plain(await getattr(client, verb)(await schedule_of(client, word)))

    found = ask(out, work)
    show_one(out, found, _name(found))


def _name(item: dict[str, Any]) -> str:
    return f"schedule/{item['schedule_id']}"


def _row(item: dict[str, Any]) -> "tuple[Cell, ...]":
    from noetl.cli.times import At

    version = item["version"]
    playbook = item["path"] if version is None else f"{item['path']}@{version}"
    zone = "" if item["timezone"] == "UTC" else f" {item['timezone']}"
    when = f"{item['cron']}{zone}" if item["cron"] else f"every {item['interval_seconds']} s"
    state = "active" if item["enabled"] else "paused"
    times = (At(item["next_run_at"]), At(item["last_run_at"]))
    return (
        item["schedule_id"], item["name"], playbook, when, state, *times,
        item["last_status"] or "-",
    )  # fmt: skip


_spec = partial(remote_spec, takes="schedules", is_mutating=True)

COMMAND = Group(
    about="List, make, pause and fire schedules: named by name or id.",
    commands={
        "list": _spec(
            list_schedules,
            "noetl schedules list",
            "noetl schedules list --path examples/hello -o json",
            is_mutating=False,
        ),
        "get": _spec(
            get_schedule,
            "noetl schedules get nightly",
            "noetl schedules get nightly -o json",
            is_mutating=False,
        ),
        "create": CREATE,
        "pause": _spec(
            pause, "noetl schedules pause nightly", "noetl schedules pause nightly -o json"
        ),
        "resume": _spec(
            resume, "noetl schedules resume nightly", "noetl schedules resume nightly -o name"
        ),
        "trigger": _spec(
            trigger, "noetl schedules trigger nightly", "noetl schedules trigger nightly -o name"
        ),
        "backfill": BACKFILL,
        "next": NEXT,
        "delete": _spec(
            delete,
            "noetl schedules delete nightly --yes",
            "noetl schedules delete nightly -y -o json",
        ),
    },
    examples=("noetl schedules list", "noetl schedules next nightly"),
)
