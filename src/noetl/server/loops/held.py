"""Gives callbacks of containers that came too early to the commands that have parked since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.server.signals import sleep_until

if TYPE_CHECKING:
    from noetl.server.plane import Plane

LOOK_S: Final = 2.0
MOST_SLEEP_S: Final = 30.0


async def run(plane: Plane) -> None:
    """Look when a command of such a run has parked here; those of other servers now and then."""
    rest = MOST_SLEEP_S if plane.parts.is_alone else LOOK_S
    while True:
        await plane.containers.again()
        await sleep_until(plane.containers.parked, rest)
