"""A process that dies at any point is followed by one that loses nothing and repeats nothing."""

from __future__ import annotations

import asyncio

import pytest

from noetl.blobs.spool.memory import MemoryStore
from noetl.intake.letters import Wanted, redrive
from noetl.intake.metrics import SPOOLED
from noetl.local.virtual import run_virtually
from tests.simulation.loop import run_shuffled
from tests.unit.intake.world import PATH, World, brought, message, push_of, until

TSDB = {"name": "tsdb", "probe": "tcp", "target": "tsdb:5432"}
CIRCUIT = {"downstream": [TSDB], "probe_after_ms": 1000, "probe_interval_ms": 1000}


class Mortal(MemoryStore):
    """A store whose caller dies at one of its calls: before it is done, or after."""

    def __init__(self):
        super().__init__()
        self.died = asyncio.Event()
        self.calls = 0
        self.dies_at = None
        self.dies_when = None
        self.is_after = False

    async def _call(self, call, name, key):
        self.calls += 1
        is_last = self.calls == self.dies_at or bool(self.dies_when and self.dies_when(name, key))
        if is_last and not self.died.is_set():
            if self.is_after:
                await call
            else:
                call.close()
            self.died.set()
            self.dies_when = None
            await asyncio.get_running_loop().create_future()  # nothing of it is heard again
        return await call

    async def put_new(self, key, data):
        return await self._call(super().put_new(key, data), "put_new", key)

    async def put(self, key, data):
        # `put_new` of the base ends in a `put`: one call to whoever asked.
        return await MemoryStore.put(self, key, data)

    async def delete(self, key):
        return await self._call(super().delete(key), "delete", key)


class Source:
    """Delivers what was not settled, again and again, in order."""

    def __init__(self, messages):
        self.open = {one["id"]: one for one in messages}

    def settle(self, found):
        if found.settle != "nack":
            self.open.pop(found.message_id, None)


async def life(world, source, *, is_up, seconds=40.0):
    """One process: it takes what the source has and lives until it dies or has had its time."""
    world.up["tsdb:5432"] = is_up
    died = world.store.died
    async with world.running() as engine:
        if not is_up:
            await until(lambda: died.is_set() or not engine.breakers.is_closed("tsdb"))
        given = list(source.open.values())
        handling = asyncio.create_task(engine.intake.handle(given, settle=source.settle))
        world.up["tsdb:5432"] = is_up
        await asyncio.sleep(1)
        world.up["tsdb:5432"] = True
        dying = asyncio.create_task(died.wait())
        await asyncio.wait({dying}, timeout=seconds)
        for task in (handling, dying):
            task.cancel()
        await asyncio.wait({handling, dying})


def drill(dies_at, *, is_after, run=run_virtually):
    """Six messages of two keys through an outage, with a death at one call of the store."""

    async def main():
        world = World(spool={"circuit": CIRCUIT})
        world.store = Mortal()
        world.store.dies_at, world.store.is_after = dies_at, is_after
        source = Source([message(n, f"k{n % 2}") for n in range(6)])
        await life(world, source, is_up=False)
        has_died, calls = world.store.died.is_set(), world.store.calls
        if has_died:
            world.store.died = asyncio.Event()
            world.store.dies_at = None
            await life(world, source, is_up=True, seconds=90.0)
        assert source.open == {}
        assert sorted(world.server.started) == [f"S:{n}" for n in range(6)]
        for lane in range(2):
            order = [int(name[2:]) for name in world.server.started if int(name[2:]) % 2 == lane]
            assert order == [lane, lane + 2, lane + 4]
        assert await world.objects() == []
        assert await world.objects("dlq") == []
        return has_died, calls

    return run(main())


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_death_at_any_call_of_the_store_loses_nothing_repeats_nothing_and_keeps_the_order(
    is_after,
):
    has_died, calls = drill(None, is_after=is_after)
    assert (has_died, calls >= 12) == (False, True)
    for dies_at in range(1, calls + 1):
        has_died, _ = drill(dies_at, is_after=is_after)
        assert has_died


@pytest.mark.parametrize("seed", range(4))
def test_a_death_loses_nothing_in_whatever_order_tasks_run(seed):
    def run(main):
        return run_shuffled(main, str(seed))

    for dies_at in range(1 + seed, 13, 4):
        drill(dies_at, is_after=bool(seed % 2), run=run)


def test_22_a_death_between_a_replay_and_its_delete_gives_one_execution_each():
    async def main():
        world = World(spool={"circuit": CIRCUIT})
        world.store = Mortal()
        source = Source([message(n, f"k{n}") for n in range(4)])
        world.store.dies_when = lambda name, key: name == "delete" and "/spool/" in key
        await life(world, source, is_up=False)
        assert world.store.died.is_set()
        assert (len(world.server.started) >= 1, len(await world.objects()) >= 1) == (True, True)
        world.store.died = asyncio.Event()
        async with world.running() as engine:
            await until(lambda: not engine.spool.pending())
            await engine.audit.flush()
        assert sorted(world.server.started) == [f"S:{n}" for n in range(4)]
        assert sum(one["deduped"] for one in world.server.told("spool.drained")) >= 1

    run_virtually(main())


