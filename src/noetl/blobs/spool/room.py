"""How much may wait: who comes in, and what happens when there is no room."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from noetl.blobs.spool.base import SpoolFull
from noetl.blobs.spool.rules import ALERT_ONLY, DROP_TO_DLQ

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from noetl.blobs.spool.dead import Tell
    from noetl.blobs.spool.order import Entry, Order
    from noetl.blobs.spool.rules import Rules
    from noetl.clock import Clock

FULL: Final = "subscription.spool.full"
ALERT: Final = "subscription.spool.alert"
ALERT_S: Final = 60.0


class Room:
    """The bytes that may wait; those on their way to the store count."""

    def __init__(self, order: Order, rules: Rules, clock: Clock, tell: Tell) -> None:
        self._order = order
        self._rules = rules
        self._clock = clock
        self._tell = tell
        self._reserved = 0
        self._is_full = False
        self._one_by_one = asyncio.Lock()
        self._alerted_at: float | None = None

    @asynccontextmanager
    async def admit(
        self, entry: Entry, evict: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[None]:
        """Keep room for a message while it is stored; `SpoolFull` when there is none.

        `evict` makes a dead letter of the oldest; false when it cannot.
        """
        async with self._one_by_one:
            while not self._fits(entry.size):
                if self._rules.on_full == ALERT_ONLY:
                    self._alert(entry.downstream)
                    break
                if self._rules.on_full != DROP_TO_DLQ or not await evict():
                    raise self._refused(entry.downstream)
            self._is_full = False
            self._reserved += entry.size
        try:
            yield
        finally:
            self._reserved -= entry.size

    def _fits(self, size: int) -> bool:
        return self._order.size_bytes + self._reserved + size <= self._rules.max_bytes

    def _refused(self, downstream: str) -> SpoolFull:
        if not self._is_full:
            self._is_full = True
            self._tell(FULL, self._sizes(downstream))
        return SpoolFull(
            f"the spool is full: {self._rules.max_bytes} bytes",
            hint="Wait for its drain, or raise `spool.retention.max_bytes`.",
        )

    def _alert(self, downstream: str) -> None:
        now = self._clock.monotonic()
        if self._alerted_at is None or now - self._alerted_at >= ALERT_S:
            self._alerted_at = now
            self._tell(ALERT, self._sizes(downstream))

    def _sizes(self, downstream: str) -> dict[str, Any]:
        return {
            "downstream": downstream,
            "spool_bytes": self._order.size_bytes,
            "max_bytes": self._rules.max_bytes,
        }
