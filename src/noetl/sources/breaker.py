"""Whether a downstream is there: a circuit that opens after failures and asks again by itself.

Pure: the time is passed in, as milliseconds of the wall clock, so that a state means the same after
a restart. No state can stick: a clock that was set back and a probe that nobody has answered each
come to an end.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final, Literal

PROBE_LASTS_MS: Final = 60_000
"""How long the outcome of a probe may take; then the probe has failed."""
PHASES: Final = ("closed", "half_open", "open")
"""In the order of their numbers in metrics."""

Phase = Literal["closed", "half_open", "open"]
Word = Literal["closed", "hold", "probe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """When a circuit opens, and when it asks again."""

    trip_after: int = 5
    probe_after_ms: int = 30_000
    probe_interval_ms: int = 5_000
    """How often an active probe asks while the circuit is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """The circuit of one downstream."""

    phase: Phase = "closed"
    consecutive_failures: int = 0
    opened_at_ms: int = 0
    """When the outage began; a probe that fails does not change it."""
    last_transition_ms: int = 0
    """When the phase began."""
    trips: int = 0
    """How often it has opened."""

    def as_json(self) -> dict[str, Any]:
        """As it is stored."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: object) -> Breaker:
        """The state that was stored; one that nobody can read is a closed circuit."""
        if not isinstance(stored, dict) or stored.get("phase") not in PHASES:
            return cls()
        numbers = {
            name: value
            for name, value in stored.items()
            if name in _NUMBERS and isinstance(value, int) and not isinstance(value, bool)
        }
        return cls(phase=stored["phase"], **numbers)


_NUMBERS: Final = frozenset(field.name for field in dataclasses.fields(Breaker)) - {"phase"}


def failed(breaker: Breaker, now_ms: int, rules: Rules) -> Breaker:
    """The state after a failure."""
    failures = breaker.consecutive_failures + 1
    counted = dataclasses.replace(breaker, consecutive_failures=failures)
    if breaker.phase == "half_open":
        return dataclasses.replace(counted, phase="open", last_transition_ms=now_ms)
    if breaker.phase == "closed" and failures >= rules.trip_after:
        return dataclasses.replace(
            counted,
            phase="open",
            opened_at_ms=now_ms,
            last_transition_ms=now_ms,
            trips=breaker.trips + 1,
        )
    return counted


def succeeded(breaker: Breaker, now_ms: int) -> Breaker:
    """The state after a success; what comes late to an open circuit is no answer to a probe."""
    if breaker.phase == "open":
        return breaker
    if breaker.phase == "closed":
        return dataclasses.replace(breaker, consecutive_failures=0)
    return dataclasses.replace(
        breaker, phase="closed", consecutive_failures=0, last_transition_ms=now_ms
    )


def ask(breaker: Breaker, now_ms: int, rules: Rules) -> tuple[Word, Breaker]:
    """Whether a message may pass; `probe` is said to exactly one, who tells what came of it."""
    if breaker.phase == "closed":
        return "closed", breaker
    since = now_ms - breaker.last_transition_ms
    if since < 0:  # the clock was set back: the phase begins now
        return "hold", dataclasses.replace(
            breaker, opened_at_ms=min(breaker.opened_at_ms, now_ms), last_transition_ms=now_ms
        )
    if breaker.phase == "open" and since >= rules.probe_after_ms:
        return "probe", dataclasses.replace(breaker, phase="half_open", last_transition_ms=now_ms)
    if breaker.phase == "half_open" and since >= PROBE_LASTS_MS:
        return "hold", failed(breaker, now_ms, rules)
    return "hold", breaker


def wait_ms(breaker: Breaker, now_ms: int, rules: Rules) -> int:
    """How long until the next probe may come; nothing for a closed circuit."""
    if breaker.phase == "closed":
        return 0
    since = max(0, now_ms - breaker.last_transition_ms)
    if breaker.phase == "open":
        return max(0, rules.probe_after_ms - since)
    return max(0, PROBE_LASTS_MS - since)
