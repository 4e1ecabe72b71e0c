"""Finds leases that ended: the command is lost, and is work again or has failed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from noetl.clock import rfc3339
from noetl.engine import events as ev
from noetl.server.fleet.reports import find_command
from noetl.server.ingest.handout import is_held
from noetl.server.ingest.posts import Post, Stamped
from noetl.server.signals import sleep_until
from noetl.store.errors import DatabaseGone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noetl.engine.state import State
    from noetl.server.ingest.handout import HandOut
    from noetl.server.plane import Plane
    from noetl.store.base import CommandRow

EVERY_S: Final = 1.0
IDLE_S: Final = 5.0


async def run(plane: Plane, outage_at: float | None = None) -> None:
    """Look every second while a worker holds anything, else rarely.

    Nothing expires within one lease after the database, or all servers, were away, or a commit
    hung: until then a worker could not beat or report. `outage_at` is when that was, on the
    monotonic clock.
    """
    clock, lease_s = plane.parts.clock, plane.parts.lease_s
    # What was held before this process began is known to nobody: look often until it has ended.
    began = clock.monotonic()
    outage_at = began if outage_at is None else outage_at
    while True:
        await asyncio.sleep(outage_at + lease_s - clock.monotonic())
        if plane.ingest.hangs_s > lease_s / 2:
            outage_at = clock.monotonic()
            continue
        try:
            await sweep(plane)
        except DatabaseGone:
            outage_at = clock.monotonic()
            continue
        if (
            not plane.parts.is_alone
            or plane.signals.held
            or clock.monotonic() < began + 2 * lease_s
        ):
            await asyncio.sleep(EVERY_S)
        else:
            plane.signals.leases.clear()
            await sleep_until(plane.signals.leases, IDLE_S)


async def sweep(plane: Plane) -> int:
    """Append `command.lost` for every lease that has ended; how many there were."""
    now = rfc3339(plane.parts.clock.now())
    rows = await plane.parts.store.commands.expired(now)
    if rows:
        lost: dict[str, str] = {}
        posts = [Post(row.execution_id, losing(row, plane.handout, lost)) for row in rows]
        await plane.ingest.submit(posts)
        for pool in lost.values():
            plane.metrics.lease_lost.inc(pool)
    return len(rows)


def losing(
    row: CommandRow, handout: HandOut, lost: dict[str, str]
) -> Callable[[State], Iterator[Stamped]]:
    """The loss of an attempt, if it is still the current one; it is noted with its pool."""

    def make(state: State) -> Iterator[Stamped]:
        command = find_command(state, row.command_id)
        if command is None or command.attempt != row.attempt:
            return
        if row.worker_id is None or not is_held(command, row.worker_id):
            return
        handout.remember(row.command_id, row.attempt + 1, row.checkpoint)
        lost[row.command_id] = row.pool or ""
        yield Stamped(
            ev.CommandLost(step=command.step, command_key=command.key, attempt=command.attempt),
            parent_event_id=command.id,
        )

    return make
