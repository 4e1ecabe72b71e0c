"""Messages that went back to their source: those behind them in their lanes wait for them.

A source may bring back the later of two messages first. Only where one process listens; what does
not come back in time is waited for no longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from noetl.clock import Clock

MOST_LANES: Final = 10_000
MOST_IN_A_LANE: Final = 10_000
GRACE_S: Final = 30.0
"""How late a message may come back."""


class Held:
    """Who is to come back first, lane by lane."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lanes: dict[str, dict[str, float]] = {}

    def wait_ms(self, lane: str, message_id: str) -> int | None:
        """How long until the one before it should be back; none when it may go."""
        waiting = self._lanes.get(lane)
        now = self._clock.monotonic()
        while waiting:
            first, due = next(iter(waiting.items()))
            if first == message_id:
                return None
            if now <= due + GRACE_S:
                return max(0, int((due - now) * 1000))
            self.came(lane, first)
            waiting = self._lanes.get(lane)
        return None

    def went(self, lane: str, message_id: str, delay_ms: int) -> None:
        """A message went back, for a while; it keeps its place."""
        if lane not in self._lanes and len(self._lanes) >= MOST_LANES:
            return
        waiting = self._lanes.setdefault(lane, {})
        if message_id in waiting or len(waiting) < MOST_IN_A_LANE:
            waiting[message_id] = self._clock.monotonic() + delay_ms / 1000

    def came(self, lane: str, message_id: str) -> None:
        """A message was settled for good."""
        waiting = self._lanes.get(lane)
        if waiting is not None:
            waiting.pop(message_id, None)
            if not waiting:
                del self._lanes[lane]
