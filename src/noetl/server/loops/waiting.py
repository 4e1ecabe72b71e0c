"""Finds work of other servers for claims that wait here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from noetl.server.plane import Plane

EVERY_S: Final = 5.0


async def run(plane: Plane) -> None:
    """Look now and then, in case a hint was lost; a server that is alone knows its work."""
    if plane.parts.is_alone:
        await asyncio.Event().wait()
    while True:
        await asyncio.sleep(EVERY_S)
        plane.ingest.look()
