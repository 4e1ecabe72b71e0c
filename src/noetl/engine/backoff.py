"""How long to wait before the next try: replayable, because its jitter is derived from ids."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import xxhash

from noetl.dsl.template import render
from noetl.engine.config import Unrendered, duration, named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.tasks.task import Action

ATTEMPTS = 3
MOST_ATTEMPTS = 100
DELAY_S = 1.0
MAX_DELAY_S = 300.0
JITTER = 0.1
_HASHES = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How often and how patiently to try; without `delay_s` the way of growing decides it."""

    attempts: int = ATTEMPTS
    growth: str = "none"
    delay_s: float | None = None
    max_delay_s: float = MAX_DELAY_S
    jitter: float = JITTER

    def delay_ms(self, tries: int, *, seed: str, least_s: float = 0.0) -> int:
        """The wait after so many tries; what the other side asked for is never undercut."""
        first = self.delay_s
        if first is None:
            first = 0.0 if self.growth == "none" else DELAY_S
        wait_s = first * _factor(self.growth, tries)
        share = xxhash.xxh64_intdigest(f"{seed}/{tries}".encode()) / _HASHES
        wait_s *= 1 + self.jitter * (2 * share - 1)
        wait_s = max(min(wait_s, self.max_delay_s), least_s)
        return math.ceil(round(wait_s * 1000, 6))


def _factor(growth: str, tries: int) -> float:
    match growth:
        case "linear":
            return tries
        case "exponential":
            return 2.0 ** (tries - 1)
        case _:
            return 1


def backoff_of(action: Action, place: str, scope: Mapping[str, Any]) -> Backoff:
    """The terms of a `retry` as its author wrote them, templates rendered."""
    delay = _seconds(action.delay, f"{place}.delay", scope)
    longest = _seconds(action.max_delay, f"{place}.max_delay", scope)
    return Backoff(
        attempts=_attempts(action.attempts, f"{place}.attempts", scope),
        growth=action.backoff or "none",
        delay_s=delay,
        max_delay_s=MAX_DELAY_S if longest is None else longest,
        jitter=JITTER if action.jitter is None else action.jitter,
    )


def _seconds(written: object, place: str, scope: Mapping[str, Any]) -> float | None:
    with named(place):
        value = render(written, scope)
    return None if value is None else duration(value, place)


def _attempts(written: object, place: str, scope: Mapping[str, Any]) -> int:
    with named(place):
        value = render(written, scope)
    if value is None:
        return ATTEMPTS
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_ATTEMPTS:
        return value
    raise Unrendered(f"`{place}`: `{value}` is not a whole number of 1..{MOST_ATTEMPTS}")
