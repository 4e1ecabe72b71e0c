"""The loop of a listener in virtual time: limits, states, refusals, versions, and the end."""

import asyncio
from contextlib import asynccontextmanager, nullcontext

import pytest

from noetl.blobs.spool.base import SpoolError
from noetl.blobs.spool.memory import MemoryStore
from noetl.bus.memory_keys import MemoryKeys
from noetl.clock import LoopClock
from noetl.ids import Ids
from noetl.intake.circuit_stores import KeysStore, lease_key
from noetl.intake.metrics import IntakeMetrics
from noetl.intake.outcomes import RunOutcome, StartOutcome
from noetl.local.virtual import VirtualLoop
from noetl.sources.base import SourceError
from noetl.sources.memory import MemorySource
from noetl.subscription.ports import Ports
from noetl.subscription.run import Runtime
from noetl.subscription.state import Listened
from tests.unit.intake.world import PATH, START, Server, spec_of


class Person:
    """Steers by hand."""

    def __init__(self, listened):
        self.listened = listened
        self.task = "wait"
        self.is_unauthorized = False
        self.requests = ()
        self.said = []

    async def start(self):
        return self.listened

    async def activate(self):
        self.said.append("activate")
        self.task = "listen"

    async def look(self):
        self.is_unauthorized = False
        return self.listened

    def unauthorized(self):
        self.is_unauthorized = True

    async def drained(self):
        self.said.append("drained")
        self.task = "wait"

    async def stop(self):
        self.said.append("stop")


class Ends:
    """Tells how runs end."""

    def __init__(self, server):
        self._server = server
        self._told = asyncio.Queue()

    async def begin(self, _listened):
        self._server.listeners.append(self._heard)

    async def _heard(self, outcome):
        self._told.put_nowait(outcome)

    async def follow(self, _listened, told):
        while True:
            await told(await self._told.get())

    async def of(self, _execution_id):
        return None


class World:
    """A listener with its source, its server and whoever steers it."""

    def __init__(self, loop, **spec):
        self.clock = LoopClock(loop, START)
        self.server = Server(self.clock)
        self.source = MemorySource(self.clock, ack_wait_s=6.0)
        self.keys = MemoryKeys(self.clock)
        self.person = Person(self._version(1, **spec))
        self.metrics = IntakeMetrics((PATH,))
        self.opened = 0
        self.store = None
        self.runtime = Runtime(PATH, self._ports())

    @staticmethod
    def _version(number, **spec):
        made = spec_of(**spec)
        return Listened(subscription_id="1", path=PATH, tenant="default", version=number, spec=made)

    def newer(self, **spec):
        self.person.listened = self._version(self.person.listened.version + 1, **spec)

    def _ports(self):
        async def source(_listened):
            self.opened += 1
            return self.source

        return Ports(
            name="one", clock=self.clock, ids=Ids(self.clock, 1), control=self.person,
            starter=self.server, endings=Ends(self.server), poster=self.server,
            circuits=KeysStore(self.keys), letters=lambda _: self.server,
            source=source, spool=lambda _: nullcontext(self.store), metrics=self.metrics,
            state_poll_s=1.0,
        )  # fmt: skip

    def send(self, *numbers):
        for n in numbers:
            self.source.publish(b'{"n": %d}' % n, key=f"k-{n % 3}")

    def told(self, kind):
        return [one for one in self.server.events.values() if one.event_type == kind]

    @asynccontextmanager
    async def listening(self):
        task = asyncio.create_task(self.runtime.run())
        try:
            yield task
        finally:
            self.runtime.stop()
            await task


@pytest.fixture
def play():
    def run(scenario, **spec):
        loop = VirtualLoop()

        async def main():
            await scenario(World(loop, **spec))

        try:
            loop.run_until_complete(main())
        finally:
            loop.close()

    return run


def test_messages_become_runs_and_are_settled(play):
    async def scenario(world):
        world.send(*range(7))
        async with world.listening():
            await asyncio.sleep(5)
            assert len(world.server.started) == 7
            assert world.runtime.ailments == ()
            assert world.runtime.figures["in_flight"] == 0
        assert await world.source.backlog() == 0

    play(scenario)


