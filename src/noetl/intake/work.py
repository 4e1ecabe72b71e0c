"""Messages that came together, worked on in order; those that share requests share their turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from noetl.intake.outcomes import Disposition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noetl.intake.deliveries import Delivery
    from noetl.intake.lanes import Turn
    from noetl.intake.outcomes import StartOutcome


class Engine(Protocol):
    """What is asked about each message."""

    batch_max: int

    async def admitted(
        self, delivery: Delivery, *, is_paused: bool
    ) -> Disposition | tuple[str, ...]:
        """What became of a message that does not go now; else whom it is the probe of."""

    async def dispatched(self, deliveries: Sequence[Delivery]) -> list[StartOutcome]:
        """One request for these, and what came of it."""

    async def answered(
        self, delivery: Delivery, outcome: StartOutcome, probed: tuple[str, ...]
    ) -> Disposition:
        """What becomes of a message whose start was answered, or was not."""

    def is_open(self, delivery: Delivery) -> bool:
        """Whether it may still go."""

    def is_kept(self, delivery: Delivery) -> bool:
        """Whether it has to wait here, as far as is known now."""

    def waits(self, probed: tuple[str, ...], delivery: Delivery) -> bool:
        """Whether it is settled only when its run has ended."""

    def back(self, delivery: Delivery) -> Disposition:
        """It follows one that went back to its source."""


class Work:
    """The messages of one lane, or of all lanes when they share requests."""

    def __init__(
        self,
        engine: Engine,
        settled: Callable[[Delivery, Disposition], None],
        tasks: asyncio.TaskGroup,
        *,
        is_paused: bool,
    ) -> None:
        self._engine = engine
        self._settled = settled
        self._tasks = tasks
        self._is_paused = is_paused
        self._ready: list[Delivery] = []
        self._stopped: set[str] = set()
        """Lanes of which one message went back to its source: those behind it follow."""

    async def run(self, turn: Turn, deliveries: Sequence[Delivery]) -> None:
        """Work on them when it is their turn."""
        async with turn.taken():
            if len(deliveries) > 1 and any(map(self._engine.is_kept, deliveries)):
                await self._beside(deliveries)
            else:
                await self._line(deliveries)
            await self._flush()

    async def _line(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            await self._one(delivery)

    async def _beside(self, deliveries: Sequence[Delivery]) -> None:
        """Lane beside lane, each in order: a store takes many at once as fast as one."""
        lanes: dict[str, list[Delivery]] = {}
        for delivery in deliveries:
            lanes.setdefault(delivery.lane, []).append(delivery)
        async with asyncio.TaskGroup() as tasks:
            for lane in lanes.values():
                tasks.create_task(self._line(lane))

    async def _one(self, delivery: Delivery) -> None:
        if delivery.lane in self._stopped:
            self._settle(delivery, self._engine.back(delivery))
            return
        found = await self._engine.admitted(delivery, is_paused=self._is_paused)
        if isinstance(found, Disposition):
            self._settle(delivery, found)
        elif found:
            await self._flush()
            await self._send([delivery], found)
        else:
            self._ready.append(delivery)
            if len(self._ready) >= self._engine.batch_max:
                await self._flush()

    async def _flush(self) -> None:
        """Send what is ready, unless it may not go any more."""
        ready, self._ready = self._ready, []
        going: list[Delivery] = []
        for delivery in ready:
            if delivery.lane in self._stopped:
                self._settle(delivery, self._engine.back(delivery))
                continue
            if not self._engine.is_open(delivery):
                found = await self._engine.admitted(delivery, is_paused=self._is_paused)
                if isinstance(found, Disposition):
                    self._settle(delivery, found)
                    continue
                if found:
                    await self._send([delivery], found)
                    continue
            going.append(delivery)
        if going:
            await self._send(going, ())

    async def _send(self, deliveries: Sequence[Delivery], probed: tuple[str, ...]) -> None:
        outcomes = await self._engine.dispatched(deliveries)
        for delivery, outcome in zip(deliveries, outcomes, strict=True):
            if outcome.is_accepted and self._engine.waits(probed, delivery):
                self._tasks.create_task(self._later(delivery, outcome, probed))
            else:
                self._settle(delivery, await self._engine.answered(delivery, outcome, probed))

    async def _later(
        self, delivery: Delivery, outcome: StartOutcome, probed: tuple[str, ...]
    ) -> None:
        """Settle a message when its run has ended; its lane does not wait for that."""
        self._settled(delivery, await self._engine.answered(delivery, outcome, probed))

    def _settle(self, delivery: Delivery, found: Disposition) -> None:
        if found.settle == "nack":
            self._stopped.add(delivery.lane)
        self._settled(delivery, found)
