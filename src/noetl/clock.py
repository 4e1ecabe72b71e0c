"""The only reader of time: what the wall says, and how long something took.

Waiting is the event loop's affair (`asyncio.sleep`, `asyncio.timeout`); a loop with virtual time
makes waiting free, and its clock is told by `LoopClock`.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """The time of day, in UTC."""

    def monotonic(self) -> float:
        """Seconds that only grow."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that only grow."""
        return time.monotonic()


class LoopClock:
    """The time of an event loop, counted from a moment: virtual when the loop's time is."""

    def __init__(self, loop: AbstractEventLoop, start: datetime) -> None:
        self._loop = loop
        self._start = start
        self._zero = loop.time()

    def now(self) -> datetime:
        """The moment plus what has passed on the loop."""
        return self._start + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """Seconds of the loop since this clock was made."""
        return self._loop.time() - self._zero


def rfc3339(moment: datetime) -> str:
    """A time as events and answers show it: UTC, microseconds, `Z`."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="microseconds")[:-6] + "Z"
