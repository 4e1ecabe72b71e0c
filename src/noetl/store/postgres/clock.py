"""The time of the database, told without asking it: servers that share one agree on time.

What the wall clock of this machine says plays no part. The time of the database is known as an
interval: an answer that came after `t1` to a question of `t0` tells that the database's time lies
between `answer - t0` and `answer - t1` ahead of the monotonic clock here. Intervals are cut with
each other, and widen as the two clocks drift apart.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from noetl.clock import SystemClock
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from noetl.clock import Clock

EVERY_S: Final = 30.0
_SAMPLES: Final = 5
_DRIFT: Final = 200e-6
"""Seconds that two clocks may drift apart in a second; quartz is well below."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ASK: Final = "select extract(epoch from clock_timestamp())::float8"


class Asked(Protocol):
    """A database, or its background pool."""

    async def fetchval(self, sql: str, /, *args: object) -> object:
        """The one value of an answer."""


@dataclass(frozen=True, slots=True)
class Interval:
    """How far the database's time is ahead of the monotonic clock, as known at a moment."""

    low: float
    high: float
    at: float

    @property
    def middle(self) -> float:
        """The best guess."""
        return (self.low + self.high) / 2

    def cut(self, newer: Interval) -> Interval:
        """What both allow; the newer one alone when the database's clock was set."""
        slack = _DRIFT * (newer.at - self.at)
        low, high = max(self.low - slack, newer.low), min(self.high + slack, newer.high)
        return Interval(low, high, newer.at) if low <= high else newer


class DatabaseClock:
    """Tells the time of a database; it never goes back, and goes forward at once."""

    def __init__(self, database: Asked, known: Interval, clock: Clock) -> None:
        self._database = database
        self._known = known
        self._clock = clock
        self._ahead = known.middle
        self._last = _EPOCH

    @classmethod
    async def open(cls, database: Asked, clock: Clock | None = None) -> DatabaseClock:
        """Ask a few times, and begin."""
        own = clock or SystemClock()
        return cls(database, await _measured(database, own), own)

    def now(self) -> datetime:
        """The time of day of the database, in UTC."""
        now = _EPOCH + timedelta(seconds=self._ahead + self._clock.monotonic())
        if now < self._last:
            return self._last
        self._last = now
        return now

    def monotonic(self) -> float:
        """Seconds that only grow."""
        return self._clock.monotonic()

    @property
    def uncertainty_s(self) -> float:
        """By how much this clock may be wrong, at the time of its last correction."""
        return (self._known.high - self._known.low) / 2

    async def correct(self) -> None:
        """Ask again, and follow what the database says."""
        self._known = self._known.cut(await _measured(self._database, self._clock))
        self._ahead = self._known.middle

    async def run(self, every_s: float = EVERY_S) -> None:
        """Correct this clock for ever; while the database is away it goes on as it is."""
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.correct()
            except NoetlError as error:
                if not error.retryable:
                    raise


async def _measured(database: Asked, clock: Clock) -> Interval:
    known = await _asked(database, clock)
    for _ in range(_SAMPLES - 1):
        known = known.cut(await _asked(database, clock))
    return known


async def _asked(database: Asked, clock: Clock) -> Interval:
    before = clock.monotonic()
    answer = await database.fetchval(_ASK)
    after = clock.monotonic()
    if not isinstance(answer, float):
        raise TypeError(f"the database told {answer!r} for its time")
    return Interval(answer - after, answer - before, after)
