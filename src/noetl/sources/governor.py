"""How many messages may be fetched now: a bucket of tokens, and a bound on what is under way."""

from __future__ import annotations

import math
from typing import Final

LEAST_WAIT_S: Final = 0.02
GATHERED_S: Final = 0.05
"""Of so long a time messages are fetched together: one by one they cost many times as much."""
TOLD_EVERY_S: Final = 60.0
"""How often at most it is told that fetching has stopped."""
REASONS: Final = ("dispatch_rate", "max_in_flight")
_ROUNDING: Final = 1e-9


class Governor:
    """Bounds messages a second and messages at once; `now` is of a clock that only grows."""

    def __init__(
        self, rate: float | None, max_in_flight: int, now: float, burst: float | None = None
    ) -> None:
        """`burst` is how many may come at once after a while of none; a second's worth if unset."""
        self.rate = rate
        self.max_in_flight = max_in_flight
        self.in_flight = 0
        """Messages fetched and not yet acked, nacked or spooled."""
        self._capacity = math.inf if rate is None else max(1.0, rate if burst is None else burst)
        self._tokens = self._capacity
        self._filled_at = now
        self._was_limited = False
        self._told_at: float | None = None

    def plan_fetch(self, base: int, now: float) -> int:
        """How many of `base` messages may be fetched; with none, wait."""
        wanted, tokens = self._wanted(base), self._whole_tokens(now)
        return max(0, min(wanted, tokens)) if tokens >= self._least(wanted) else 0

    def fetched(self, count: int, now: float) -> None:
        """So many have come."""
        self._fill(now)
        self._tokens -= count
        self.in_flight += count

    def settled(self, count: int) -> None:
        """So many were acked, nacked or spooled."""
        self.in_flight = max(0, self.in_flight - count)

    def wait_s(self, now: float, base: int = 1) -> float:
        """How long to wait until some of `base` may be fetched; nothing when that is now."""
        if self.plan_fetch(base, now):
            return 0.0
        missing = self._least(self._wanted(base)) - self._tokens
        if self.rate is None or missing <= _ROUNDING:
            return LEAST_WAIT_S
        return max(LEAST_WAIT_S, missing / self.rate)

    def edge(self, now: float) -> str | None:
        """Why fetching has stopped, told when it stops and at most once a minute."""
        reason = self._reason(now)
        began, self._was_limited = reason is not None and not self._was_limited, reason is not None
        if not began or (self._told_at is not None and now - self._told_at < TOLD_EVERY_S):
            return None
        self._told_at = now
        return reason

    def _wanted(self, base: int) -> int:
        return min(base, self.max_in_flight - self.in_flight)

    def _least(self, wanted: int) -> int:
        """How many make a fetch worth while, where the rate allows many."""
        return 1 if self.rate is None else max(1, min(wanted, int(self.rate * GATHERED_S)))

    def _reason(self, now: float) -> str | None:
        if self.in_flight >= self.max_in_flight:
            return "max_in_flight"
        return "dispatch_rate" if self._whole_tokens(now) < 1 else None

    def _whole_tokens(self, now: float) -> int:
        self._fill(now)
        return 2**31 if math.isinf(self._tokens) else math.floor(self._tokens + _ROUNDING)

    def _fill(self, now: float) -> None:
        if self.rate is not None and now > self._filled_at:
            self._tokens = min(self._capacity, self._tokens + (now - self._filled_at) * self.rate)
        self._filled_at = max(self._filled_at, now)
