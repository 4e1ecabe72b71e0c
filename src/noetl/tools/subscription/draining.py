"""One tick of a scheduled subscription: full batches become runs, as the engine decides."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final

from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.blobs.spool.opening import Means, opened
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
from noetl.intake.keeping import OFF, ServerLetters, mode_of
from noetl.intake.metrics import IntakeMetrics
from noetl.sources.governor import Governor
from noetl.sources.ordering import downstreams_of
from noetl.tools.auth import credential
from noetl.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from noetl.api.subscriptions import Subscription
    from noetl.blobs.spool.base import SpoolStore
    from noetl.clock import Clock
    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.intake.outcomes import Disposition
    from noetl.sources.base import PolledMessage, Source
    from noetl.sources.places import Place
    from noetl.tools.base import ToolContext
    from noetl.tools.subscription.holding import Holding

MARKED_S: Final = 5.0
"""So long the server may take to note which run is that of its tick."""
_LOOK_S: Final = 0.05
TIMEOUT_MS: Final = 2000
_COUNTED: Final = {"started": "started", "duplicate": "duplicates", "spooled": "spooled"}


class Ticks:
    """Drains subscriptions for the server's clock."""

    def __init__(self, holding: Holding, clock: Clock, home: Path | None) -> None:
        """`home` is where spools on local disks begin."""
        self._holding = holding
        self._clock = clock
        self._home = home

    async def drain(self, place: Place, ctx: ToolContext) -> dict[str, int]:
        """What became of the messages that waited."""
        told = await self._tick(ctx)
        model = parse(told.content or "", plugins=STORED).model
        if not isinstance(model, Document):
            raise _refused(f"{told.path} is no Subscription that can be read")
        spec = model.spec
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(self._holding.polling(place))
            store = await stack.enter_async_context(self._spool(told, spec, ctx))
            assembly = Assembly(self._wiring(told, spec, source, store, ctx))
            await assembly.start()
            stack.push_async_callback(assembly.stop)
            background = asyncio.create_task(assembly.run(), name="tick")
            stack.push_async_callback(_ended, background)
            return await self._batches(spec, source, assembly)

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
        if self._home is None:
            raise _refused("this worker has no folder for spools")
        fields = await credential(spool.alias, ctx) if spool.alias else {}
        means = Means(home=self._home, fields=fields)
        async with opened(spool, SpoolPlace(told.tenant_id, told.path), means) as store:
            yield store

    def _wiring(
        self,
        told: Subscription,
        spec: SubscriptionSpec,
        source: Source,
        store: SpoolStore | None,
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
            holder=ctx.command_id,
            ids=ctx.ids,
            clock=self._clock,
            starter=ServerStarter(client),
            poster=ServerPoster(client, ctx.worker_id, ctx.pool),
            circuits=ServerStore(client),
            letters=ServerLetters(client, told.subscription_id),
            metrics=IntakeMetrics([told.path], [one.name for one in downstreams_of(spec)]),
            store=store,
        )

    async def _batches(
        self, spec: SubscriptionSpec, source: Source, assembly: Assembly
    ) -> dict[str, int]:
        """Poll until a batch is not full, or until there were enough of them."""
        governor = Governor(
            spec.limits.max_dispatch_per_sec, spec.max_in_flight, self._clock.monotonic()
        )
        timeout_ms = min(
            TIMEOUT_MS if spec.runtime.timeout_ms is None else spec.runtime.timeout_ms,
            MOST_TIMEOUT_MS[spec.source],
        )
        counts: Counter[str] = Counter()
        for _ in range(spec.max_drains_per_tick):
            room = assembly.intake.room(spec.runtime.batch)
            if not room:
                break
            while not (batch := governor.plan_fetch(room, self._clock.monotonic())):  # noqa: ASYNC110 - tokens come with time
                await asyncio.sleep(governor.wait_s(self._clock.monotonic(), room))
            found = await source.poll(batch, timeout_ms)
            governor.fetched(len(found), self._clock.monotonic())
            counts += await self._handled(found, source, assembly)
            governor.settled(len(found))
            if len(found) < batch:
                break
        names = ("received", "started", "duplicates", "spooled", "dead_lettered", "nacked")
        return {name: counts[name] for name in names}

    async def _handled(
        self, found: Sequence[PolledMessage], source: Source, assembly: Assembly
    ) -> Counter[str]:
        ends = await assembly.intake.handle([message.as_json() for message in found])
        await _settled(ends, source)
        counts = Counter({"received": len(found)})
        for end in ends:
            if end.settle == "nack":
                counts["nacked"] += 1
            else:
                counts[_COUNTED.get(end.outcome, "dead_lettered")] += 1
        return counts


async def _settled(ends: Sequence[Disposition], source: Source) -> None:
    """Tell the source; what cannot be told comes again and is a duplicate then."""
    groups: dict[tuple[str, int], list[str]] = {}
    for end in ends:
        if end.ack_id is not None:
            groups.setdefault((end.settle, end.delay_ms), []).append(end.ack_id)
    for (word, delay_ms), ack_ids in groups.items():
        if word == "nack":
            await source.nack(ack_ids, delay_ms)
        elif word == "term":
            await source.term(ack_ids)
        else:
            await source.ack(ack_ids)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))


def _refused(said: str) -> ToolError:
    return ToolError("config", "invalid_config", f"/operation: `drain` cannot be done: {said}")
