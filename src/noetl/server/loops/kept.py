"""Keeps a loop alive: what is worth another try is tried again, anything else is its death."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, TypeAlias

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.server.plane import Plane

Loop: TypeAlias = "Callable[[Plane], Awaitable[None]]"
RETRY_S: Final = 1.0
TOLD_S: Final = 60.0
"""How often it is told that a loop fails again and again."""
_log: Final = logging.getLogger(__name__)


async def kept_up(loop: Loop, plane: Plane) -> None:
    """Run a loop for ever."""
    clock, told_at = plane.parts.clock, -TOLD_S
    while True:
        try:
            await loop(plane)
        except NoetlError as fault:
            if not fault.retryable:
                raise
            if clock.monotonic() - told_at >= TOLD_S:
                told_at = clock.monotonic()
                _log.warning("a loop failed and goes on", extra=_about(fault))
            await asyncio.sleep(RETRY_S)


def _about(fault: NoetlError) -> dict[str, str]:
    task = asyncio.current_task()
    return {"loop": "" if task is None else task.get_name(), "reason": fault.message}


ALONE_S: Final = 30.0
"""How often a server looks that is alone: nobody else leaves anything for it."""


def every(seconds: float, look: Callable[[Plane], Awaitable[object]]) -> Loop:
    """A loop that looks now, and then again and again."""

    async def run(plane: Plane) -> None:
        rest_s = max(seconds, ALONE_S) if plane.parts.is_alone else seconds
        while True:
            await look(plane)
            await asyncio.sleep(rest_s)

    return run
