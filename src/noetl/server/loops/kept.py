"""Keeps a loop alive: what is worth another try is tried again, anything else is its death."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.server.plane import Plane

Loop: TypeAlias = "Callable[[Plane], Awaitable[None]]"
RETRY_S: Final = 1.0


async def kept_up(loop: Loop, plane: Plane) -> None:
    """Run a loop for ever."""
    while True:
        try:
            await loop(plane)
        except NoetlError as fault:
            if not fault.retryable:
                raise
            await asyncio.sleep(RETRY_S)


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
