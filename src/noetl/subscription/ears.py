"""All that listens by one version of a subscription: its source, its engine, and what is held."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from noetl.intake.assembly import Assembly, Wiring
from noetl.intake.deliveries import Listener
from noetl.intake.runs import Runs
from noetl.intake.settling import Settling
from noetl.sources.governor import Governor

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping, Sequence

    from noetl.blobs.spool.base import SpoolStore
    from noetl.intake.outcomes import RunOutcome
    from noetl.sources.base import Source
    from noetl.subscription.ports import Ports
    from noetl.subscription.state import Listened, Task

COUNTED_S: Final = 1.0
_MINUTE_S: Final = 60.0
_log: Final = logging.getLogger(__name__)


class Ears:
    """What `open` has opened; `tasks` are to run until `close`."""

    def __init__(
        self, listened: Listened, ports: Ports, source: Source, store: SpoolStore | None
    ) -> None:
        self.listened = listened
        self.source = source
        self._ports = ports
        self._opened = AsyncExitStack()
        self._task: Task = "listen"
        self._rate: deque[tuple[float, int]] = deque()
        spec, facts = listened.spec, source.facts()
        self._assembly = assembly = Assembly(
            Wiring(
                listener=Listener(
                    subscription_id=listened.subscription_id,
                    path=listened.path,
                    spec=spec,
                    version=listened.version,
                    max_deliver=facts.max_deliver,
                    retention_s=facts.max_age_s,
                ),
                tenant=listened.tenant,
                holder=ports.name,
                ids=ports.ids,
                clock=ports.clock,
                starter=ports.starter,
                poster=ports.poster,
                circuits=ports.circuits,
                letters=ports.letters(listened),
                metrics=ports.metrics,
                store=store,
                runs=Runs(ports.endings.of),
                tracer=ports.tracer,
                may_drain=lambda: self._task in {"listen", "drain"},
            )
        )
        self.audit, self.intake, self.lease = assembly.audit, assembly.intake, assembly.lease
        self.spool = assembly.spool
        governor = Governor(
            spec.limits.max_dispatch_per_sec, spec.max_in_flight, ports.clock.monotonic()
        )
        self.settling = Settling(
            listened.path, governor=governor, metrics=ports.metrics, clock=ports.clock
        )
        self.settling.follow(source)

    @classmethod
    async def open(cls, listened: Listened, ports: Ports) -> Ears:
        """Open everything; the fault of what cannot be opened is raised, and nothing stays open."""
        async with AsyncExitStack() as stack:
            source = await ports.source(listened)
            stack.push_async_callback(source.close)
            store = await stack.enter_async_context(ports.spool(listened))
            ears = cls(listened, ports, source, store)
            await ports.endings.begin(listened)
            await ears._assembly.start()
            ears._opened = stack.pop_all()
        return ears

    def tasks(self) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """What is to run beside the fetching, by name."""
        yield "settle", self.settling.run()
        yield "extend", self.settling.extend()
        yield "intake", self._assembly.run()
        yield "outcomes", self._ports.endings.follow(self.listened, self._ended)
        yield "rate", self._count()

    def steer(self, task: Task, requests: Sequence[Mapping[str, Any]]) -> None:
        """What is to be done now, and with which dead letters."""
        if task != self._task and self._assembly.drain is not None:
            self._assembly.drain.wake()
        self._task = task
        if self._assembly.letters is not None:
            self._assembly.letters.wanted(requests if self.lease.is_held else ())

    async def close(self) -> None:
        """Tell what is left to tell, and let go."""
        await self._assembly.stop()
        await self._opened.aclose()

    @property
    def is_drained(self) -> bool:
        """Whether nothing is under way and nothing waits."""
        return not self.settling.held and (self.spool is None or not self.spool.pending())

    def figures(self) -> dict[str, Any]:
        """What the server is told: how much is under way and waits, and how fast it came."""
        told: dict[str, Any] = {
            "in_flight": self.settling.held,
            "rate_per_minute": self._per_minute(),
        }
        waiting = self._assembly.waiting()
        if waiting is not None:
            told["spool"] = waiting
        return told

    async def _ended(self, outcome: RunOutcome) -> None:
        await self.intake.ended(outcome)

    async def _count(self) -> None:
        """Note how many messages came, for their number in the last minute."""
        received, path = self._ports.metrics.received, self.listened.path
        while True:
            now = self._ports.clock.monotonic()
            self._rate.append((now, int(received.value(path))))
            while now - self._rate[0][0] > _MINUTE_S:
                self._rate.popleft()
            await asyncio.sleep(COUNTED_S)

    def _per_minute(self) -> float:
        if not self._rate:
            return 0.0
        (began, first), (now, last) = self._rate[0], self._rate[-1]
        passed_s = now - began
        return round((last - first) * _MINUTE_S / passed_s, 1) if passed_s else 0.0