def test_no_more_than_max_in_flight_are_held_while_the_server_is_slow(play):
    async def scenario(world):
        world.server.takes_s = 2.0
        world.send(*range(30))
        async with world.listening():
            for _ in range(40):
                await asyncio.sleep(0.5)
                assert world.runtime.figures["in_flight"] <= 5
            assert world.metrics.rate_limited.value(PATH) >= 1
            assert len(world.told("subscription.rate_limited")) == 1
        assert world.server.most_at_once <= 5

    play(scenario, limits={"max_in_flight": 5})


def test_a_burst_is_spread_over_time(play):
    async def scenario(world):
        world.send(*range(10))
        async with world.listening():
            await asyncio.sleep(20)
        at = world.server.at
        assert len(at) == 10
        for window in (1.0, 2.0, 3.0):
            most = max(sum(first <= one < first + window for one in at) for first in at)
            assert most <= 2 * window + 2
        limited = world.told("subscription.rate_limited")
        assert [one.payload["reason"] for one in limited] == ["dispatch_rate"]

    play(scenario, limits={"max_dispatch_per_sec": 2})


def test_a_pause_fetches_nothing_and_going_on_loses_nothing(play):
    async def scenario(world):
        async with world.listening():
            await asyncio.sleep(1)
            world.person.task = "hold"
            await asyncio.sleep(3)
            world.send(*range(4))
            await asyncio.sleep(10)
            assert world.server.started == []
            assert world.runtime.ailments == ()
            world.person.task = "listen"
            await asyncio.sleep(4)
            assert len(world.server.started) == 4
            world.person.task = "drain"
            await asyncio.sleep(4)
            assert world.person.said == ["activate", "drained"]

    play(scenario)


LONG_POLL = {"timeout_ms": 30_000}


def test_a_pause_acts_in_the_middle_of_a_long_poll_and_going_on_loses_nothing(play):
    async def scenario(world):
        async with world.listening():
            await asyncio.sleep(2)
            world.person.task = "hold"
            await asyncio.sleep(2)
            world.send(1)
            await asyncio.sleep(2)
            assert world.server.started == []
            assert world.runtime.held == 0
            world.person.task = "listen"
            await asyncio.sleep(2)
            assert world.server.started == ["memory:1"]

    play(scenario, runtime=LONG_POLL)


def test_what_a_long_poll_brings_after_a_pause_that_is_over_is_run(play):
    async def scenario(world):
        async with world.listening():
            await asyncio.sleep(2)
            world.person.task = "hold"
            await asyncio.sleep(2)
            world.person.task = "listen"
            await asyncio.sleep(2)
            world.send(1)
            await asyncio.sleep(1)
            assert world.server.started == ["memory:1"]

    play(scenario, runtime=LONG_POLL)


def test_a_drain_ends_in_the_middle_of_a_long_poll(play):
    async def scenario(world):
        async with world.listening():
            await asyncio.sleep(2)
            world.person.task = "drain"
            await asyncio.sleep(2)
            assert world.person.said == ["activate", "drained"]
            world.send(1)
            await asyncio.sleep(1)
            assert world.server.started == []
            assert [one.id for one in await world.source.poll(10, 0)] == ["memory:1"]

    play(scenario, runtime=LONG_POLL)


def test_one_that_loses_the_lease_of_a_global_order_gives_back_what_its_poll_brings(play):
    async def scenario(world):
        key = lease_key(PATH)
        async with world.listening():
            await asyncio.sleep(2)
            held = await world.keys.get(key)
            await world.keys.update(key, b'{"holder": "two"}', held.revision)
            await asyncio.sleep(6)
            world.send(1)
            await asyncio.sleep(1)
            assert world.server.started == []
            assert [one.id for one in await world.source.poll(10, 0)] == ["memory:1"]

    play(scenario, runtime=LONG_POLL, spool={"mode": "off", "ordering": "global"})


def test_the_end_comes_in_the_middle_of_a_long_poll(play):
    async def scenario(world):
        async with world.listening():
            await asyncio.sleep(2)
            began = world.clock.monotonic()
        assert world.clock.monotonic() - began == pytest.approx(1.0)

    play(scenario, runtime=LONG_POLL)


