"""`noetl status`: the parts of the embedded stack and how they are."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.api.executions import Status
    from noetl.cli.output import Output
    from noetl.local.embedded.report import Condition, Report

_UNHEALTHY = 10
_HEAD = ("PART", "PID", "PORT", "HEALTH", "UPTIME", "VERSION", "QUEUE", "RESTARTS", "DATA")


def status(
    ctx: typer.Context,
    execution: Annotated[
        str | None,
        typer.Argument(metavar="EXECUTION", help="A run of the server: id, @latest, @latest:PATH."),
    ] = None,
    home: Annotated[
        Path | None, typer.Option("--home", metavar="DIR", help="Folder of the stack (.noetl).")
    ] = None,
) -> None:
    """Show the parts of the embedded stack: process, port, health, age, version, queue, data.

    Ends with 0 when every part is well, and with 10 otherwise. With EXECUTION it shows how far
    that run of the server is.
    """
    out: Output = ctx.obj
    if execution is not None:
        show_execution(out, execution)
        return
    show_stack(out, home or out.settings.home)


def show_execution(out: "Output", word: str) -> None:
    """Ask a server how far a run is, and show it."""
    from noetl.api.plain import plain
    from noetl.cli.listing import show_one
    from noetl.cli.references import execution_of
    from noetl.cli.remote import ask

    async def work(client: "Client") -> "Status":
        return await client.status(await execution_of(client, word))

    found = ask(out, work)
    show_one(out, plain(found), f"execution/{found.execution_id}")


def show_stack(out: "Output", home: Path) -> None:
    """Ask the stack of a folder and show it."""
    import asyncio

    from noetl.clock import SystemClock
    from noetl.local.embedded.home import Home
    from noetl.local.embedded.report import report

    folder = Home(home)
    found = asyncio.run(report(folder, SystemClock().now()))
    if found is None:
        message = f"no stack runs in {folder.path}"
        raise CommandFailed("stack_not_running", message, hint="start it with `noetl up`")
    _write(out, found)
    if not found.is_healthy:
        raise typer.Exit(_UNHEALTHY)


def _write(out: "Output", found: "Report") -> None:
    from noetl.cli.text import columns

    if out.is_structured:
        out.document(asdict(found) | {"is_healthy": found.is_healthy})
        return
    out.line(f"{found.gateway_url or found.url}  {found.state}")
    out.write(columns([_HEAD, *map(_row, found.parts)], out.width))


def _row(part: "Condition") -> tuple[str, ...]:
    return (
        part.name,
        _shown(part.pid),
        _shown(part.port),
        part.health,
        "-" if part.uptime_s is None else age(part.uptime_s),
        part.version or "-",
        _shown(part.queue),
        str(part.restarts),
        part.data_dir or "-",
    )


def _shown(number: int | None) -> str:
    return "-" if number is None else str(number)


def age(seconds: int) -> str:
    """A time span in its two largest units."""
    for size, unit, smaller, name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            return f"{seconds // size} {unit} {seconds % size // smaller} {name}"
    return f"{seconds} s"


COMMAND = Spec(
    run=status,
    outputs=("table", "json", "yaml"),
    examples=(
        'noetl status || echo "something is not well"',
        'noetl status --home stack -o json || echo "nothing runs there"',
    ),
    takes="executions",
    is_remote=True,
)
