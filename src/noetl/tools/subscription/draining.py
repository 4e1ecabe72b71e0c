"""One tick of a scheduled subscription: full batches become runs, as the engine decides."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.blobs.spool.opening import DEFAULT, Means, opened
from noetl.blobs.spool.rules import Place as SpoolPlace
from noetl.dsl.draining import DRAIN
from noetl.dsl.parse import parse
from noetl.dsl.plugins import STORED
from noetl.dsl.subscription.document import Subscription as Document
from noetl.dsl.tasks.polls import MOST_TIMEOUT_MS
from noetl.intake.assembly import Assembly, Wiring
from noetl.intake.audit import ServerPoster
from noetl.intake.circuit_stores import ServerStore
from noetl.intake.deliveries import Listener
from noetl.intake.dispatch import ServerStarter
from noetl.intake.endings import ServerEndings
from noetl.intake.keeping import OFF, ServerLetters, mode_of
from noetl.intake.metrics import IntakeMetrics
from noetl.intake.runs import Runs
from noetl.intake.settling import Settling
from noetl.sources.governor import Governor
from noetl.sources.ordering import downstreams_of
from noetl.tools.auth import credential
from noetl.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence

    from noetl.api.subscriptions import Subscription
    from noetl.blobs.spool.base import SpoolStore
    from noetl.clock import Clock
    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.intake.outcomes import Disposition
    from noetl.sources.base import PolledMessage, Source
    from noetl.sources.places import Place
    from noetl.tools.base import ToolContext
    from noetl.tools.subscription.holding import Holding
    from noetl.tools.subscription.spools import Spools

MARKED_S: Final = 5.0
"""So long the server may take to note which run is that of its tick."""
SETTLED_S: Final = 10.0
"""So long the source may take to hear what became of a batch."""
END_S: Final = 20.0
"""So long before the end of its time a tick gives back what has not come to an end."""
_LOOK_S: Final = 0.05
TIMEOUT_MS: Final = 2000
_COUNTED: Final = {
    "started": "started",
    "failed": "started",
    "duplicate": "duplicates",
    "spooled": "spooled",
}


class Ticks:
    """Drains subscriptions for the server's clock."""

    def __init__(
        self, holding: Holding, clock: Clock, spools: Spools | None, tick_s: float
    ) -> None:
        """Take what a tick needs, and how long it may take."""
        self._tick_s = tick_s
        self._holding = holding
        self._clock = clock
        self._spools = spools

    async def drain(self, place: Place, ctx: ToolContext) -> dict[str, Any]:
        """What became of the messages that waited."""
        told = await self._tick(ctx)
        model = parse(told.content or "", plugins=STORED).model
        if not isinstance(model, Document):
            raise _refused(f"{told.path} is no Subscription that can be read")
        spec = model.spec
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(self._holding.polling(place))
            store = await stack.enter_async_context(self._spool(told, spec, ctx))
            endings = ServerEndings(ctx.client, ServerStore(ctx.client))
            wiring = self._wiring(told, spec, source, store, Runs(endings.of), ctx)
            await endings.begin(told)
            assembly = Assembly(wiring)
            await assembly.start()
            stack.push_async_callback(assembly.stop)
            await assembly.prober.tick()
            if assembly.letters is not None:
                assembly.letters.wanted(told.pending_actions)
            tick = _Tick(spec, source, assembly, wiring, self._end(ctx))
            beside = asyncio.create_task(tick.beside(endings, told), name="tick")
            stack.push_async_callback(_ended, beside)
            await _first(tick.batches(), beside)
            if self._spools is not None:
                await _first(tick.emptied(self._spools.drain_s), beside)
            return tick.result()

    def _end(self, ctx: ToolContext) -> float:
        """When nothing is waited for any more: some time before the command is ended."""
        last = asyncio.get_running_loop().time() + self._tick_s
        return (last if ctx.deadline is None else min(last, ctx.deadline)) - END_S

    async def _tick(self, ctx: ToolContext) -> Subscription:
        """The subscription of this tick; refused to runs that are not the server's own."""
        told = ctx.input.get(DRAIN)
        if not isinstance(told, Mapping) or ctx.client is None or ctx.ids is None:
            raise _refused("it is the server's own operation, for the ticks of a subscription")
        loop = asyncio.get_running_loop()
        end = loop.time() + MARKED_S
        while True:
            try:
                found: Subscription = await ctx.client.subscription(
                    str(told.get("subscription_id"))
                )
            except (NoAnswer, Refused) as fault:
                raise ToolError("server_error", fault.code, fault.message) from fault
            if found.last_execution_id == ctx.execution_id:
                return found
            is_other = ctx.domain.partition("/")[2] != found.path
            if is_other or loop.time() > end:
                raise _refused(f"this run is not the tick of {found.path}")
            await asyncio.sleep(_LOOK_S)

    @asynccontextmanager
    async def _spool(
        self, told: Subscription, spec: SubscriptionSpec, ctx: ToolContext
    ) -> AsyncIterator[SpoolStore | None]:
        spool = spec.spool
        if spool is None or mode_of(spec) == OFF:
            yield None
            return
        spools = self._spools
        if spools is None:
            raise _refused("this worker has no place for spools")
        means = Means(
            home=spools.home,
            default=spools.default or DEFAULT,
            fields=await credential(spool.alias, ctx) if spool.alias else {},
            messages=spools.messages,
        )
        async with opened(spool, SpoolPlace(told.tenant_id, told.path), means) as store:
            yield store

    def _wiring(  # noqa: PLR0913, PLR0917 - what an engine is made of
        self,
        told: Subscription,
        spec: SubscriptionSpec,
        source: Source,
        store: SpoolStore | None,
        runs: Runs,
        ctx: ToolContext,
    ) -> Wiring:
        facts = source.facts()
        client = ctx.client
        return Wiring(
            listener=Listener(
                subscription_id=told.subscription_id,
                path=told.path,
                spec=spec,
                version=told.version,
                max_deliver=facts.max_deliver,
                retention_s=facts.max_age_s,
            ),
            tenant=told.tenant_id,
            # The next tick has the same name: it need not wait for one that was killed.
            holder=f"tick:{told.subscription_id}",
            ids=ctx.ids,
            clock=self._clock,
            starter=ServerStarter(client),
            poster=ServerPoster(client, ctx.worker_id, ctx.pool),
            circuits=ServerStore(client),
            letters=ServerLetters(client, told.subscription_id),
            metrics=IntakeMetrics([told.path], [one.name for one in downstreams_of(spec)]),
            store=store,
            runs=runs,
        )


