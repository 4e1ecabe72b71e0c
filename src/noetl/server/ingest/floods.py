"""Pools into which runs are poured by the dozen, and what they may have while others work.

A request for many runs floods its pool, until few of its commands are left. What concerns flooded
pools then gives way to the work of all other pools: while there is any, it has a share of the time
of commits, in small pieces; without any it has all of it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from noetl.clock import Clock
    from noetl.server.ingest.posts import Work

SHARE: Final = 0.1
"""Of the time of commits, while other pools work."""
MOST_SAVED_S: Final = 0.010
"""What a flood saves up of its share."""
CALM_S: Final = 0.05
"""Other pools work while the last request of theirs is younger."""
MOST_WAIT_S: Final = 2.0
"""A report that has waited so long gives way no more."""
FLOODED_S: Final = 5.0
"""A pool is flooded so long after a request for many runs, however few of its commands wait."""
FEW_LEFT: Final = 8
_TICK_S: Final = 0.001


class Floods:
    """Which pools are flooded, and whether it is their turn."""

    def __init__(self, clock: Clock, backlog: Callable[[str], int]) -> None:
        self._clock = clock
        self._backlog = backlog
        self._poured: dict[str, float] = {}
        """When the last request for many runs of a pool came."""
        self._heard: dict[str, float] = {}
        """When the last request of a pool came, of those that count as working."""
        self._saved_s = 0.0
        self._counted_at = 0.0

    def pour(self, pools: Iterable[str]) -> None:
        """Many runs were asked for."""
        now = self._clock.monotonic()
        for pool in list(self._poured):  # those that nobody asks for any more are forgotten
            self._is_flooded(pool)
        self._poured.update(dict.fromkeys(pools, now))

    def covers(self, work: Work) -> bool:
        """Whether a request that came is for flooded pools alone; it is noted who works."""
        pools = _pools_of(work)
        now = self._clock.monotonic()
        young = {pool: at for pool, at in self._heard.items() if now - at < CALM_S}
        # Timers and whatever else goes its way belong to none.
        self._heard = young | dict.fromkeys(pools, now)
        return bool(pools) and all(map(self._is_flooded, pools))

    @property
    def others_work(self) -> bool:
        """Whether a pool that is not flooded was heard of just now."""
        return self._others_s > 0

    @property
    def _others_s(self) -> float:
        """How long other pools count as working from now on."""
        if not self._poured:
            return 0.0
        heard = [at for pool, at in self._heard.items() if not self._is_flooded(pool)]
        return max(heard, default=-inf) + CALM_S - self._clock.monotonic()

    def wait_s(self, report_at: float = inf) -> float:
        """How long it still gives way, if its oldest report came then."""
        now = self._clock.monotonic()
        self._save(now)
        calm_s = self._others_s
        if self._saved_s > 0 or calm_s <= 0:
            return 0.0
        share_s = _TICK_S - self._saved_s / SHARE
        return max(0.0, min(share_s, calm_s, report_at + MOST_WAIT_S - now))

    def took(self, seconds: float) -> None:
        """A commit for flooded pools has taken so long."""
        self._save(self._clock.monotonic())
        self._saved_s -= seconds

    def _save(self, now: float) -> None:
        passed, self._counted_at = now - self._counted_at, now
        self._saved_s = min(MOST_SAVED_S, self._saved_s + SHARE * passed)

    def _is_flooded(self, pool: str) -> bool:
        poured_at = self._poured.get(pool)
        if poured_at is None:
            return False
        is_over = self._clock.monotonic() - poured_at >= FLOODED_S
        if is_over and self._backlog(pool) <= FEW_LEFT:
            del self._poured[pool]
            return False
        return True


def _pools_of(work: Work) -> set[str]:
    if work.ask is not None:
        return {work.ask.pool}
    return {post.pool for post in work.posts if post.pool}
