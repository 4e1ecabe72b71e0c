"""Writes the audit of this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl.server.plane import Plane


async def run(plane: Plane) -> None:
    """Write what routes tell; a server that asks nobody who he is keeps no audit."""
    if plane.parts.is_open:
        await asyncio.Event().wait()
    await plane.audits.run()