def test_a_death_between_the_start_of_a_run_and_its_acknowledgement_gives_one_execution():
    async def main():
        world = World()
        source = Source([message(1), message(2)])
        async with world.running() as engine:
            await engine.intake.handle(list(source.open.values()))  # nobody was told
        async with world.running() as engine:
            await engine.intake.handle(list(source.open.values()), settle=source.settle)
        assert (world.server.started, source.open) == (["S:1", "S:2"], {})

    run_virtually(main())


@pytest.mark.parametrize("is_busy", [False, True], ids=["it runs now", "it is still poison"])
def test_a_death_between_the_copy_of_a_dead_letter_and_its_delete_leaves_one_of_them(is_busy):
    async def main():
        world = World(spool={"circuit": CIRCUIT, "drain": {"max_replay_attempts": 2}})
        world.store = Mortal()
        source = Source([message(n) for n in range(3)])
        world.server.busy.add("S:0")
        world.store.dies_when = lambda name, key: name == "delete" and "/spool/" in key
        await life(world, source, is_up=False)
        assert world.store.died.is_set()
        assert len(await world.objects("dlq")) == 1
        assert len(await world.objects()) == 3
        world.store.died = asyncio.Event()
        if not is_busy:
            world.server.busy.clear()
        async with world.running() as engine:
            await until(lambda: not engine.spool.pending())
            await engine.audit.flush()
            assert world.server.started == (["S:0"] * (not is_busy) + ["S:1", "S:2"])
            told = world.server.told("message.dead_lettered")
            assert [one["message_id"] for one in told] == (["S:0"] if is_busy else [])
            assert len(await world.objects("dlq")) == is_busy
            world.server.busy.clear()
            await redrive(engine.spool, Wanted(), world.clock)
            engine.drain.wake()
            await until(lambda: not engine.spool.pending())
        assert sorted(world.server.started) == ["S:0", "S:1", "S:2"]

    run_virtually(main())


@pytest.mark.parametrize("is_after", [False, True], ids=["before", "after"])
def test_a_death_in_a_redrive_runs_the_item_once(is_after):
    async def main():
        world = World(spool={"circuit": CIRCUIT})
        world.store = Mortal()
        world.server.refused.add("plant/store")
        source = Source([message(1)])
        await life(world, source, is_up=True, seconds=5)
        assert len(await world.objects("dlq")) == 1
        world.server.refused.clear()
        world.store.dies_when = lambda name, key: name == "delete" and "/dlq/" in key
        world.store.is_after = is_after
        async with world.running() as engine:
            task = asyncio.create_task(redrive(engine.spool, Wanted(), world.clock))
            await world.store.died.wait()
            task.cancel()
            await asyncio.wait({task})
        async with world.running() as engine:
            await redrive(engine.spool, Wanted(), world.clock)
            engine.drain.wake()
            await until(lambda: not engine.spool.pending())
        assert world.server.started == ["S:1"]
        assert await world.objects("dlq") == []

    run_virtually(main())


def test_a_death_while_a_probe_is_under_way_does_not_leave_the_circuit_half_open():
    async def main():
        world = World(spool={"circuit": {"trip_after": 1, "probe_after_ms": 1000}})
        async with world.running() as engine:
            await engine.breakers.failed("default")
            await engine.intake.handle([message(1)])
            world.server.takes_s = 1000.0
            await until(lambda: engine.breakers.state("default").phase == "half_open")
        world.server.takes_s = 0.0
        async with world.running() as engine:
            assert engine.breakers.state("default").phase == "open"
            await until(lambda: not engine.spool.pending(), 5)
            assert engine.breakers.is_closed("default")
        assert world.server.started == ["S:1"]

    run_virtually(main())


def spooled(world):
    """Ids and messages of the events that tell of messages in the spool."""
    kind = "subscription.message.spooled"
    events = [one for one in world.server.events.values() if one.event_type == kind]
    assert all(one.event_id == one.payload["recv_seq"] for one in events)
    return sorted(one.payload["message_id"] for one in events)


def test_what_was_stored_and_not_told_by_one_that_died_is_told_by_the_next():
    async def main():
        world = World(push_of({}))
        world.server.is_down = True
        first = world.engine()
        await first.start()
        found = [await first.intake.push(brought(world.spec, n)) for n in range(20)]
        assert {one.outcome for one in found} == {"spooled"}
        assert await world.objects("events") == [], "it died before it told anybody"
        async with world.running("two"):
            await asyncio.sleep(5)
            assert (spooled(world), len(await world.objects("events"))) == ([], 1)
        world.server.is_down = False
        async with world.running("three"):
            await until(lambda: len(world.server.started) == 20)
            await until(lambda: spooled(world) == sorted(f"W:{n}" for n in range(20)))
        assert sum(world.metrics.spooled.value(PATH, reason) for reason in SPOOLED) == 20

    run_virtually(main())


def test_what_was_told_before_is_stored_once():
    async def main():
        world = World(push_of({}))
        world.may_drain = False
        async with world.running() as engine:
            for number in range(20):
                await engine.intake.push(brought(world.spec, number, is_paused=True))
            await until(lambda: len(spooled(world)) == 20)
        async with world.running("two"):
            await asyncio.sleep(5)
        assert spooled(world) == sorted(f"W:{n}" for n in range(20))
        assert sum(world.metrics.spooled.value(PATH, reason) for reason in SPOOLED) == 20

    run_virtually(main())
