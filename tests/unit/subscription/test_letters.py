"""Dead letters that somebody wants to be dropped, when several listen and one takes over."""

import asyncio
from contextlib import asynccontextmanager

from noetl.blobs.spool.memory import MemoryStore
from noetl.bus.memory_keys import MemoryKeys
from noetl.clock import LoopClock, rfc3339
from noetl.ids import Ids
from noetl.intake.circuit_stores import KeysStore
from noetl.intake.metrics import IntakeMetrics
from noetl.local.virtual import run_virtually
from noetl.sources.memory import MemorySource
from noetl.subscription.ears import Ears
from noetl.subscription.ports import Ports
from noetl.subscription.state import Listened
from tests.unit.intake.world import PATH, START, Server, message, spec_of
from tests.unit.subscription.test_runtime import Ends, Person


class House:
    """Listeners of one subscription, with one spool."""

    def __init__(self):
        self.clock = LoopClock(asyncio.get_running_loop(), START)
        self.server = Server(self.clock)
        self.server.refused.add("plant/store")
        self.store = MemoryStore(is_shared=True)
        self.circuits = KeysStore(MemoryKeys(self.clock))
        self.listened = Listened(
            subscription_id="1", path=PATH, tenant="default", version=1, spec=spec_of(spool={})
        )
        self.requests = []

    @asynccontextmanager
    async def listening(self, name, machine):
        """One listener, which looks at the state again and again."""

        async def source(_listened):
            return MemorySource(self.clock, ack_wait_s=6.0)

        @asynccontextmanager
        async def spool(_listened):
            yield self.store

        ports = Ports(
            name=name, clock=self.clock, ids=Ids(self.clock, machine),
            control=Person(self.listened), starter=self.server, endings=Ends(self.server),
            poster=self.server, circuits=self.circuits, letters=lambda _: self.server,
            source=source, spool=spool, metrics=IntakeMetrics((PATH,)),
        )  # fmt: skip
        ears = await Ears.open(self.listened, ports)

        async def steer():
            while True:
                ears.steer("listen", self.requests)
                await asyncio.sleep(5)

        tasks = [asyncio.create_task(work) for _, work in ears.tasks()]
        tasks.append(asyncio.create_task(steer()))
        try:
            yield ears
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await ears.close()

    async def dead(self):
        """The dead letters that are there."""
        folder = f"default/{PATH}/dlq/"
        found = await self.store.list(folder)
        return [one.key.rpartition("-")[2] for one in found]


def test_a_request_that_is_done_is_not_done_again_by_the_one_who_takes_over():
    async def main():
        house = House()
        async with house.listening("one", 1) as leader, house.listening("two", 2) as heir:
            assert (leader.lease.is_held, heir.lease.is_held) == (True, False)
            await leader.intake.handle([message(1)])
            await asyncio.sleep(1)
            at = rfc3339(house.clock.now())
            asked = {"request_id": "9", "action": "discard", "all": True, "at": at}
            house.requests = [{**asked, "remaining": 1}]
            await asyncio.sleep(12)
            done = house.server.told("discard.completed")
            assert done == [{"request_id": "9", "done": 1, "missing": 0, "corrupt": 0}]
            house.requests = []
            await asyncio.sleep(12)
            await leader.lease.release()
            await asyncio.sleep(3600)
            assert heir.lease.is_held
            await heir.intake.handle([message(2)])
            await asyncio.sleep(60)
            assert await house.dead() == ["S_2.json"]
            assert house.server.told("discard.completed") == done

    run_virtually(main())


def test_a_request_that_the_leader_did_not_end_is_done_by_the_one_who_takes_over():
    async def main():
        house = House()
        async with house.listening("two", 2) as heir:
            await heir.intake.handle([message(1)])
            await heir.lease.release()
            await asyncio.sleep(1)
            at = rfc3339(house.clock.now())
            asked = {"request_id": "9", "action": "discard", "all": True, "at": at}
            house.requests = [{**asked, "remaining": 1}]
            await asyncio.sleep(60)
            assert await house.dead() == ["S_1.json"], "it has no lease any more"
            async with house.listening("one", 1):
                await asyncio.sleep(60)
                assert await house.dead() == []

    run_virtually(main())