def test_a_listener_that_the_server_refuses_acks_nothing_and_tries_again_later(play):
    async def scenario(world):
        world.server.answer = StartOutcome(kind="misconfigured", code="forbidden")
        world.send(1)
        async with world.listening():
            await asyncio.sleep(3)
            assert world.runtime.ailments == (f"{PATH}: unauthorized",)
            assert world.metrics.acked.value(PATH) == 0
            await asyncio.sleep(30)
            assert len(world.told("subscription.runtime.unauthorized")) <= 4
            world.server.answer = None
            await asyncio.sleep(120)
            assert world.runtime.ailments == ()
            assert world.server.started == ["memory:1"]

    play(scenario)


def test_a_newer_version_is_taken_between_two_fetches(play):
    async def scenario(world):
        world.send(1)
        async with world.listening():
            await asyncio.sleep(3)
            world.newer(dispatch={"playbook": "plant/other"})
            await asyncio.sleep(5)
            world.send(2)
            await asyncio.sleep(3)
        assert [start.path for start in world.server.starts] == ["plant/store", "plant/other"]
        (reloaded,) = world.told("subscription.reloaded")
        assert reloaded.payload == {"from_version": 1, "to_version": 2}
        assert world.opened == 2

    play(scenario)


def test_what_is_held_for_long_is_extended_and_acked_once_when_its_run_ends(play):
    async def scenario(world):
        world.server.is_silent = True
        world.send(1)
        async with world.listening():
            await asyncio.sleep(90)
            assert world.server.started == ["memory:1"]
            assert world.metrics.received.value(PATH) == 1
            ended = RunOutcome(execution_id="1", status="COMPLETED", downstream="default")
            for listener in world.server.listeners:
                await listener(ended)
            await asyncio.sleep(2)
            assert world.metrics.acked.value(PATH) == 1
            assert await world.source.backlog() == 0

    play(scenario, dispatch={"playbook": "plant/store", "ack_after": "completed"})


def test_what_does_not_end_in_time_is_given_back_at_the_end(play):
    async def scenario(world):
        world.server.is_silent = True
        world.send(1, 2)
        began = world.clock.monotonic()
        async with world.listening():
            await asyncio.sleep(3)
        assert 20 <= world.clock.monotonic() - began < 30
        again = await world.source.poll(10, 0)
        assert len(again) == 2

    play(scenario, dispatch={"playbook": "plant/store", "ack_after": "completed"})


def test_a_source_that_goes_away_is_asked_again_and_told_as_an_ailment(play):
    async def scenario(world):
        poll, gone = world.source.poll, SourceError("connection", "CONN_RESET", "", retryable=True)
        async with world.listening():
            await asyncio.sleep(3)

            async def away(*_):
                raise gone

            world.source.poll = away
            await asyncio.sleep(5)
            assert world.runtime.ailments == (f"{PATH}: CONN_RESET",)
            world.source.poll = poll
            world.send(1)
            await asyncio.sleep(40)
            assert world.runtime.ailments == ()
            assert world.server.started == ["memory:1"]

    play(scenario)


class Volume(MemoryStore):
    """A store that may have no space left."""

    def __init__(self):
        super().__init__()
        self.is_full = True

    async def put_new(self, key, data):
        if self.is_full:
            raise SpoolError("no space left on device")
        await super().put_new(key, data)


def test_a_spool_without_space_is_told_as_an_ailment_and_once_in_the_log(play, caplog):
    async def scenario(world):
        world.store, world.server.is_down = Volume(), True
        async with world.listening():
            world.send(1, 2, 3)
            await asyncio.sleep(20)
            assert world.runtime.ailments == (f"{PATH}: spool_unavailable",)
            assert world.metrics.acked.value(PATH) == 0
            world.store.is_full = False
            await asyncio.sleep(60)
            assert world.runtime.ailments == ()
            assert world.metrics.acked.value(PATH) == 3
            assert world.runtime.pending == 3

    play(scenario, spool={"mode": "buffer_and_ack", "circuit": {"trip_after": 1}})
    told = [line for line in caplog.records if line.name == "noetl.intake.keeping"]
    assert [(line.message, line.code, line.reason) for line in told] == [
        ("the spool takes no message", "spool_unavailable", "no space left on device")
    ]
