"""Starts a stack in a session of its own and hears how that went."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from noetl.errors import NoetlError
from noetl.local.embedded.home import Home
from noetl.settings import process_environment

if TYPE_CHECKING:
    from noetl.local.embedded.wish import Wish


class StartFailed(NoetlError):
    """A stack in the background that did not come up, in its own words."""

    code = "stack_failed"

    def __init__(self, told: dict[str, Any]) -> None:
        super().__init__(told["message"], hint=told["hint"], code=told["code"])
        self.lines: tuple[str, ...] = tuple(told["lines"])


def start(wish: Wish, *, is_reset: bool) -> dict[str, Any]:
    """Start a stack in a session of its own; its record when it is ready, and where to sign in."""
    named = {name: str(getattr(wish.settings, name).absolute()) for name in ("home", "config")}
    settings = asdict(wish.settings) | named
    flags = {name: getattr(wish, name) for name in ("is_insecure", "has_gateway", "has_pages")}
    asked = {"settings": settings, "pools": dict(wish.pools), "flags": flags}
    home = Home(wish.settings.home)
    home.make()
    opened = os.open(home.log("detached"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "noetl.local.embedded.detached"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=opened,
            env=process_environment(), start_new_session=True, cwd="/",
        )  # fmt: skip
    finally:
        os.close(opened)
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise RuntimeError("a process was started without its pipes")
    with stdin, stdout:
        stdin.write(json.dumps(asked | {"is_reset": is_reset}).encode())
        stdin.close()
        line = stdout.readline()
    if not line:
        said = home.log("detached").read_text(encoding="utf-8", errors="replace")
        raise StartFailed(
            {
                "message": "The stack ended before it said anything.",
                "hint": "",
                "code": "stack_failed",
                "lines": said.splitlines()[-20:],
            }
        )
    told: dict[str, Any] = json.loads(line)
    if "error" in told:
        process.wait()
        raise StartFailed(told["error"])
    # It is meant to outlive us: nobody waits for it.
    process.returncode = 0
    return told
