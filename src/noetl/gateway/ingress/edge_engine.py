"""One version of a subscription at the edge: its engine, its limits, and what waits here."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from noetl.blobs.spool.opening import LOCAL_DISK
from noetl.errors import NoetlError
from noetl.intake.assembly import Assembly, Wiring
from noetl.intake.deliveries import Listener, Pushed
from noetl.intake.runs import Runs
from noetl.sources.governor import Governor

if TYPE_CHECKING:
    from noetl.blobs.spool.base import SpoolStore
    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.gateway.ingress.edge_ports import EdgePorts
    from noetl.gateway.ingress.listeners import Known
    from noetl.gateway.ingress.pipeline import Planned
    from noetl.intake.outcomes import Disposition

ACTIVE: Final = "ACTIVE"
DRAINING: Final = "DRAINING"
RATE, BURST = 100.0, 200.0
"""Deliveries a second and at once, where a document says nothing."""
WATCH_S: Final = 5.0
LETTERS_S: Final = 60.0
"""How often the server is asked for wishes about dead letters, where hints do not come."""
GRACE_S: Final = 9.0
"""How long deliveries that are under way may take to end."""
LIMITED: Final = "rate_limited"
_EVENT: Final = "subscription.rate_limited"
_DRAINS: Final = frozenset({ACTIVE, DRAINING})
_LEAST_WAIT_MS: Final = 1_000
_log: Final = logging.getLogger(__name__)


class Edge:
    """Takes deliveries from `open` to `close`; what waits is drained in between."""

    def __init__(self, known: Known, ports: EdgePorts, store: SpoolStore | None) -> None:
        self.known = known
        self.is_closing = False
        self._ports = ports
        self._state = known.state
        self._under_way = 0
        self._left = asyncio.Event()
        self._hinted = asyncio.Event()
        self._opened = AsyncExitStack()
        self._endings = ports.endings()
        self._task: asyncio.Task[None] | None = None
        spec = known.spec
        self._assembly = Assembly(
            Wiring(
                listener=Listener(
                    subscription_id=known.subscription_id,
                    path=known.path,
                    spec=spec,
                    version=known.version,
                ),
                tenant=known.tenant,
                holder=ports.name,
                ids=ports.ids,
                clock=ports.clock,
                starter=ports.starter,
                poster=ports.poster,
                circuits=ports.circuits,
                letters=ports.letters(known.subscription_id),
                metrics=ports.metrics,
                store=store,
                runs=Runs(self._endings.of),
                ask=ports.ask,
                tracer=ports.tracer,
                may_drain=lambda: self._state in _DRAINS,
                is_alone=store is not None and store.name == LOCAL_DISK,
            )
        )
        rate, burst = rate_of(spec)
        self._governor = Governor(rate, spec.max_in_flight, ports.clock.monotonic(), burst)

    @classmethod
    async def open(cls, known: Known, ports: EdgePorts) -> Edge:
        """Open everything; the fault of what cannot be opened is raised, and nothing stays open."""
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(ports.spool(known))
            edge = cls(known, ports, store)
            stack.push_async_callback(edge._assembly.lease.release)
            await edge._begin()
            await edge._assembly.start()
            edge._opened = stack.pop_all()
        edge._task = asyncio.create_task(edge._run(), name=f"edge:{known.path}")
        return edge

    @property
    def task(self) -> asyncio.Task[None]:
        """What works in the background; it ends by a fault alone."""
        if self._task is None:
            raise RuntimeError("the edge was not opened")
        return self._task

    @property
    def waiting(self) -> int:
        """How many messages wait here, as far as is known."""
        spool = self._assembly.spool
        return 0 if spool is None else spool.pending()

    @property
    def is_drained(self) -> bool:
        """Whether nothing is under way and nothing waits."""
        return not self._under_way and not self.waiting

    def steer(self, state: str) -> None:
        """The subscription is in this state now."""
        is_new = state != self._state
        self._state = state
        if is_new and self._assembly.drain is not None:
            self._assembly.drain.wake()

    def hinted(self) -> None:
        """Something of the listener has changed: its dead letters may be wanted."""
        self._hinted.set()

    async def deliver(self, planned: Planned, state: str) -> Disposition:
        """Run it, or let it wait."""
        is_paused = state != ACTIVE
        is_limited = not is_paused and self._is_limited()
        is_counted = not (is_paused or is_limited)
        if is_counted:
            self._governor.fetched(1, self._ports.clock.monotonic())
        self._under_way += 1
        try:
            found = await self._assembly.intake.push(
                Pushed(
                    message=planned.message,
                    plan=planned.plan,
                    dedup=planned.dedup,
                    is_paused=is_paused,
                    is_limited=is_limited,
                )
            )
        finally:
            self._under_way -= 1
            self._left.set()
            if is_counted:
                self._governor.settled(1)
        return self._timed(found)

    async def close(self) -> None:
        """Let what is under way end, tell what is left to tell, and let go."""
        self.is_closing = True
        try:
            async with asyncio.timeout(GRACE_S):
                while self._under_way:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            _log.warning("deliveries did not end in time", extra={"path": self.known.path})
        finally:
            await self._let_go()

    def figures(self) -> dict[str, Any]:
        """What the server is told: how much is under way and waits."""
        told: dict[str, Any] = {"in_flight": self._under_way}
        waiting = self._assembly.waiting()
        if waiting is not None:
            told |= {"leads": True, "spool": waiting}
        return told

    # ------------------------------------------------------------------ limits

    def _is_limited(self) -> bool:
        now = self._ports.clock.monotonic()
        reason = self._governor.edge(now)
        if reason is not None:
            self._ports.metrics.rate_limited.inc(self.known.path)
            limits = self.known.spec.limits
            told = {
                "reason": reason,
                "max_in_flight": self._governor.max_in_flight,
                "max_dispatch_per_sec": limits.max_dispatch_per_sec,
                "per_sec": self._governor.rate,
                "action": "spooled" if self._assembly.spool is not None else "refused",
            }
            self._assembly.audit.tell(_EVENT, told)
        return not self._governor.plan_fetch(1, now)

    def _timed(self, found: Disposition) -> Disposition:
        """A delivery that came too early may come again when there is room for it."""
        if found.settle != "nack" or found.reason != LIMITED:
            return found
        wait_s = self._governor.wait_s(self._ports.clock.monotonic())
        return dataclasses.replace(found, delay_ms=max(_LEAST_WAIT_MS, math.ceil(wait_s * 1000)))

    # ------------------------------------------------------------------ in the background

    async def _begin(self) -> None:
        try:
            await self._endings.begin(self.known)
        except NoetlError as fault:  # no run can be missed that nobody can start
            _log.debug("ends are told from later on", extra={"code": fault.code})

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._assembly.run())
            tasks.create_task(self._endings.follow(self.known, self._assembly.intake.ended))
            tasks.create_task(self._watch())

    async def _watch(self) -> None:
        """See to what nobody tells of: dead letters that are asked for, and the end of a drain."""
        control, subscription_id = self._ports.control, self.known.subscription_id
        letters, is_told, due = self._assembly.letters, False, 0.0
        while True:
            is_told |= await self._was_hinted()
            if not self._assembly.lease.is_held:
                if letters is not None:
                    letters.wanted(())
                due = 0.0  # who comes to hold it asks at once
                continue
            now = self._ports.clock.monotonic()
            is_due = is_told or (now >= due and self._has_dead_letters)
            try:
                if letters is not None and is_due:
                    letters.wanted(await control.requests(subscription_id))
                    is_told, due = False, now + LETTERS_S
                if self._state == DRAINING and self.is_drained:
                    await control.drained(subscription_id)
            except NoetlError as fault:
                _log.debug("the server was not asked", extra={"code": fault.code})

    async def _was_hinted(self) -> bool:
        """Rest until somebody hints, or for a while; whether somebody did."""
        try:
            async with asyncio.timeout(WATCH_S):
                await self._hinted.wait()
        except TimeoutError:
            return False
        self._hinted.clear()
        return True

    @property
    def _has_dead_letters(self) -> bool:
        spool = self._assembly.spool
        return spool is not None and spool.dead_letters.size.items > 0

    async def _let_go(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        try:
            await self._assembly.stop()
        finally:
            await self._opened.aclose()


def rate_of(spec: SubscriptionSpec) -> tuple[float, float]:
    """How many verified deliveries may come a second, and at once."""
    told = None if spec.ingress is None else spec.ingress.rate
    if told is not None:
        return told.per_sec, told.burst or 2 * told.per_sec
    rate = spec.limits.max_dispatch_per_sec
    return (RATE, BURST) if rate is None else (rate, 2 * rate)
