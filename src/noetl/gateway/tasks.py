"""Work in the background: kept alive, and known when it does not stay so."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.clock import Clock
    from noetl.gateway.metrics import GatewayMetrics

MOST_CRASHES: Final = 3
WITHIN_S: Final = 60.0
_FIRST_S: Final = 0.1
_LONGEST_S: Final = 15.0
_log: Final = logging.getLogger(__name__)


class Tasks:
    """Loops by name; a loop that ends or fails is begun again, after a while."""

    def __init__(self, clock: Clock, metrics: GatewayMetrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._loops: dict[str, Callable[[], Awaitable[None]]] = {}
        self._crashes: dict[str, deque[float]] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def add(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Take on a loop; it runs as soon as the gateway does."""
        if name in self._loops:
            raise ValueError(f"there are two loops {name!r}")
        self._loops[name] = loop
        self._crashes[name] = deque(maxlen=MOST_CRASHES)
        self._metrics.open_task(name)

    def start(self) -> None:
        """Begin every loop."""
        for name, loop in self._loops.items():
            kept = self._kept(name, loop)
            self._running[name] = asyncio.create_task(kept, name=f"gateway.{name}")

    async def stop(self) -> None:
        """End every loop."""
        running = list(self._running.values())
        self._running.clear()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The loops, in the order in which they were taken on."""
        return tuple(self._loops)

    def failing(self) -> tuple[str, ...]:
        """Loops that have crashed three times within a minute."""
        since = self._clock.monotonic() - WITHIN_S
        return tuple(
            name
            for name, moments in self._crashes.items()
            if len(moments) == MOST_CRASHES and moments[0] >= since
        )

    async def _kept(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        wait_s = _FIRST_S
        while True:
            began = self._clock.monotonic()
            try:
                await loop()
            except Exception:  # noqa: BLE001 - the border of a loop: whatever it was, it goes on
                self._crashed(name)
                _log.exception("a loop of the gateway has failed", extra={"task": name})
            else:
                _log.warning("a loop of the gateway has ended", extra={"task": name})
            if self._clock.monotonic() - began > WITHIN_S:
                wait_s = _FIRST_S
            await asyncio.sleep(wait_s)
            wait_s = min(_LONGEST_S, wait_s * 2)

    def _crashed(self, name: str) -> None:
        self._crashes[name].append(self._clock.monotonic())
        self._metrics.task_crashes.inc(name)
