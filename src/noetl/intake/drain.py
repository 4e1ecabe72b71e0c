"""Messages that waited become executions: lane beside lane, each lane in order, at a pace.

An item leaves the spool when its run is there. Whoever dies in between starts it again under the
same key, which is a duplicate. At the start nothing goes before its downstream has answered.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from noetl.blobs.spool.base import SpoolError
from noetl.intake.lanes import Pace
from noetl.intake.replay import Replays
from noetl.intake.spans import spanned
from noetl.sources.ordering import SERVER, is_ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from noetl.blobs.spool.order import Entry
    from noetl.blobs.spool.spool import Spool
    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.intake.engine import Intake
    from noetl.intake.parts import Parts
    from noetl.intake.probing import Prober
    from noetl.intake.replay import Tally
    from noetl.telemetry.traces.tracer import About

LEAST_PAUSE_S: Final = 1.0
MOST_PAUSE_S: Final = 60.0
SOONEST_S: Final = 0.02
MOST_ENDING: Final = 512
"""How many that have their runs may still lie in the store while others go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """What one pass came to."""

    replayed: int = 0
    deduped: int = 0
    dead_lettered: int = 0
    remaining: int = 0

    @property
    def progress(self) -> int:
        """How many wait no more."""
        return self.replayed + self.deduped + self.dead_lettered


