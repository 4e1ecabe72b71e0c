"""`noetl schedules create`, `backfill` and `next`: schedules and their times."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import remote_spec
from noetl.cli.failures import CommandFailed
from noetl.cli.text import nearest
from noetl.cli.wishes import InputFile, Payload, TextFiles, Texts, Values

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.cli.output import Output

_OUTPUTS = ("table", "json", "yaml", "jsonl", "name")
_INVALID = 7
_OVERLAPS = ("allow", "skip", "cancel_previous", "queue")
_CATCHUPS = ("none", "latest", "all")
_Schedule = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its name, or its id.")]


def create(  # noqa: PLR0913, PLR0917 - one parameter per option of the command line
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name of your choice.")],
    playbook: Annotated[str, typer.Argument(metavar="PLAYBOOK", help="PATH or PATH@VERSION.")],
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="CRON", help="Like '0 3 * * *'.")
    ] = None,
    every: Annotated[
        int | None, typer.Option("--every", metavar="S", min=1, help="Each so many seconds.")
    ] = None,
    timezone: Annotated[
        str, typer.Option("--timezone", metavar="ZONE", help="Of --cron (UTC).")
    ] = "UTC",
    values: Values = None,
    texts: Texts = None,
    files: TextFiles = None,
    payload: Payload = None,
    inputs: InputFile = None,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="|".join(_OVERLAPS), help="If one still runs.")
    ] = "skip",
    catchup: Annotated[
        str, typer.Option("--catchup", metavar="|".join(_CATCHUPS), help="Times that were missed.")
    ] = "latest",
    jitter: Annotated[
        float, typer.Option("--jitter", metavar="S", min=0, help="Up to so much later.")
    ] = 0,
    start_at: Annotated[
        str | None, typer.Option("--start-at", metavar="TIME", help="Not before then; in 2h.")
    ] = None,
    end_at: Annotated[
        str | None, typer.Option("--end-at", metavar="TIME", help="Not after then; in 30d.")
    ] = None,
    pool: Annotated[
        str | None, typer.Option("--pool", metavar="POOL", help="Whose workers run it.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", metavar="N", min=0, max=9, help="0 to 9 (5).")
    ] = None,
    paused: Annotated[bool, typer.Option("--paused", help="It does not fire yet.")] = False,  # noqa: FBT002 - typer reads flags from defaults
) -> None:
    """Make a schedule: --cron or --every says when."""
    from noetl.api.plain import plain
    from noetl.api.schedules import ScheduleBody
    from noetl.cli.inputs import Inputs, payload_of
    from noetl.cli.listing import show_one
    from noetl.cli.references import document_of
    from noetl.cli.remote import ask

    out: Output = ctx.obj
    if (cron is None) == (every is None):
        message = "`--cron` or `--every` says when: exactly one of them is needed"
        raise CommandFailed("usage", message, hint="like `--cron '0 3 * * *'` or `--every 600`")
    asked = Inputs(
        file=inputs, payload=payload, files=tuple(files or ()), texts=tuple(texts or ()),
        values=tuple(values or ()),
    )  # fmt: skip
    wanted: dict[str, Any] = {
        "name": name, "cron": cron, "interval_seconds": every, "timezone": timezone,
        "payload": payload_of(asked) or None, "enabled": not paused, "jitter_s": jitter,
        "overlap": _one_of("--overlap", overlap, _OVERLAPS),
        "catchup": _one_of("--catchup", catchup, _CATCHUPS),
        "start_at": _then("--start-at", start_at), "end_at": _then("--end-at", end_at),
        "pool": pool, "priority": priority,
    }  # fmt: skip

    async def work(client: "Client") -> dict[str, Any]:
        named = await document_of(client, playbook)
        body = ScheduleBody(path=named.path, version=named.version, **wanted)
        return plain(await client.add_schedule(body))

    found = ask(out, work)
    show_one(out, found, f"schedule/{found['schedule_id']}")


def _one_of(option: str, word: str, known: tuple[str, ...]) -> str:
    if word not in known:
        raise CommandFailed("usage", f"`{option} {word}` is not known", hint=nearest(word, known))
    return word


def _then(option: str, text: str | None) -> str | None:
    from noetl.cli.times import moment
    from noetl.clock import SystemClock

    return None if text is None else moment(option, text, SystemClock().now(), is_ahead=True)


def backfill(
    ctx: typer.Context,
    schedule: _Schedule,
    since: Annotated[str, typer.Option("--from", metavar="TIME", help="The first; 7d ago.")],
    until: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="The last; now.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most so many (100).")
    ] = 100,
) -> None:
    """Start the runs of times that have passed, the oldest first.

    A time that has run is not run again. Ends with 7 when one could not be started.
    """
    from noetl.api.plain import plain
    from noetl.api.schedules import Backfill
    from noetl.cli.listing import Look, show_list
    from noetl.cli.references import schedule_of
    from noetl.cli.remote import ask
    from noetl.cli.times import moment
    from noetl.clock import SystemClock, rfc3339

    out: Output = ctx.obj
    now = SystemClock().now()
    first = moment("--from", since, now)
    last = rfc3339(now) if until is None else moment("--to", until, now)
    body = Backfill(from_=first, to=last, limit=limit)

    async def work(client: "Client") -> dict[str, Any]:
        return plain(await client.backfill_schedule(await schedule_of(client, schedule), body))

    found = ask(out, work)
    if out.format in {"json", "yaml"}:
        out.document(found)
    else:
        look = Look(
            head=("DUE", "STATUS", "EXECUTION", "ERROR"),
            row=_run,
            name=lambda item: f"execution/{item['execution_id'] or '-'}",
            nothing="no time of it has passed",
        )
        show_list(out, found["items"], look)
    if found["has_more"]:
        out.note(f"there are more; go on with `--from {found['items'][-1]['due_at']}`")
    if any(item["status"] == "error" for item in found["items"]):
        raise typer.Exit(_INVALID)


def _run(item: dict[str, Any]) -> tuple[str, ...]:
    return item["due_at"], item["status"], item["execution_id"] or "-", item["code"] or ""


def coming(
    ctx: typer.Context,
    schedule: _Schedule,
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=1, max=100, help="How many (10).")
    ] = 10,
) -> None:
    """Show when a schedule fires next; a paused one, if it went on now."""
    from noetl.api.plain import plain
    from noetl.cli.references import schedule_of
    from noetl.cli.remote import ask
    from noetl.cli.times import At
    from noetl.clock import SystemClock

    out: Output = ctx.obj

    async def work(client: "Client") -> dict[str, Any]:
        name = await schedule_of(client, schedule)
        return plain(await client.schedule_fires(name, count))

    found = ask(out, work)
    if out.is_structured:
        out.document(found)
    elif out.format == "name":
        out.line(f"schedule/{found['schedule_id']}")
    else:
        now = SystemClock().now()
        out.write("".join(f"{At(at).shown(out.time or 'iso', now)}\n" for at in found["items"]))


_spec = partial(remote_spec, takes="schedules", is_mutating=True)

CREATE = _spec(
    create,
    "noetl schedules create weekly examples/hello --cron '0 3 * * 1' --set name=Ada",
    "noetl schedules create hourly examples/hello@1 --every 3600 --paused -o json",
)
BACKFILL = _spec(
    backfill,
    "noetl schedules backfill nightly --from 3d",
    "noetl schedules backfill nightly --from 2d --to 1d --limit 5 -o json",
)
NEXT = _spec(
    coming,
    "noetl schedules next nightly",
    "noetl schedules next nightly --count 3 -o json",
    is_mutating=False,
)