class _Tick:
    """The messages of one tick: those at the source, then those that wait."""

    def __init__(
        self, spec: SubscriptionSpec, source: Source, assembly: Assembly, wiring: Wiring, end: float
    ) -> None:
        """Nothing is waited for after `end`, in the time of the event loop."""
        self._spec = spec
        self._source = source
        self._assembly = assembly
        self._clock = wiring.clock
        self._end = end
        self._governor = Governor(
            spec.limits.max_dispatch_per_sec, spec.max_in_flight, self._clock.monotonic()
        )
        self._settling = Settling(
            wiring.listener.path,
            governor=self._governor,
            metrics=wiring.metrics,
            clock=wiring.clock,
        )
        self._settling.follow(source)
        self._counts: Counter[str] = Counter()

    async def beside(self, endings: ServerEndings, told: Subscription) -> None:
        """What goes on beside the batches, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._assembly.run(), name="tick-intake")
            tasks.create_task(self._settling.run(), name="tick-settle")
            tasks.create_task(self._settling.extend(), name="tick-extend")
            tasks.create_task(endings.follow(told, self._assembly.intake.ended), name="tick-ends")

    async def batches(self) -> None:
        """Poll until a batch is not full, or until there were enough of them."""
        spec, governor = self._spec, self._governor
        timeout_ms = min(
            TIMEOUT_MS if spec.runtime.timeout_ms is None else spec.runtime.timeout_ms,
            MOST_TIMEOUT_MS[spec.source],
        )
        for _ in range(spec.max_drains_per_tick):
            room = self._assembly.intake.room(spec.runtime.batch)
            if not room:
                break
            while not (batch := governor.plan_fetch(room, self._clock.monotonic())):  # noqa: ASYNC110 - tokens come with time
                await asyncio.sleep(governor.wait_s(self._clock.monotonic(), room))
            found = await self._source.poll(batch, timeout_ms)
            if not found or not await self._handled(found) or len(found) < batch:
                break

    async def emptied(self, most_s: float) -> None:
        """Wait until nothing that waits here can go now, or until it has lasted so long."""
        drain, letters = self._assembly.drain, self._assembly.letters
        if drain is None or letters is None:
            return
        loop = asyncio.get_running_loop()
        end = min(self._end, loop.time() + most_s)
        while loop.time() < end and not (letters.is_done and drain.is_idle):  # noqa: ASYNC110 - several things
            await asyncio.sleep(_LOOK_S)

    def result(self) -> dict[str, Any]:
        """How many came to what, and what waits for the next tick."""
        names = ("received", "started", "duplicates", "spooled", "dead_lettered", "nacked")
        waiting = self._assembly.waiting()
        told = {name: self._counts[name] for name in names}
        return told if waiting is None else {**told, "spool": waiting}

    async def _handled(self, found: Sequence[PolledMessage]) -> bool:
        """Deal with a batch; false when the time is over, and what is left was given back."""
        self._governor.fetched(len(found), self._clock.monotonic())
        self._settling.took(found)
        self._counts["received"] += len(found)
        try:
            async with asyncio.timeout_at(self._end):
                messages = [message.as_json() for message in found]
                await self._assembly.intake.handle(messages, settle=self._settle)
        except TimeoutError:
            self._counts["nacked"] += self._settling.held
            await self._settling.give_back()
            return False
        return await self._settling.settled(SETTLED_S)

    def _settle(self, end: Disposition) -> None:
        name = "nacked" if end.settle == "nack" else _COUNTED.get(end.outcome, "dead_lettered")
        self._counts[name] += 1
        self._settling.settle(end)


async def _first(work: Coroutine[Any, Any, None], beside: asyncio.Task[None]) -> None:
    """Do it, unless what goes on beside it breaks down."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait((task, beside), return_when=asyncio.FIRST_COMPLETED)
        if beside.done():
            beside.result()
        await task
    finally:
        await _ended(task)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))


def _refused(said: str) -> ToolError:
    return ToolError("config", "invalid_config", f"/operation: `drain` cannot be done: {said}")
