"""Keeps the store small: by the hour, on the one server that leads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from noetl.server.plane import Plane

EVERY_S: Final = 3_600.0


async def sweep(plane: Plane) -> None:
    """Make the months to come, and let go of what is old."""
    await plane.retention.turn()
