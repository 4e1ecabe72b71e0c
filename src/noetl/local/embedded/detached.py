"""A stack in the background: `python -m noetl.local.embedded.detached` with its wish on stdin.

Its first and only line on stdout tells whoever started it how the start went.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noetl.errors import NoetlError
from noetl.local.embedded.supervisor import StackFailed
from noetl.local.embedded.up import up
from noetl.local.embedded.wish import Wish
from noetl.settings import StackSettings

if TYPE_CHECKING:
    from noetl.local.embedded.record import Stack


def main() -> int:
    """Run the stack that is described on stdin."""
    asked = json.loads(sys.stdin.buffer.read())
    settings = asked["settings"]
    settings |= {name: Path(settings[name]) for name in ("home", "config")}
    wish = Wish(settings=StackSettings(**settings), pools=asked["pools"], **asked["flags"])
    try:
        asyncio.run(up(wish, _silent, _tell_ready, is_reset=asked["is_reset"]))
    except NoetlError as fault:
        lines = fault.lines if isinstance(fault, StackFailed) else ()
        _tell(
            {
                "error": {
                    "code": fault.code,
                    "message": fault.message,
                    "hint": fault.hint,
                    "lines": list(lines),
                }
            }
        )
        return 1
    return 0


def _silent(part: str, line: str) -> None:
    """The files hold every line; there is no terminal."""


def _tell_ready(stack: Stack, login_url: str) -> None:
    _tell(stack.as_json() | {"login_url": login_url})


def _tell(value: dict[str, Any]) -> None:
    """Say it once; whoever started us may be gone by now."""
    if sys.stdout.closed:
        return
    try:
        sys.stdout.write(json.dumps(value) + "\n")
        sys.stdout.close()
    except BrokenPipeError:
        os.close(os.open(os.devnull, os.O_WRONLY))


if __name__ == "__main__":
    sys.exit(main())
