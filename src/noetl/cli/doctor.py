"""`noetl doctor`: whether this machine, and the stack here, are well."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed

if TYPE_CHECKING:
    from noetl.cli.output import Output


def doctor(
    ctx: typer.Context,
    home: Annotated[
        Path | None, typer.Option("--home", metavar="DIR", help="Folder of the stack (.noetl).")
    ] = None,
) -> None:
    """Look at Python, disk, ports, sandbox, extras, database, clock, schema and broker.

    Each is ok, warn or fail, with what helps. Ends with 1 when something fails.
    """
    import asyncio

    from noetl.cli.checkup import look
    from noetl.cli.listing import Look, show_list

    out: Output = ctx.obj
    found = asyncio.run(look(out, home or out.settings.home))
    items = [asdict(one) for one in found]
    failed = [one.name for one in found if one.verdict == "fail"]
    message = f"not well: {', '.join(failed)}"
    if failed and out.is_structured:
        raise CommandFailed("check_failed", message, details={"items": items})
    shown = Look(
        head=("CHECK", "VERDICT", "FOUND", "FIX"),
        row=lambda item: (item["name"], item["verdict"], item["found"], item["fix"] or "-"),
        name=lambda item: f"check/{item['name']}",
    )
    show_list(out, items, shown)
    if failed:
        raise CommandFailed("check_failed", message, hint="see what helps above")


COMMAND = Spec(
    run=doctor,
    outputs=("table", "json", "yaml", "jsonl", "name"),
    examples=("noetl doctor", "noetl doctor --home stack -o json"),
    takes="nothing",
)
