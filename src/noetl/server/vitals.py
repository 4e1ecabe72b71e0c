"""How the process itself is: what it stands on, whether it is ready, and since when it runs."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from noetl.clock import Clock

ASKED_S: Final = 2.0
"""What does not answer within this time is down."""
KEPT_S: Final = 0.5
DATABASE: Final = "database"
STORAGE: Final = "storage"
MIGRATIONS: Final = "migrations"
KEK: Final = "kek"
DRAINING: Final = "draining"
REASONS: Final = {
    DATABASE: "The database does not answer within 2 s.",
    STORAGE: "The database had no space to write within the last 5 s.",
    MIGRATIONS: "The schema of the database is older than the one that the server began with.",
    KEK: "The key of the wallet cannot be had from its provider.",
    DRAINING: "The server was told to stop and finishes what it has begun.",
}
"""Why a server may not be ready, as the reference tells it."""
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolNumbers:
    """The driver's own counters of one pool of connections."""

    least: int
    most: int
    size: int
    idle: int
    waiting: int

    @property
    def free(self) -> int:
        """Connections that could be had at once."""
        return self.idle + self.most - self.size


class Vitals:
    """Checks that are made when somebody asks, and their answers for a moment."""

    def __init__(
        self,
        clock: Clock,
        *,
        checks: Mapping[str, Callable[[], Awaitable[bool]]] | None = None,
        pools: Callable[[], Mapping[str, PoolNumbers]] | None = None,
        is_bus_up: Callable[[], bool] | None = None,
    ) -> None:
        self._clock = clock
        self._checks = dict(checks or {})
        if untold := self._checks.keys() - REASONS:
            raise ValueError(f"the reference does not say what these mean: {sorted(untold)}")
        self._pools = pools
        self._is_bus_up = is_bus_up
        self._began = clock.monotonic()
        self._failing: tuple[float, tuple[str, ...]] | None = None
        self._looking = asyncio.Lock()
        self.is_draining = False

    @property
    def uptime_s(self) -> float:
        """Seconds since the start."""
        return round(self._clock.monotonic() - self._began, 3)

    @property
    def is_bus_up(self) -> bool:
        """Whether the bus is connected; without one, nothing is missing."""
        return self._is_bus_up is None or self._is_bus_up()

    def pools(self) -> Mapping[str, PoolNumbers]:
        """Every pool of connections by name."""
        return self._pools() if self._pools is not None else {}

    async def failing(self) -> tuple[str, ...]:
        """What keeps the process from being ready."""
        async with self._looking:
            now = self._clock.monotonic()
            if self._failing is None or now >= self._failing[0] + KEPT_S:
                found = [name for name, check in self._checks.items() if not await _holds(check)]
                self._failing = (self._clock.monotonic(), tuple(found))
        return (*self._failing[1], DRAINING) if self.is_draining else self._failing[1]


async def _holds(check: Callable[[], Awaitable[bool]]) -> bool:
    try:
        async with asyncio.timeout(ASKED_S):
            return await check()
    except Exception as fault:  # noqa: BLE001 - whatever a check raises, it has failed
        _log.debug("a check has failed", extra={"reason": f"{type(fault).__name__}: {fault}"})
        return False
