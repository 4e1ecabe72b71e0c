"""Forgets processes that were not heard of for long; what they held ends with its lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.edge.moments import from_now

if TYPE_CHECKING:
    from noetl.server.plane import Plane

EVERY_S: Final = 15.0
FORGET_S: Final = 3_600.0


async def sweep(plane: Plane) -> None:
    """Forget rows that were silent for an hour."""
    await plane.parts.store.runtimes.forget(from_now(plane.parts.clock, -FORGET_S))
