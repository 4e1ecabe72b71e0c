"""How often something may be done: buckets of tokens, of this replica alone."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from noetl.edge.errors import RateLimited

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.clock import Clock
    from noetl.gateway.metrics import GatewayMetrics

MOST_KEYS: Final = 10_000
"""Buckets of one scope that are remembered; who comes after takes the place of the oldest."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many per second, and so many at once."""

    per_s: float
    burst: float


SCOPES: Final[Mapping[str, Rate]] = {
    "login_account": Rate(5 / 60, 5),
    "login_address": Rate(20 / 60, 20),
    "execute": Rate(20, 40),
    "call": Rate(100, 200),
    "callback": Rate(50, 50),
    "callback_address": Rate(50, 100),
    "connect": Rate(10 / 60, 10),
    "message": Rate(50, 100),
    "ingress": Rate(50, 100),
}
"""A13.3: sign-ins by account and by address, runs by user, other calls by session, callbacks and
progress by request, streams by client, messages by socket; callbacks of strangers by address; B2.3:
deliveries by listener and address."""


class Bucket:
    """Tokens that come back by themselves."""

    __slots__ = ("_at", "_left", "_rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self._rate = rate
        self._left = rate.burst
        self._at = now

    def take(self, now: float, cost: float = 1.0) -> float:
        """Take tokens; 0 when there were enough, else the seconds until there are."""
        rate, self._left, self._at = self._rate, self.left(now), now
        if self._left >= cost:
            self._left -= cost
            return 0.0
        return (cost - self._left) / rate.per_s

    def left(self, now: float) -> float:
        """How many tokens there are."""
        rate = self._rate
        return min(rate.burst, self._left + max(0.0, now - self._at) * rate.per_s)


class Limits:
    """The buckets of every scope; their number is bounded, whoever comes."""

    def __init__(
        self,
        clock: Clock,
        metrics: GatewayMetrics,
        scopes: Mapping[str, Rate] = SCOPES,
        most_keys: int = MOST_KEYS,
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._scopes = scopes
        self._most = most_keys
        self._buckets: dict[str, OrderedDict[str, Bucket]] = {
            scope: OrderedDict() for scope in scopes
        }

    def take(self, scope: str, key: str, cost: float = 1.0) -> None:
        """Take from the bucket of a key; `RateLimited` when it is empty."""
        wait_s = self.wait_s(scope, key, cost)
        if wait_s:
            raise RateLimited(
                "too many requests", hint="slow down", retry_after=max(1.0, ceil(wait_s))
            )

    def wait_s(self, scope: str, key: str, cost: float = 1.0) -> float:
        """Take from the bucket of a key; 0, or the seconds until there is enough in it."""
        wait_s = self._bucket(scope, key).take(self._clock.monotonic(), cost)
        if wait_s:
            self._metrics.rate_limited.inc(scope)
        return wait_s

    def is_empty(self, scope: str, key: str) -> bool:
        """Whether nothing could be taken from the bucket of a key now; nothing is."""
        found = self._buckets[scope].get(key)
        return found is not None and found.left(self._clock.monotonic()) < 1.0

    def bucket(self, scope: str) -> Bucket:
        """A bucket of one's own, for whoever has a life of its own, as a socket has."""
        return Bucket(self._scopes[scope], self._clock.monotonic())

    def _bucket(self, scope: str, key: str) -> Bucket:
        known = self._buckets[scope]
        found = known.get(key)
        if found is None:
            if len(known) >= self._most:
                known.popitem(last=False)
            found = known[key] = Bucket(self._scopes[scope], self._clock.monotonic())
        else:
            known.move_to_end(key)
        return found
