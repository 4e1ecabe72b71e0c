"""`noetl logs`: what the parts of the embedded stack said."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from noetl.cli.command import Spec
from noetl.cli.failures import CommandFailed
from noetl.cli.text import nearest

if TYPE_CHECKING:
    from noetl.cli.output import Output


def logs(
    ctx: typer.Context,
    parts: Annotated[
        list[str] | None,
        typer.Argument(metavar="PART", help="server, worker-shared, postgres ..; all of them."),
    ] = None,
    follow: Annotated[  # noqa: FBT002 - typer reads flags from defaults
        bool, typer.Option("-f", "--follow", help="Go on with what they say from now on.")
    ] = False,
    tail: Annotated[
        int, typer.Option("--tail", metavar="N", min=0, help="Last lines of each part (100).")
    ] = 100,
    home: Annotated[
        Path | None, typer.Option("--home", metavar="DIR", help="Folder of the stack (.noetl).")
    ] = None,
) -> None:
    """Show the logs of the parts of the embedded stack, also of one that has ended."""
    from noetl.local.embedded.home import Home
    from noetl.local.embedded.logs import logged
    from noetl.local.embedded.logs import tail as last

    out: Output = ctx.obj
    folder = Home(home or out.settings.home)
    known = logged(folder)
    wanted = parts or known
    if not known:
        out.note(f"nothing was logged in {folder.path}")
        return
    for part in wanted:
        if part not in known:
            hint = nearest(part, tuple(known))
            raise CommandFailed("not_found", f"there is no log of `{part}`", hint=hint)
    for part, line in last(folder, wanted, tail):
        _write(out, part, line)
    if follow:
        import asyncio

        asyncio.run(_follow(out, folder, wanted))


async def _follow(out: "Output", folder: Any, parts: list[str]) -> None:  # noqa: ANN401 - imported when it is needed
    from noetl.local.embedded.logs import follow

    async for part, line in follow(folder, parts):
        _write(out, part, line)


def _write(out: "Output", part: str, line: str) -> None:
    from noetl.cli.text import json_line, visible

    if out.format == "jsonl":
        out.write(json_line({"part": part, "line": line}))
    else:
        out.line(f"{out.styled(f'[{part}]', 'cyan')} {visible(line)}")


COMMAND = Spec(
    run=logs,
    outputs=("table", "jsonl"),
    examples=("noetl logs", "noetl logs server worker-shared --tail 20"),
    takes="nothing",
)
