"""Who is next: turns within a lane, and a pace over all lanes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.clock import Clock

BURST_S: Final = 0.05
"""How much of a pace that was not used may be made up for."""


class Lanes:
    """Lets those of one lane pass one after another, in the order in which they asked."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    def ask(self, lane: str) -> Turn:
        """Stand behind all that have asked for this lane before."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        before = self._last.get(lane)
        self._last[lane] = mine
        return Turn(self, lane, before, mine)

    def end(self, lane: str, mine: asyncio.Future[None]) -> None:
        """Let the next one pass."""
        if not mine.done():
            mine.set_result(None)
        if self._last.get(lane) is mine:
            del self._last[lane]


class Turn:
    """A place in a lane."""

    def __init__(
        self,
        lanes: Lanes,
        lane: str,
        before: asyncio.Future[None] | None,
        mine: asyncio.Future[None],
    ) -> None:
        self._lanes = lanes
        self._lane = lane
        self._before = before
        self._mine = mine

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for the turn; the next one has it afterwards."""
        try:
            if self._before is not None:
                await asyncio.shield(self._before)
            yield
        except asyncio.CancelledError:
            if self._before is not None and not self._before.done():
                # Whoever gives up while he waits must not let others overtake the one before him.
                self._before.add_done_callback(lambda _: self._lanes.end(self._lane, self._mine))
                raise
            self._lanes.end(self._lane, self._mine)
            raise
        except BaseException:
            self._lanes.end(self._lane, self._mine)
            raise
        else:
            self._lanes.end(self._lane, self._mine)


class Pace:
    """So many a second, evenly."""

    def __init__(self, rate: float | None, clock: Clock) -> None:
        self.rate = rate
        self._clock = clock
        self._next = clock.monotonic()

    @property
    def is_free(self) -> bool:
        """Whether nobody has to wait."""
        return self.rate is None

    async def wait(self) -> None:
        """Wait until the next one may go."""
        if self.rate is None:
            return
        now = self._clock.monotonic()
        at = max(self._next, now - BURST_S)
        self._next = at + 1 / self.rate
        if at > now:
            await asyncio.sleep(at - now)
