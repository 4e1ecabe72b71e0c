"""Deliveries whose senders wait for an answer: each is told in time what is true by then.

A delivery is started, or kept here, or nothing is promised. Whatever is still under way when the
time is over goes on to its end: its sender brings it again, and its keys make that a duplicate.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from typing import TYPE_CHECKING, Any, Final, Protocol

from noetl.intake.deliveries import live_start, pushed
from noetl.intake.dispatch import JITTER
from noetl.intake.lanes import Lanes
from noetl.intake.outcomes import Disposition, StartOutcome, unanswered
from noetl.intake.spans import spanned
from noetl.sources.ordering import SERVER, is_ordered

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from noetl.intake.deliveries import Delivery, Pushed
    from noetl.intake.dispatch import Gathered, Start
    from noetl.intake.keeping import Keeping
    from noetl.intake.parts import Parts
    from noetl.telemetry.traces.tracer import About

BUDGET_S: Final = 8.0
"""How long the sender of a delivery waits at most."""
TURN_S: Final = 4.0
"""How long a delivery waits for those before it in its lane."""
ANSWER_S: Final = 5.0
"""How long one request may take."""
SPARE_S: Final = 2.0
"""What is left of the budget for the spool, when a run could not be started."""
RETRY_S: Final = 3.0
"""How long after the first attempt there are further ones."""
WAITS_S: Final = (0.2, 1.0, 1.5)
PUSHED_AT_ONCE: Final = 100
"""Starts in one request."""
_BAD_ANSWER: Final = "bad_answer"
_COPIES: Final = 2
"""A workload holds a body as it is and as what was read from it."""


class Engine(Protocol):
    """What is asked about each delivery."""

    keeping: Keeping

    async def admitted(
        self, delivery: Delivery, *, is_paused: bool, is_limited: bool = False
    ) -> Disposition | tuple[str, ...]:
        """What became of a delivery that does not go now; else whom it is the probe of."""

    async def accepted(
        self, delivery: Delivery, outcome: StartOutcome, probed: tuple[str, ...]
    ) -> Disposition:
        """Learn from the run of a probe what it tells."""

    def unauthorized(self, outcome: StartOutcome) -> None:
        """The server does not know this process."""

    def came(self, delivery: Delivery) -> None:
        """Count a delivery."""

    def attempted(self, outcome: StartOutcome) -> None:
        """Count an attempt to start a run."""

    def counted(self, delivery: Delivery, found: Disposition) -> None:
        """Count what became of a delivery."""


class Pushes:
    """Takes deliveries, those of one key one after another, all others beside one another."""

    def __init__(self, engine: Engine, parts: Parts, gathered: Gathered) -> None:
        self._engine = engine
        self._parts = parts
        self._gathered = gathered
        self._breakers = parts.breakers
        self._clock = parts.clock
        self._lanes = Lanes()
        self._chance = random.Random()  # noqa: S311 - jitter is no secret
        self._under_way: set[asyncio.Task[Any]] = set()

    async def push(self, asked: Pushed) -> Disposition:
        """What a delivery came to, or that nothing is promised."""
        due = self._clock.monotonic() + BUDGET_S
        delivery = pushed(self._parts.listener, asked, self._parts.ids)
        self._engine.came(delivery)
        found = await self._in_time(delivery, due, self._in_turn(delivery, asked, due))
        self._engine.counted(delivery, found)
        return found

    async def close(self) -> None:
        """End what nobody waits for any more."""
        tasks = list(self._under_way)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _in_time(
        self, delivery: Delivery, due: float, work: Coroutine[Any, Any, Disposition]
    ) -> Disposition:
        """The end of some work; when it takes too long it goes on, and nothing is promised."""
        task = self._begun(work)
        done, _ = await asyncio.wait({task}, timeout=due - self._clock.monotonic())
        if done:
            return task.result()
        return self._engine.keeping.back(delivery, "spool_unavailable")

    def _begun(self, work: Coroutine[Any, Any, Disposition]) -> asyncio.Task[Disposition]:
        task = asyncio.create_task(work, name="intake-push")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _in_turn(self, delivery: Delivery, asked: Pushed, due: float) -> Disposition:
        """Wait for those before it, where there is an order."""
        if not is_ordered(self._parts.listener.spec, delivery.lane):
            return await self._one(delivery, asked, due)
        turn, wait = self._lanes.ask(delivery.lane), asyncio.timeout(TURN_S)
        try:
            async with wait, turn.taken():
                wait.reschedule(None)
                return await self._one(delivery, asked, due)
        except TimeoutError:
            if not wait.expired():
                raise
            return self._engine.keeping.back(delivery, "lane_busy")

    async def _one(self, delivery: Delivery, asked: Pushed, due: float) -> Disposition:
        engine = self._engine
        if delivery.is_too_large:
            return await self._given_up(delivery, "message_too_large")
        found = await engine.admitted(
            delivery, is_paused=asked.is_paused, is_limited=asked.is_limited
        )
        if isinstance(found, Disposition):
            return found
        about: About = {"subscription": self._parts.listener.path, "messages": 1}
        name = "subscription.dispatch"
        with spanned(self._parts.tracer, name, delivery.plan.trace, about) as tell:
            outcome = await self._started(delivery, due - SPARE_S)
            if outcome.execution_id is not None:
                tell(execution_id=outcome.execution_id)
        return await self._answered(delivery, outcome, found)

    # ------------------------------------------------------------------ the start

    async def _started(self, delivery: Delivery, due: float) -> StartOutcome:
        """Ask for its run, with one id, until there is a word or the time is over."""
        start = live_start(self._parts.listener, delivery)
        until = min(due, self._clock.monotonic() + RETRY_S)
        size = _COPIES * delivery.size_bytes
        outcome = await self._attempt(start, size, due)
        for wait_s in WAITS_S:
            if outcome.kind != "unavailable" or not self._breakers.is_closed(SERVER):
                break
            jitter = self._chance.uniform(1 - JITTER, 1 + JITTER)
            pause_s = max(wait_s * jitter, outcome.retry_after_s or 0.0)
            if self._clock.monotonic() + pause_s > until:
                break
            await asyncio.sleep(pause_s)
            outcome = await self._attempt(start, size, due)
        return outcome

    async def _attempt(self, start: Start, size: int, due: float) -> StartOutcome:
        try:
            async with asyncio.timeout(due - self._clock.monotonic()):
                outcome = await self._gathered.start(start, size)
        except TimeoutError:
            outcome = unanswered("there was no answer in time", "timeout")
        self._engine.attempted(outcome)
        return outcome

    async def _answered(
        self, delivery: Delivery, outcome: StartOutcome, probed: tuple[str, ...]
    ) -> Disposition:
        """What becomes of a delivery whose start was answered, or was not."""
        engine, keeping = self._engine, self._engine.keeping
        if outcome.is_accepted:
            if delivery.downstream in probed:  # its run tells, and its sender does not wait for it
                self._begun(engine.accepted(delivery, outcome, probed))
            is_own = outcome.kind == "accepted" or outcome.execution_id == delivery.execution_id
            word = "started" if is_own else "duplicate"
            return delivery.settled("ack", word, execution_id=outcome.execution_id)
        if delivery.downstream in probed:
            await self._breakers.released(delivery.downstream)
        if outcome.kind == "refused":
            return await self._given_up(delivery, "dispatch_rejected")
        if outcome.kind == "misconfigured":
            engine.unauthorized(outcome)
            return keeping.back(delivery, "unauthorized")
        found = await keeping.hold(delivery)
        if found.settle != "nack":
            return found
        reason = "dispatch_failed" if outcome.code == _BAD_ANSWER else found.reason
        delay_ms = max(found.delay_ms, int((outcome.retry_after_s or 0.0) * 1000))
        return dataclasses.replace(found, reason=reason, delay_ms=delay_ms)

    async def _given_up(self, delivery: Delivery, reason: str) -> Disposition:
        """A dead letter, where there is a spool; else its sender is told that nothing was kept."""
        keeping = self._engine.keeping
        if self._parts.spool is not None:
            return await keeping.dead(delivery, reason)
        about = {"message_id": delivery.message_id, "status": reason}
        self._parts.tell("subscription.message.failed", about)
        return keeping.back(delivery, "dispatch_failed")
