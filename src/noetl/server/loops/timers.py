"""Fires timers: never early, and as soon as their time has come."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from noetl.clock import rfc3339
from noetl.edge.moments import seconds_until
from noetl.engine import events as ev
from noetl.server.ingest.posts import Post, Stamped
from noetl.server.runs.admission import START_TIMER
from noetl.server.signals import sleep_until
from noetl.telemetry.failpoint import armed, failpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noetl.engine.state import State
    from noetl.server.plane import Plane
    from noetl.store.base import TimerRow

LOOK_S: Final = 1.0
MOST_SLEEP_S: Final = 30.0
_PAUSE_S: Final = 1.0


async def run(plane: Plane) -> None:
    """Sleep until the next timer is due, or until one is set; then fire what is due.

    Timers that other servers set are found by looking every second.
    """
    timers, clock = plane.parts.store.timers, plane.parts.clock
    most = MOST_SLEEP_S if plane.parts.is_alone else LOOK_S
    while True:
        due_at = await timers.next_due()
        rest = most if due_at is None else min(most, seconds_until(clock, due_at))
        if rest <= 0:
            rows = await timers.due(rfc3339(clock.now()))
            if await fire(plane, rows):
                continue
            rest = _PAUSE_S  # only of runs that cannot take them now
        await sleep_until(plane.signals.timers, rest)


async def fire(plane: Plane, rows: list[TimerRow]) -> int:
    """Append `timer.fired` for timers that are still set; how many were."""
    fired: dict[tuple[str, str], TimerRow] = {}
    clock, metrics = plane.parts.clock, plane.metrics
    now = rfc3339(clock.now())
    starts = [row for row in rows if row.timer_key == START_TIMER]
    posts = [
        Post(row.execution_id, _firing(row, now, fired))
        for row in rows
        if row.timer_key != START_TIMER
    ]
    metrics.timers_due.set(len(rows))
    if armed and rows:
        await failpoint("server.timer")
    if posts:
        await plane.ingest.submit(posts)
    await asyncio.gather(*(_begin(plane, row, fired) for row in starts))
    for row in fired.values():
        metrics.timers_fired.inc(row.kind)
        metrics.timer_lag.observe(max(0.0, -seconds_until(clock, row.due_at)))
    metrics.timers_due.set(len(rows) - len(fired))  # what is due and does not fire
    return len(fired)


async def _begin(plane: Plane, row: TimerRow, fired: dict[tuple[str, str], TimerRow]) -> None:
    if await plane.admissions.begin(row.execution_id):
        fired[row.execution_id, row.timer_key] = row


def _firing(
    row: TimerRow, now: str, fired: dict[tuple[str, str], TimerRow]
) -> Callable[[State], Iterator[Stamped]]:
    def make(state: State) -> Iterator[Stamped]:
        timer = state.timers.get(row.timer_key)
        if timer is None or state.is_paused or timer.due_at > now:
            return
        fired[row.execution_id, row.timer_key] = row
        yield Stamped(ev.TimerFired(timer_key=row.timer_key))

    return make
