"""An engine on a server of memory parts, and messages as a source gives them."""

from __future__ import annotations

from contextlib import asynccontextmanager

from noetl.bus.memory_keys import MemoryKeys
from noetl.ids import Ids
from noetl.intake.assembly import Assembly, Wiring
from noetl.intake.audit import ServerPoster
from noetl.intake.circuit_stores import KeysStore
from noetl.intake.deliveries import Listener
from noetl.intake.dispatch import ServerStarter
from noetl.intake.keeping import ServerLetters
from noetl.intake.metrics import IntakeMetrics
from noetl.sources.base import body_of
from tests.unit.intake.world import spec_of
from tests.unit.server.rig import rig
from tests.unit.server.subscriptions.stage import PATH, TARGET, registered


def polled(number, raw, headers=None):
    """A message as a source gives it."""
    return {
        "id": f"PLANT:{number}",
        **body_of(raw),
        "headers": headers or {},
        "attributes": {},
        "metadata": {"source": "nats", "size_bytes": len(raw)},
        "ordering_key": f"k{number % 7}",
        "ack_id": f"ack-{number}",
    }


class Counted(ServerStarter):
    """Notes how many starts each request has."""

    def __init__(self, client):
        super().__init__(client)
        self.asked = []

    async def start(self, starts):
        self.asked.append(len(starts))
        return await super().start(starts)


class Bench:
    """An engine on a server of memory parts."""

    def __init__(self, r, sub, *, store=None, **dispatch):
        self.r = r
        self.sub = sub
        self.store = store
        self.starter = Counted(r.client)
        self._circuits = KeysStore(MemoryKeys(r.plane.parts.clock))
        self._spec = spec_of(
            dispatch={"playbook": TARGET, **dispatch},
            runtime={"batch": 500},
            spool=None if store is None else {},
        )
        self.engine = self.begun("one")

    def begun(self, holder):
        """A process that begins."""
        r, sub, spec, clock = self.r, self.sub, self._spec, self.r.plane.parts.clock
        return Assembly(
            Wiring(
                listener=Listener(subscription_id=sub, path=PATH, spec=spec, version=1),
                tenant="default",
                holder=holder,
                ids=Ids(clock, 9),
                clock=clock,
                starter=self.starter,
                poster=ServerPoster(r.client, holder, "subscription"),
                circuits=self._circuits,
                letters=ServerLetters(r.client, sub),
                metrics=IntakeMetrics([PATH], ["default"]),
                store=self.store,
            )
        )

    async def handle(self, *messages):
        """What each came to."""
        found = await self.engine.intake.handle(messages)
        return [(one.settle, one.outcome, one.reason) for one in found]

    async def runs(self):
        """The messages that have a run."""
        rows = await self.r.store.executions.children(self.sub)
        events = [(await self.r.client.events(row.execution_id, limit=1)).items[0] for row in rows]
        return sorted(event["meta"]["subscription"]["message_id"] for event in events)

    async def letters(self):
        """The messages that are dead, and why."""
        page = await self.r.client.dead_letters(self.sub)
        return [(one.message_id, one.reason) for one in page.items]


@asynccontextmanager
async def bench(**more):
    async with rig() as r:
        yield Bench(r, await registered(r), **more)
