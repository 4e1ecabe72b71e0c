"""Drains subscriptions by the clock: sleeps until the next tick, then fires what is due."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from noetl.clock import rfc3339
from noetl.edge.moments import seconds_until
from noetl.server.signals import sleep_until
from noetl.server.subscriptions.ticking import SCOPE

if TYPE_CHECKING:
    from noetl.server.plane import Plane
    from noetl.store.subscriptions import SubscriptionRow

LOOK_S: Final = 1.0
MOST_SLEEP_S: Final = 30.0
_STARTED: Final = ("started", "duplicate", "error")


async def run(plane: Plane) -> None:
    """Sleep until the next one is due, or until one is activated; then fire what is due."""
    due, clock = plane.parts.store.ticks, plane.parts.clock
    most = MOST_SLEEP_S if plane.parts.is_alone else LOOK_S
    while True:
        while rows := await due.due(rfc3339(clock.now())):
            await fire_all(plane, rows)
        next_at = await due.next_due()
        rest = most if next_at is None else min(most, seconds_until(clock, next_at))
        await sleep_until(plane.ticking.changed, rest)


async def fire_all(plane: Plane, rows: list[SubscriptionRow]) -> None:
    """Fire many at once; what went wrong with one is raised when all have been tried."""
    ended = await asyncio.gather(*(plane.ticking.fire(row) for row in rows), return_exceptions=True)
    for outcome in ended:
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome in _STARTED:
            plane.metrics.execute_outcomes.inc(SCOPE, outcome)
