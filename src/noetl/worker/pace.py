"""How much work a worker holds beyond its slots, so that short commands never wait for a reply.

While a report is on its way the slots stand idle; commands that are done sooner than the reply
comes are worth having beforehand. Long ones are not: others might be free.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

SOON_S: Final = 0.05
"""What is held beforehand begins within this time, as far as the last commands tell."""
MOST_AHEAD: Final = 4
"""Commands that wait for each slot, at most."""
_WEIGHT: Final = 1 / 8


class Pace:
    """Learns how long commands take."""

    def __init__(self) -> None:
        self._mean_s = SOON_S * 2

    def ended(self, took_s: float) -> None:
        """A command is over."""
        self._mean_s += (took_s - self._mean_s) * _WEIGHT

    def ahead(self, slots: int, ages_s: Iterable[float]) -> int:
        """How many more than its slots; a slot that is held for long counts for nothing."""
        each = min(MOST_AHEAD, int(SOON_S / max(self._mean_s, 1e-6)))
        if not each:
            return 0
        stuck = sum(age >= SOON_S for age in ages_s)
        return each * (slots - stuck)