class Drain:
    """Empties the spool of one subscription."""

    def __init__(
        self,
        parts: Parts,
        intake: Intake,
        prober: Prober,
        *,
        may_drain: Callable[[], bool] = lambda: True,
    ) -> None:
        if parts.spool is None:
            raise ValueError("there is no spool to drain")
        self._spool: Spool = parts.spool
        self._parts = parts
        self._breakers = parts.breakers
        self._prober = prober
        self._may_drain = may_drain
        self._rules = parts.listener.spec.spool.drain if parts.listener.spec.spool else None
        self._lanes = self._rules.lanes if self._rules else 16
        self._pace = Pace(_pace_of(parts.listener.spec), parts.clock)
        self._is_push = parts.listener.spec.mode == "push"
        self._replays = Replays(parts, intake)
        self._tried: set[str] = set()
        """Downstreams that have answered since the start: only these get more than one item."""
        self._trials: dict[str, asyncio.Task[bool]] = {}
        self._fault: BaseException | None = None
        self._woken = asyncio.Event()
        self._is_leader = False
        self._is_resting = False
        parts.breakers.closed = self.wake
        intake.keeping.began = self.wake

    @property
    def is_idle(self) -> bool:
        """Whether nothing goes now: nothing waits, or what waits cannot go yet."""
        return self._is_resting and not self._trials and not self._woken.is_set()

    def wake(self, _name: str = "") -> None:
        """Something is back, or has come: begin at once."""
        self._woken.set()

    async def recover(self) -> int:
        """Learn what waits, at the start or when this process takes over; nothing is trusted."""
        self._tried.clear()
        is_leader = self._may_drain()
        waiting = await self._spool.recover()
        self._is_leader = is_leader
        return waiting

    async def run(self) -> None:
        """Drain whenever there is something to drain, until cancelled."""
        try:
            await self._run()
        finally:
            trials = list(self._trials.values())
            for task in trials:
                task.cancel()
            if trials:
                await asyncio.wait(trials)

    async def _run(self) -> None:
        pause = LEAST_PAUSE_S
        while True:
            self._woken.clear()
            if not self._may_drain():
                self._is_leader = False
                if await self._rest(LEAST_PAUSE_S):
                    await self._looked()
                continue
            if not self._is_leader:
                await self._led()
                if not self._is_leader:
                    await self._rest(LEAST_PAUSE_S)
                    continue
            done = await self.once()
            if not done.remaining or done.progress:
                pause = LEAST_PAUSE_S
            if await self._rest(self._pause_s(pause, done)):
                pause = LEAST_PAUSE_S
            elif done.remaining and not done.progress:
                pause = min(pause * 2, MOST_PAUSE_S)

    async def once(self) -> Drained:
        """One pass over what waits for downstreams that are there."""
        self._spool.next_pass()
        tally = self._replays.begin()
        if self._fault is not None:
            raise self._fault
        waiting = [name for name in self._breakers.names if self._spool.pending(name)]
        self._try_others(waiting)
        if any(map(self._is_ready, waiting)) and await self._looked():
            self._parts.tell("subscription.spool.draining", {"pending": self._spool.pending()})
            about: About = {
                "subscription": self._parts.listener.path,
                "pending": self._spool.pending(),
            }
            try:
                with spanned(self._parts.tracer, "subscription.spool.drain", None, about):
                    await self._pass(waiting)
            finally:
                done = self._drained(tally)
                told = {
                    "replayed": done.replayed,
                    "deduped": done.deduped,
                    "dead_lettered": done.dead_lettered,
                    "remaining": done.remaining,
                }
                self._parts.tell("subscription.spool.drained", told)
        return self._drained(tally)

    async def _led(self) -> None:
        try:
            await self.recover()
        except SpoolError:
            return  # the next turn tries again; nothing is drained by one who does not know what

    async def _looked(self) -> bool:
        """Learn what others have added, so that all goes in order; whether that could be seen."""
        try:
            await self._spool.look()
        except SpoolError:
            return False  # the next turn tries again
        return True

    def _drained(self, tally: Tally) -> Drained:
        return Drained(
            replayed=tally.replayed,
            deduped=tally.deduped,
            dead_lettered=tally.dead_lettered,
            remaining=self._spool.pending(),
        )

    def _is_ready(self, name: str) -> bool:
        return name in self._tried and self._breakers.is_closed(SERVER, name)

    def _try_others(self, names: list[str]) -> None:
        """Ask those that have not answered yet, beside all else: an answer may take a while."""
        for name in names:
            if name not in self._trials and not self._is_ready(name) and self._may_go_on:
                task = asyncio.create_task(self._try(name), name=f"intake-trial-{name}")
                self._trials[name] = task
                task.add_done_callback(lambda _, name=name: self._tried_out(name))  # type: ignore[misc]  # a default binds it

    def _tried_out(self, name: str) -> None:
        task = self._trials.pop(name)
        if task.cancelled():
            return
        self._fault = task.exception()
        has_asked = self._fault is None and task.result()
        # A circuit that was asked in vain has a new window: the pause is to be measured anew.
        is_shut = has_asked and not self._breakers.is_closed(SERVER, name)
        if self._fault is not None or self._is_ready(name) or is_shut:
            self.wake()

    async def _try(self, name: str) -> bool:
        """Ask by a probe, or, where nobody else can ask, by one item; whether one was sent."""
        is_passive = name not in self._prober.names
        if not is_passive:
            if not self._breakers.is_closed(name):
                return False
            if name not in self._tried and not await self._prober.is_up(name):
                return False
            self._tried.add(name)
        has_asked = False
        while not self._is_ready(name) and self._may_go_on:
            word, probed = await self._breakers.enter(SERVER, name)
            may_go = word != "hold" and await self._looked()
            entry = self._spool.take([name]) if may_go else None
            if entry is None:
                for one in probed:
                    await self._breakers.released(one)
                break
            has_asked = True
            await self._paced(entry)
            is_up = await self._replays.replay(
                entry, is_trial=True, is_probe=is_passive, probed=probed
            )
            if is_up is not None:
                self._tried.update([name] if is_up else [])
                break
        return has_asked

    async def _pass(self, names: list[str]) -> None:
        """Up to so many lanes at once, until nothing is left that may go."""
        tasks: set[asyncio.Task[object]] = set()
        try:
            while True:
                going = [name for name in names if self._is_ready(name)]
                entry = None
                if self._may_go_on and going and len(tasks) < self._lanes:
                    entry = self._spool.take(going)
                if entry is not None:
                    tasks.add(asyncio.create_task(await self._next(entry)))
                elif tasks:
                    done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
                    await self._replays.ended(MOST_ENDING)
                else:
                    await self._replays.ended()
                    return
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)
            await self._replays.stop()

    async def _next(self, entry: Entry) -> Coroutine[Any, Any, object]:
        """The work on one that was taken, at the pace.

        Deliveries without a key come along with those behind them: they go in the order in which
        they came, but none of them waits for the run of another.
        """
        entries = [entry]
        if self._is_push and not is_ordered(self._parts.listener.spec, entry.lane):
            while len(entries) < self._replays.shared_max and self._pace.is_free:
                behind = self._spool.take_behind(entries[-1])
                if behind is None:
                    break
                entries.append(behind)
        await self._paced(*entries)
        if len(entries) == 1:
            return self._replays.replay(entry)
        return self._replays.replay_together(entries)

    async def _paced(self, *entries: Entry) -> None:
        try:
            for _ in entries:
                await self._pace.wait()
        except BaseException:
            for entry in entries:
                self._spool.give_back(entry)
            raise

    @property
    def _may_go_on(self) -> bool:
        return self._may_drain() and not self._replays.is_unauthorized

    def _pause_s(self, pause: float, done: Drained) -> float:
        """Until the next pass: soon when there is more to do, else when a probe may go."""
        if not done.remaining:
            return MOST_PAUSE_S
        waits = [
            self._breakers.wait_ms(SERVER, name) / 1000
            for name in self._breakers.names
            if name != SERVER
            and name not in self._prober.names
            and self._spool.pending(name)
            and not self._breakers.is_closed(SERVER, name)
        ]
        return min(pause, max(min(waits, default=pause), SOONEST_S))

    async def _rest(self, seconds: float) -> bool:
        """Wait; whether somebody has called."""
        self._is_resting = True
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return False
        finally:
            self._is_resting = False
        return True


def _pace_of(spec: SubscriptionSpec) -> float | None:
    """So many a second as its drain says; what is pushed goes no faster than it may come."""
    if spec.spool is not None and spec.spool.drain.rate_per_sec is not None:
        return spec.spool.drain.rate_per_sec
    if spec.mode != "push":
        return None
    rate = spec.ingress.rate if spec.ingress is not None else None
    return rate.per_sec if rate is not None else spec.limits.max_dispatch_per_sec
