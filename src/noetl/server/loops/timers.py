"""Fires timers: never early, and as soon as their time has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.clock import rfc3339
from noetl.engine import events as ev
from noetl.server.moments import seconds_until
from noetl.server.posts import Post, Stamped
from noetl.server.signals import sleep_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from noetl.engine.state import State
    from noetl.server.plane import Plane
    from noetl.store.base import TimerRow

MOST_SLEEP_S: Final = 30.0
_PAUSE_S: Final = 1.0
_LEAST_SLEEP_S: Final = 0.001


async def run(plane: Plane) -> None:
    """Sleep until the next timer is due, or until one is set; then fire what is due."""
    timers, clock = plane.parts.store.timers, plane.parts.clock
    while True:
        rows = await timers.due(rfc3339(clock.now()))
        fired = await fire(plane, rows) if rows else 0
        if fired:
            continue
        if rows:  # of runs that cannot take them now
            await sleep_until(plane.signals.timers, _PAUSE_S)
            continue
        due_at = await timers.next_due()
        rest = MOST_SLEEP_S if due_at is None else seconds_until(clock, due_at)
        await sleep_until(plane.signals.timers, max(_LEAST_SLEEP_S, min(rest, MOST_SLEEP_S)))


async def fire(plane: Plane, rows: list[TimerRow]) -> int:
    """Append `timer.fired` for timers that are still set; how many were."""
    fired: list[str] = []
    now = rfc3339(plane.parts.clock.now())
    posts = [Post(row.execution_id, _firing(row, now, fired)) for row in rows]
    await plane.ingest.submit(posts)
    return len(fired)


def _firing(row: TimerRow, now: str, fired: list[str]) -> Callable[[State], Iterator[Stamped]]:
    def make(state: State) -> Iterator[Stamped]:
        timer = state.timers.get(row.timer_key)
        if timer is None or state.is_paused or timer.due_at > now:
            return
        fired.append(row.timer_key)
        yield Stamped(ev.TimerFired(timer_key=row.timer_key))

    return make
