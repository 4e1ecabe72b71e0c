"""Where the parts of one subscription's engine meet: what listens, ticks and webhooks all use."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from noetl.blobs.spool.base import SpoolError
from noetl.blobs.spool.rules import Place
from noetl.blobs.spool.rules import Rules as SpoolRules
from noetl.blobs.spool.spool import Spool
from noetl.clock import rfc3339
from noetl.dsl.subscription.spool import Spool as SpoolSpec
from noetl.intake.audit import Audit, Shelf
from noetl.intake.breakers import Breakers
from noetl.intake.drain import Drain
from noetl.intake.engine import Intake
from noetl.intake.leases import RENEW_S, Lease
from noetl.intake.parts import Parts
from noetl.intake.probes import probe
from noetl.intake.probing import Prober
from noetl.intake.redriving import Letters
from noetl.sources.breaker import Rules
from noetl.sources.ordering import circuit_of, downstreams_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.blobs.spool.base import SpoolStore
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.intake.audit import Poster
    from noetl.intake.circuit_stores import CircuitStore
    from noetl.intake.deliveries import Listener
    from noetl.intake.dispatch import Starter
    from noetl.intake.keeping import LetterBox
    from noetl.intake.metrics import IntakeMetrics
    from noetl.intake.probing import Ask
    from noetl.intake.runs import Runs
    from noetl.telemetry.traces.tracer import Tracer

LOOK_S: Final = 1.0
REFRESH_S: Final = 2.0
FORGIVE_S: Final = 10.0
"""How long a server that did not know a gateway is left alone."""
FLUSH_S: Final = 2.0
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What a process gives to the engine of one subscription."""

    listener: Listener
    tenant: str
    holder: str
    """The name of this process, for the lease."""
    ids: Ids
    clock: Clock
    starter: Starter
    poster: Poster
    circuits: CircuitStore
    letters: LetterBox
    metrics: IntakeMetrics
    store: SpoolStore | None = None
    """Where messages wait; none when the mode is off."""
    runs: Runs | None = None
    ask: Ask = probe
    tracer: Tracer | None = None
    may_drain: Callable[[], bool] = lambda: True
    """Whether messages that wait may go; those of a subscription that is paused may not."""
    is_alone: bool = False
    """Whether nobody else reaches what waits here: then this process drains it, whoever drains."""


