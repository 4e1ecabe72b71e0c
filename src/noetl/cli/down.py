"""`noetl down`: the end of the embedded stack."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import failure_of

if TYPE_CHECKING:
    from noetl.cli.output import Output


def down(
    ctx: typer.Context,
    home: Annotated[
        Path | None, typer.Option("--home", metavar="DIR", help="Folder of the stack (.noetl).")
    ] = None,
    wipe: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("--wipe", help="Delete its data too.")
    ] = False,
) -> None:
    """Stop the embedded stack: workers finish what they run, then everything else ends.

    Nothing runs: that is said, and well.
    """
    from noetl.cli.asking import confirm
    from noetl.errors import NoetlError
    from noetl.local.embedded.down import down as stop
    from noetl.local.embedded.home import Home

    out: Output = ctx.obj
    folder = Home(home or out.settings.home)
    try:
        if wipe:
            confirm(out, f"delete all data under {folder.path}?")
        stopped = stop(folder)
        if wipe and folder.path.exists():
            from noetl.local.embedded.up import wipe as delete

            delete(folder)
    except NoetlError as fault:
        raise failure_of(fault) from fault
    if out.is_structured:
        out.document({"home": str(folder.path), "stopped": stopped, "is_wiped": wipe})
    elif stopped:
        out.note(f"stopped {', '.join(stopped)}")
    else:
        out.note(f"no stack runs in {folder.path}")


COMMAND = Spec(
    run=down,
    outputs=("table", "json", "yaml"),
    examples=("noetl down", "noetl down --wipe --yes"),
    takes="nothing",
)
