"""Tells followers of lists what has changed, while there are any."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl.server.plane import Plane


async def run(plane: Plane) -> None:
    """Work while anybody follows."""
    await plane.feed.run()
