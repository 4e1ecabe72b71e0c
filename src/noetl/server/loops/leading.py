"""Loops that one server of a cluster runs: the one that leads.

The role is lost with the connection that holds it. Then the loops stop, and it is waited for again;
another server may lead meanwhile. For a moment two may believe that they lead: everything these
loops do is decided by a commit, or may happen twice.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from noetl.server.loops import (
    deliver,
    hints,
    leases,
    letters,
    publish,
    publisher,
    runtimes,
    schedules,
    secrets,
    stalls,
    subscriptions,
    timers,
    upkeep,
)
from noetl.server.loops.kept import every, kept_up

if TYPE_CHECKING:
    from noetl.server.loops.kept import Loop
    from noetl.server.plane import Plane

ROLE: Final = "loops"
REPEAT_S: Final = 2.0


async def _repeat(plane: Plane) -> None:
    plane.metrics.sweeper_republished.inc(by=await hints.repeat(plane))


_LED: Final[dict[str, Loop]] = {
    "timers": timers.run,
    "schedules": schedules.run,
    "subscriptions": subscriptions.run,
    "dead letters": letters.run,
    "stalls": stalls.run,
    "repeated hints": every(REPEAT_S, _repeat),
    "left deliveries": every(deliver.EVERY_S, deliver.sweep),
    "left publications": every(publish.EVERY_S, publisher.sweep),
    "runtimes": every(runtimes.EVERY_S, runtimes.sweep),
    "renewed secrets": every(secrets.EVERY_S, secrets.renew),
    "upkeep": every(upkeep.EVERY_S, upkeep.sweep),
}


async def run(plane: Plane) -> None:
    """Lead whenever nobody else does."""
    # This process has begun, or its connection was lost: workers may have been cut off until now.
    outage_at = plane.parts.clock.monotonic()
    if plane.parts.is_alone:  # what a process before this one has left is nobody else's
        await deliver.sweep(plane, 0.0)
        outage_at -= plane.parts.lease_s  # and its workers are gone with it
    while True:
        async with plane.parts.store.roles.lead(ROLE) as lost:
            await _lead(plane, lost, outage_at)
        outage_at = plane.parts.clock.monotonic()


async def _lead(plane: Plane, lost: asyncio.Event, outage_at: float) -> None:
    """Run the loops until the role is lost."""
    led: dict[str, Loop] = {**_LED, "leases": partial(leases.run, outage_at=outage_at)}
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(kept_up(loop, plane), name=f"leader: {name}")
            for name, loop in led.items()
        ]
        await lost.wait()
        for task in tasks:
            task.cancel()
