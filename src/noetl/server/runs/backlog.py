"""Keeps what waits for workers within a bound: who asks for more is told to come back.

A server that takes every run that is asked for spends its time on taking them, and those that it
has taken wait longer and longer. So a new run is refused while too many commands of its pool wait.
What a run does by itself is never refused: its steps, its children, what schedules start.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from noetl.edge.errors import PoolSaturated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.clock import Clock
    from noetl.server.ingest.pending import Pending
    from noetl.server.ingest.wanted import Wanted

    Wish = tuple[object, ...]

MOST_KEPT: Final = 1_000
TOLD_EVERY_S: Final = 10.0
_NEVER: Final = -float("inf")
_log: Final = logging.getLogger(__name__)


def wish_of(wanted: Wanted) -> Wish:
    """What decides which pool a run goes to."""
    return (wanted.tenant_id, wanted.path, wanted.catalog_id, wanted.version, wanted.pool)


class Backlog:
    """Counts what waits in each pool, as far as this server knows."""

    def __init__(self, pending: Pending, clock: Clock, most: int) -> None:
        self._pending = pending
        self._clock = clock
        self._most = most
        self._entering: dict[str, int] = {}
        """Runs that are about to begin."""
        self._refused: dict[Wish, str] = {}
        """What was refused of late, and the pool that had no room."""
        self._told_at = _NEVER

    def check(self, wish: Wish) -> None:
        """Refuse at once what was refused before, while its pool still has no room.

        That costs no look at the catalog: a refusal must be cheap when there are many.
        """
        pool = self._refused.get(wish)
        if pool is None:
            return
        if self._is_full(pool):
            raise self._refusal(pool)
        self._refused = {one: other for one, other in self._refused.items() if other != pool}

    @contextmanager
    def entered(self, pool: str, wish: Wish) -> Iterator[None]:
        """Begin a run of a pool, if there is room for one more."""
        if self._is_full(pool):
            if len(self._refused) < MOST_KEPT:
                self._refused[wish] = pool
            self._tell(pool)
            raise self._refusal(pool)
        self._entering[pool] = self._entering.get(pool, 0) + 1
        try:
            yield
        finally:
            self._entering[pool] -= 1
            if not self._entering[pool]:
                del self._entering[pool]

    def _is_full(self, pool: str) -> bool:
        return self._pending.count(pool) + self._entering.get(pool, 0) >= self._most

    def _refusal(self, pool: str) -> PoolSaturated:
        return PoolSaturated(
            f"{self._most} commands wait for workers of the pool {pool!r}",
            hint="try again later, or start more workers",
        )

    def _tell(self, pool: str) -> None:
        """Say it in the log, not with every refusal."""
        now = self._clock.monotonic()
        if now - self._told_at >= TOLD_EVERY_S:
            self._told_at = now
            told = {"pool": pool, "most": self._most}
            _log.warning("new runs are refused: too many commands wait for workers", extra=told)
