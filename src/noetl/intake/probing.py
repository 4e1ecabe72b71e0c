"""Asks downstreams whether they are there: now and then while they are, else when it is time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from noetl.intake.probes import probe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from noetl.clock import Clock
    from noetl.dsl.subscription.spool import Downstream
    from noetl.intake.breakers import Breakers

    Ask = Callable[[str, str], Awaitable[str | None]]

LEAST_WAIT_S: Final = 0.05
MOST_WAIT_S: Final = 1.0


class Prober:
    """The active probes of one subscription."""

    def __init__(
        self,
        downstreams: Sequence[Downstream],
        breakers: Breakers,
        clock: Clock,
        *,
        may_probe: Callable[[], bool] = lambda: True,
        ask: Ask = probe,
    ) -> None:
        self._targets = {
            one.name: (one.probe, one.target or "") for one in downstreams if one.probe != "passive"
        }
        self._breakers = breakers
        self._clock = clock
        self._may_probe = may_probe
        self._ask = ask
        self._due = dict.fromkeys(self._targets, clock.monotonic())

    @property
    def names(self) -> frozenset[str]:
        """Downstreams that are asked."""
        return frozenset(self._targets)

    async def run(self) -> None:
        """Ask, until cancelled."""
        while True:
            await self.tick()
            await asyncio.sleep(self._wait_s())

    async def tick(self) -> None:
        """Ask those for whom it is time, all at once."""
        if self._may_probe():
            await asyncio.gather(*(self._one(name) for name in self._targets if self._is_due(name)))

    async def is_up(self, name: str) -> bool:
        """Ask one now, whatever its circuit says; its circuit is told."""
        fault = await self._ask(*self._targets[name])
        if fault is None:
            await self._breakers.succeeded(name)
        else:
            await self._breakers.failed(name, fault)
        return fault is None

    async def _one(self, name: str) -> None:
        interval_s = self._breakers.rules.probe_interval_ms / 1000
        self._due[name] = self._clock.monotonic() + interval_s
        if not self._breakers.is_closed(name):
            word, _ = await self._breakers.enter(name)
            if word == "hold":
                return
        await self.is_up(name)

    def _is_due(self, name: str) -> bool:
        if not self._breakers.is_closed(name):
            return not self._breakers.wait_ms(name)
        return self._clock.monotonic() >= self._due[name]

    def _wait_s(self) -> float:
        """Until the next one is due; not long, since circuits change."""
        now = self._clock.monotonic()
        waits = [
            self._due[name] - now
            if self._breakers.is_closed(name)
            else self._breakers.wait_ms(name) / 1000
            for name in self._targets
        ]
        return min(max(min(waits, default=MOST_WAIT_S), LEAST_WAIT_S), MOST_WAIT_S)