class Assembly:
    """The engine of one subscription, with all that works in its background."""

    def __init__(self, wiring: Wiring) -> None:
        listener, clock, store = wiring.listener, wiring.clock, wiring.store
        spec = listener.spec
        downstreams, circuit = downstreams_of(spec), circuit_of(spec)
        place = Place(wiring.tenant, listener.path)
        self._wiring = wiring
        self.audit = Audit(
            listener.subscription_id,
            listener.path,
            ids=wiring.ids,
            clock=clock,
            poster=wiring.poster,
            metrics=wiring.metrics,
            shelf=Shelf(store, place.events) if store is not None else None,
        )
        self.breakers = Breakers(
            listener.path,
            [one.name for one in downstreams],
            Rules(
                trip_after=circuit.trip_after,
                probe_after_ms=circuit.probe_after_ms,
                probe_interval_ms=circuit.probe_interval_ms,
            ),
            store=wiring.circuits,
            clock=clock,
            tell=self.audit.tell,
            metrics=wiring.metrics,
        )
        rules = SpoolRules.of(spec.spool or SpoolSpec())
        told = self.audit.tell, self.audit.tell_again
        self.spool = Spool(store, place, rules, clock, *told) if store else None
        leased = f"{listener.path}@{wiring.holder}" if wiring.is_alone else listener.path
        self.lease = Lease(leased, wiring.holder, store=wiring.circuits, clock=clock)
        parts = Parts(
            listener=listener,
            ids=wiring.ids,
            clock=clock,
            starter=wiring.starter,
            breakers=self.breakers,
            letters=wiring.letters,
            tell=self.audit.tell,
            metrics=wiring.metrics,
            spool=self.spool,
            runs=wiring.runs,
            tracer=wiring.tracer,
        )
        self.intake = Intake(parts)
        self.prober = Prober(
            downstreams, self.breakers, clock, may_probe=self._leads, ask=wiring.ask
        )
        self.drain = (
            Drain(parts, self.intake, self.prober, may_drain=self._drains) if self.spool else None
        )
        self._foreign = 0
        self.letters: Letters | None = None
        if self.spool is not None and self.drain is not None:
            self.letters = Letters(self.spool, clock, self.audit.tell, self.drain.wake)

    async def start(self) -> None:
        """Learn what was before: circuits, who drains, and what waits."""
        await self.breakers.refresh()
        await self._renew()
        if self.drain is not None:
            await self.drain.recover()

    async def run(self) -> None:
        """Everything in the background, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.audit.run(), name="intake-audit")
            tasks.create_task(self.prober.run(), name="intake-probes")
            tasks.create_task(_every(RENEW_S, self._renew), name="intake-lease")
            tasks.create_task(self.breakers.follow(REFRESH_S), name="intake-circuits")
            if self._wiring.listener.spec.mode == "push":
                tasks.create_task(_every(FORGIVE_S, self._forgive), name="intake-forgive")
            if self.drain is not None:
                tasks.create_task(self.drain.run(), name="intake-drain")
                tasks.create_task(_every(LOOK_S, self._tidy), name="intake-tidy")
            if self.letters is not None:
                tasks.create_task(self.letters.run(self._leads), name="intake-letters")

    async def stop(self) -> None:
        """Tell what is left to tell, for a moment, and let others drain."""
        try:
            async with asyncio.timeout(FLUSH_S):
                await self.intake.close()
                await self.lease.release()
                await self.audit.flush()
        except TimeoutError:
            _log.warning("what happened at the end could not be told")

    def waiting(self) -> dict[str, Any] | None:
        """What waits here, as the server is told it; whoever drains tells it, and nobody else."""
        spool = self.spool
        if spool is None or not self.lease.is_held:
            return None
        oldest = spool.oldest_at
        return {
            "items": spool.pending(),
            "bytes": spool.size_bytes,
            "oldest_at": None if oldest is None else rfc3339(oldest),
            "dlq": spool.dead_letters.size.items,
        }

    def _leads(self) -> bool:
        return self.lease.is_held

    def _drains(self) -> bool:
        return self.lease.is_held and self._wiring.may_drain()

    async def _forgive(self) -> None:
        """Ask a server again that did not know this process; where all is pushed, who else does?"""
        if self.intake.is_unauthorized:
            self.intake.is_unauthorized = False
            if self.drain is not None:
                self.drain.wake()

    async def _renew(self) -> None:
        was_held = self.lease.is_held
        if await self.lease.keep() and not was_held:
            await self.breakers.taken_over()

    async def _tidy(self) -> None:
        spool, path = self.spool, self._wiring.listener.path
        if spool is None:
            return
        with suppress(SpoolError):  # it is done again in a second
            if await spool.tidy(drains=self.lease.is_held) and self.drain is not None:
                self.drain.wake()
        metrics, oldest = self._wiring.metrics, spool.oldest_at
        metrics.spool_bytes.set(float(spool.size_bytes), path)
        metrics.spool_items.set(float(spool.pending()), path)
        age = 0.0 if oldest is None else (self._wiring.clock.now() - oldest).total_seconds()
        metrics.spool_oldest_s.set(max(0.0, age), path)
        metrics.foreign.inc(path, by=max(0, spool.foreign - self._foreign))
        self._foreign = spool.foreign


async def _every(seconds: float, do: Callable[[], Awaitable[None]]) -> None:
    while True:
        await do()
        await asyncio.sleep(seconds)
