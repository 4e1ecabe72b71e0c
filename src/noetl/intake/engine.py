"""Messages become executions: each is started, kept here, or left with its source; never lost.

Nothing is acknowledged before the server has committed the run or the spool has stored the message.
Messages of one lane go one after another, lanes beside one another.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from noetl.intake.deliveries import Reruns, live_start, received
from noetl.intake.dispatch import Dispatcher, Gathered, Hasty
from noetl.intake.held import Held
from noetl.intake.keeping import OFF, Keeping
from noetl.intake.lanes import Lanes
from noetl.intake.pushes import ANSWER_S, PUSHED_AT_ONCE, Pushes
from noetl.intake.spans import spanned
from noetl.intake.work import Work
from noetl.sources.breaker import PROBE_LASTS_MS
from noetl.sources.ordering import SERVER, downstreams_of, is_kept_by_one, ordering_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from noetl.intake.deliveries import Delivery, Pushed
    from noetl.intake.outcomes import Disposition, RunOutcome, StartOutcome
    from noetl.intake.parts import Parts
    from noetl.telemetry.traces.tracer import About

    Settle = Callable[[Disposition], None]

_ALL: Final = ""
_LASTS_S: Final = PROBE_LASTS_MS / 1000


class Intake:
    """The engine of one subscription."""

    def __init__(self, parts: Parts) -> None:
        spec = parts.listener.spec
        self.is_unauthorized = False
        """Whether the server does not know this process: nothing is fetched until it does."""
        self._is_refusal_told = False
        self._parts = parts
        self._spec = spec
        self._path = parts.listener.path
        self._breakers = parts.breakers
        self.keeping = Keeping(
            parts.listener,
            spool=parts.spool,
            letters=parts.letters,
            breakers=parts.breakers,
            clock=parts.clock,
            tracer=parts.tracer,
        )
        self.batch_max = (spec.dispatch.batch_max or spec.runtime.batch) if self._is_batch else 1
        is_push = spec.mode == "push"
        self.shared_max = max(self.batch_max, PUSHED_AT_ONCE) if is_push else self.batch_max
        """How many starts share a request, of deliveries and of what waited."""
        starter = Hasty(parts.starter, ANSWER_S) if is_push else parts.starter
        self.dispatcher = Dispatcher(starter, told=self._heard, batch_max=self.shared_max)
        self._lanes = Lanes()
        self._pushes = Pushes(self, parts, Gathered(self.dispatcher, self.shared_max))
        self._held = Held(parts.clock) if is_kept_by_one(spec) and not is_push else None
        self._room = asyncio.Semaphore(spec.runtime.concurrency)
        self._passive = {one.name for one in downstreams_of(spec) if one.probe == "passive"}
        self._reruns = Reruns()

    @property
    def _is_batch(self) -> bool:
        return self._spec.dispatch.batch_dispatch

    def room(self, base: int) -> int:
        """How many messages make sense now: none while everything would be sent back."""
        if self.is_unauthorized:
            return 0
        names = [name for name in self._breakers.names if name != SERVER]
        if self._breakers.is_closed(SERVER) and any(map(self._breakers.is_closed, names)):
            return base
        away = self._breakers.names
        if self.keeping.buffers(*away) or self.keeping.may_be_forgotten(*away):
            return base
        may_probe = not self._breakers.wait_ms(SERVER) and any(
            self._breakers.is_closed(name)
            or (name in self._passive and not self._breakers.wait_ms(name))
            for name in names
        )
        return min(base, 1) if may_probe else 0

    async def handle(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        settle: Settle = lambda _: None,
        is_paused: bool = False,
        headers: Mapping[str, Any] | None = None,
    ) -> list[Disposition]:
        """What each message came to, in their order; `settle` hears of each as soon as it is known.

        A call stands behind the calls before it, lane by lane. `headers` are those that may steer,
        when they are not the ones of the message.
        """
        came = [self._received(message, headers) for message in messages]
        groups: dict[str, list[Delivery]] = {}
        for delivery in came:
            groups.setdefault(_ALL if self._is_batch else self._lane(delivery), []).append(delivery)
        turns = [(self._lanes.ask(lane), group) for lane, group in groups.items()]
        known: dict[str, Disposition] = {}

        def settled(delivery: Delivery, found: Disposition) -> None:
            self.counted(delivery, found)
            known[delivery.recv_seq] = found
            settle(found)

        async with asyncio.TaskGroup() as tasks:
            for turn, group in turns:
                work = Work(self, settled, tasks, is_paused=is_paused)
                tasks.create_task(work.run(turn, group))
        return [known[delivery.recv_seq] for delivery in came]

    async def push(self, asked: Pushed) -> Disposition:
        """What one delivery came to that its sender waits for; told within eight seconds.

        `ack` with its run, or with the reference of what waits for one; `term` with that of its
        dead letter; `nack` with the reason and the wait: then nothing was promised.
        """
        return await self._pushes.push(asked)

    async def close(self) -> None:
        """Let go of what is still under way; whoever waited for it was told."""
        await self._pushes.close()

    async def ended(self, outcome: RunOutcome) -> None:
        """A run of this subscription has ended.

        Of a downstream that is asked by an active probe it says nothing once the circuit is open:
        the run may have begun before the outage.
        """
        name = outcome.downstream
        if name is not None and self._counts(name):
            if outcome.is_completed:
                await self._breakers.succeeded(name)
            elif outcome.is_outage:
                await self._breakers.failed(name, outcome.error_kind)
        if self._parts.runs is not None:
            self._parts.runs.told(outcome)

    def _counts(self, name: str) -> bool:
        """Whether the end of a run says something about a downstream."""
        if name == SERVER or name not in self._breakers.names:
            return False
        return name in self._passive or self._breakers.is_closed(name)

    # ------------------------------------------------------------------ of one message

    def _lane(self, delivery: Delivery) -> str:
        return delivery.lane if ordering_of(self._spec) != "none" else delivery.recv_seq

    def _received(self, message: Mapping[str, Any], headers: Mapping[str, Any] | None) -> Delivery:
        delivery = received(self._parts.listener, message, self._parts.ids, headers)
        self._reruns.rename(delivery)
        self.came(delivery)
        return delivery

    def came(self, delivery: Delivery) -> None:
        """Count a message, and what its headers decided."""
        metrics = self._parts.metrics
        metrics.received.inc(self._path)
        for entry in delivery.plan.applied:
            metrics.applied.inc(self._path, entry["controls"])
        for entry in delivery.plan.refused:
            metrics.refused.inc(self._path, entry["reason"])

    async def admitted(
        self, delivery: Delivery, *, is_paused: bool, is_limited: bool = False
    ) -> Disposition | tuple[str, ...]:
        """What became of a message that does not go now; else whom it is the probe of."""
        if delivery.is_too_large:
            return await self.keeping.dead(delivery, "message_too_large")
        wait = self._held.wait_ms(delivery.lane, delivery.message_id) if self._held else None
        if wait is not None:
            return self.keeping.back(delivery, "lane_busy", wait)
        if self.is_unauthorized:
            return self.keeping.back(delivery, "unauthorized")
        if is_paused:
            if self.keeping.mode == OFF:
                return self.keeping.back(delivery, "paused")
            return await self.keeping.spool(delivery, "paused")
        if is_limited:
            return await self.keeping.limit(delivery)
        name, spool = delivery.downstream, self._parts.spool
        if self.keeping.must_queue(delivery):
            if self._breakers.is_closed(SERVER, name):
                return await self.keeping.spool(delivery, "lane_busy")
            return await self.keeping.hold(delivery)
        # What waits goes first, also as a probe; an active probe asks for all.
        has_probe = name not in self._passive or (spool is not None and spool.pending(name) > 0)
        if has_probe and not self._breakers.is_closed(name):
            return await self.keeping.hold(delivery)
        word, probed = await self._breakers.enter(SERVER, name)
        return await self.keeping.hold(delivery) if word == "hold" else probed

    async def dispatched(self, deliveries: Sequence[Delivery]) -> list[StartOutcome]:
        """One request for these, and what came of it."""
        starts = [live_start(self._parts.listener, delivery) for delivery in deliveries]
        metrics = self._parts.metrics
        name = "subscription.dispatch.batch" if len(starts) > 1 else "subscription.dispatch"
        about: About = {"subscription": self._path, "messages": len(starts)}
        trace = deliveries[0].plan.trace if len(starts) == 1 else None
        async with self._room:
            with spanned(self._parts.tracer, name, trace, about):
                outcomes = await self.dispatcher.dispatch(starts)
        if len(starts) > 1:
            metrics.batches.inc(self._path)
            metrics.batched.inc(self._path, by=len(starts))
        for outcome in outcomes:
            self.attempted(outcome)
        return outcomes

    def attempted(self, outcome: StartOutcome) -> None:
        """Count an attempt to start a run."""
        word = "started" if outcome.kind == "accepted" else outcome.kind
        self._parts.metrics.executions.inc(self._path, word)

    def is_open(self, delivery: Delivery) -> bool:
        """Whether it may still go, a while after it was admitted."""
        return self._breakers.is_closed(SERVER, delivery.downstream)

    def is_kept(self, delivery: Delivery) -> bool:
        """Whether it has to wait here, as far as is known now."""
        is_buffered = self.keeping.mode != OFF
        return is_buffered and (not self.is_open(delivery) or self.keeping.must_queue(delivery))

    def waits(self, probed: tuple[str, ...], delivery: Delivery) -> bool:
        """Whether a message is settled only when its run has ended."""
        is_probe = delivery.downstream in probed
        return is_probe or self._spec.dispatch.ack_after == "completed"

    def back(self, delivery: Delivery) -> Disposition:
        """A message behind one that went back to its source."""
        return self.keeping.back(delivery, "lane_busy")

    async def answered(
        self, delivery: Delivery, outcome: StartOutcome, probed: tuple[str, ...]
    ) -> Disposition:
        """What becomes of a message whose start was answered, or was not."""
        if outcome.is_accepted:
            return await self.accepted(delivery, outcome, probed)
        if delivery.downstream in probed:
            await self._breakers.released(delivery.downstream)
        if outcome.kind == "refused":
            return await self.keeping.dead(delivery, "dispatch_rejected")
        if outcome.kind == "misconfigured":
            self.unauthorized(outcome)
            return self.keeping.back(delivery, "unauthorized")
        return await self.keeping.hold(delivery)

    async def accepted(
        self, delivery: Delivery, outcome: StartOutcome, probed: tuple[str, ...]
    ) -> Disposition:
        """What becomes of a message that has a run; a probe waits for the end of it."""
        is_probe = delivery.downstream in probed
        run, execution_id = None, outcome.execution_id or ""
        is_old = outcome.kind == "duplicate"
        word = "duplicate" if is_old else "started"
        if self.waits(probed, delivery) and self._parts.runs is not None:
            lasts = _LASTS_S if is_probe else None
            run = await self._parts.runs.ended(execution_id, lasts, is_old=is_old)
            if run is None:  # no word of the probe in time: its run may still go on
                await self._breakers.failed(delivery.downstream, "probe_timeout")
                return await self.keeping.hold(delivery)
        if is_probe and (run is None or not run.is_outage):
            await self._breakers.succeeded(delivery.downstream)
        if run is None or run.is_completed:
            self._reruns.forget(delivery)
            return delivery.settled("ack", word, execution_id=execution_id)
        if not run.is_outage:
            self._reruns.forget(delivery)
            about = {"message_id": delivery.message_id, "execution_id": execution_id}
            self._parts.tell("subscription.message.failed", {**about, "status": run.status})
            return delivery.settled("ack", "failed", execution_id=execution_id, reason=run.status)
        if is_probe:
            await self._breakers.failed(delivery.downstream, run.error_kind)
        return await self._run_again(delivery)

    async def _run_again(self, delivery: Delivery) -> Disposition:
        """Its run failed because something is away: its next run has a key of its own."""
        if self.keeping.buffers(SERVER, delivery.downstream):
            return await self.keeping.spool(delivery, "replay_failed", is_new_run=True)
        self._reruns.note(delivery)
        return self.keeping.back(delivery, "run_failed")

    # ------------------------------------------------------------------ of all of them

    async def _heard(self, outcome: StartOutcome) -> bool:
        """Tell the circuit of the server; whether it makes sense to try again."""
        is_probe = self._breakers.state(SERVER).phase == "half_open"
        self._is_refusal_told = self._is_refusal_told and not outcome.is_accepted
        if outcome.is_accepted or (is_probe and outcome.kind in {"refused", "misconfigured"}):
            await self._breakers.succeeded(SERVER)
        elif outcome.is_outage or (is_probe and outcome.kind == "unavailable"):
            await self._breakers.failed(SERVER, outcome.code)
        return self._breakers.is_closed(SERVER)

    def unauthorized(self, outcome: StartOutcome) -> None:
        """The server does not know this process; told once, until it does."""
        self.is_unauthorized = True
        if not self._is_refusal_told:
            self._is_refusal_told = True
            self._parts.tell("subscription.runtime.unauthorized", {"code": outcome.code})

    def counted(self, delivery: Delivery, found: Disposition) -> None:
        """Count what became of a message."""
        if self._held is not None:
            if found.settle == "nack":
                self._held.went(delivery.lane, delivery.message_id, found.delay_ms)
            else:
                self._held.came(delivery.lane, delivery.message_id)
        metrics = self._parts.metrics
        (metrics.nacked if found.settle == "nack" else metrics.acked).inc(self._path)
