"""What became of messages, told to their source: many at once, and that some are still held."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from noetl.intake.outcomes import Disposition
from noetl.sources.base import SourceError
from noetl.telemetry.failpoint import armed, failpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noetl.clock import Clock
    from noetl.intake.metrics import IntakeMetrics
    from noetl.sources.base import AckReport, PolledMessage, Source
    from noetl.sources.governor import Governor

EXTEND_S: Final = 20.0
"""How often it is said that messages are held, of a source that does not tell its patience."""
_LEAST_EXTEND_S: Final = 0.2
_PATIENCE: Final = 3.0
"""A message is extended after this part of the time that it may be held."""
_MOST: Final = 1_000
_log: Final = logging.getLogger(__name__)


class Settling:
    """The messages that were fetched and are not settled."""

    def __init__(
        self, path: str, *, governor: Governor, metrics: IntakeMetrics, clock: Clock
    ) -> None:
        self.governor = governor
        self._path = path
        self._metrics = metrics
        self._clock = clock
        self._source: Source | None = None
        self._held: dict[str, float] = {}
        self._told: list[Disposition] = []
        self._came = asyncio.Event()
        self._free = asyncio.Event()
        self._free.set()

    @property
    def held(self) -> int:
        """How many messages are neither acked, nacked nor terminated."""
        return len(self._held)

    def follow(self, source: Source) -> None:
        """Tell this source from now on: it was opened, perhaps anew."""
        self._source = source

    def took(self, messages: Iterable[PolledMessage]) -> None:
        """Messages have come."""
        now = self._clock.monotonic()
        for message in messages:
            self._held[str(message.ack_id)] = now
        self._free.clear()
        self._shown()

    def settle(self, disposition: Disposition) -> None:
        """It is known what became of a message; its source is told soon."""
        self._told.append(disposition)
        self._came.set()

    def release(self, ack_ids: Iterable[str]) -> None:
        """Nobody knows what became of these: they are to come again."""
        for ack_id in ack_ids:
            if ack_id in self._held and all(one.ack_id != ack_id for one in self._told):
                self.settle(
                    Disposition(message_id="", settle="nack", outcome="held", ack_id=ack_id)
                )

    async def run(self) -> None:
        """Tell the source, until cancelled."""
        while True:
            await self._came.wait()
            await self.flush()

    async def flush(self) -> None:
        """Tell all that is known now."""
        self._came.clear()
        while self._told:
            told, self._told = self._told[:_MOST], self._told[_MOST:]
            groups: dict[tuple[str, int], list[Disposition]] = {}
            for one in told:
                groups.setdefault((one.settle, one.delay_ms), []).append(one)
            for (word, delay_ms), group in groups.items():
                await self._tell(word, delay_ms, [str(one.ack_id) for one in group])

    async def extend(self) -> None:
        """Say that messages are held, before their time is over; until cancelled."""
        while True:
            every_s = self._every_s()
            await asyncio.sleep(every_s / 2)
            now, source = self._clock.monotonic(), self._source
            late = [ack_id for ack_id, since in self._held.items() if now - since >= every_s]
            if source is None or not late:
                continue
            try:
                await source.extend(late)
            except SourceError as fault:
                _log.debug("messages are not extended", extra={"code": fault.code})
                continue
            for ack_id in late:
                if ack_id in self._held:
                    self._held[ack_id] = now

    async def settled(self, within_s: float) -> bool:
        """Wait until nothing is held; whether that came in time."""
        try:
            async with asyncio.timeout(within_s):
                await self._free.wait()
        except TimeoutError:
            return False
        return True

    async def give_back(self) -> None:
        """Have the source deliver what is still held to somebody else."""
        await self.flush()
        await self._tell("nack", 0, list(self._held))

    def _every_s(self) -> float:
        wait_s = None if self._source is None else self._source.facts().ack_wait_s
        return EXTEND_S if wait_s is None else max(_LEAST_EXTEND_S, wait_s / _PATIENCE)

    async def _tell(self, word: str, delay_ms: int, ack_ids: Sequence[str]) -> None:
        source = self._source
        if source is None or not ack_ids:
            return
        if armed:
            await failpoint("subscription.ack")
        try:
            report = await self._call(source, word, delay_ms, ack_ids)
        except SourceError as fault:  # they are delivered again, and their keys are known
            _log.warning("messages are not settled", extra={"code": fault.code, "as": word})
        else:
            if report.errors:
                _log.info(
                    "some messages are not settled",
                    extra={"as": word, "count": len(report.errors), "code": report.errors[0].code},
                )
        if armed:
            await failpoint("subscription.acked")
        known = [ack_id for ack_id in ack_ids if self._held.pop(ack_id, None) is not None]
        self.governor.settled(len(known))
        if not self._held:
            self._free.set()
        self._shown()

    @staticmethod
    async def _call(source: Source, word: str, delay_ms: int, ack_ids: Sequence[str]) -> AckReport:
        if word == "nack":
            return await source.nack(ack_ids, delay_ms)
        return await (source.term if word == "term" else source.ack)(ack_ids)

    def _shown(self) -> None:
        self._metrics.in_flight.set(float(self.governor.in_flight), self._path)
