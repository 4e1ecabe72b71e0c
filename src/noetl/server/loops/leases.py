"""Finds leases that ended: the command is lost, and is work again or has failed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from noetl.clock import rfc3339
from noetl.engine import events as ev
from noetl.server.handout import is_held
from noetl.server.posts import Post, Stamped
from noetl.server.reports import find_command
from noetl.server.signals import sleep_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noetl.engine.state import State
    from noetl.server.handout import HandOut
    from noetl.server.plane import Plane
    from noetl.store.base import CommandRow

EVERY_S: Final = 1.0
IDLE_S: Final = 5.0


async def run(plane: Plane) -> None:
    """Look every second while a worker holds anything, else rarely."""
    clock = plane.parts.clock
    # What was held before this process began is known to nobody: look often until it has ended.
    began = clock.monotonic()
    while True:
        await sweep(plane)
        if plane.signals.held or clock.monotonic() < began + 2 * plane.parts.lease_s:
            await asyncio.sleep(EVERY_S)
        else:
            plane.signals.leases.clear()
            await sleep_until(plane.signals.leases, IDLE_S)


async def sweep(plane: Plane) -> int:
    """Append `command.lost` for every lease that has ended; how many there were."""
    now = rfc3339(plane.parts.clock.now())
    rows = await plane.parts.store.commands.expired(now)
    if rows:
        posts = [Post(row.execution_id, losing(row, plane.handout)) for row in rows]
        await plane.ingest.submit(posts)
    return len(rows)


def losing(row: CommandRow, handout: HandOut) -> Callable[[State], Iterator[Stamped]]:
    """The loss of an attempt, if it is still the current one."""

    def make(state: State) -> Iterator[Stamped]:
        command = find_command(state, row.command_id)
        if command is None or command.attempt != row.attempt:
            return
        if row.worker_id is None or not is_held(command, row.worker_id):
            return
        handout.remember(row.command_id, row.attempt + 1, row.checkpoint)
        yield Stamped(
            ev.CommandLost(step=command.step, command_key=command.key, attempt=command.attempt),
            parent_event_id=command.id,
        )

    return make
