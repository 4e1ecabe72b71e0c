from __future__ import annotations

import asyncio

import pytest

from noetl.api.events import Receipt, Report, Reported
from noetl.api.http import NoAnswer
from noetl.api.problems import Problem, Refused
from noetl.blobs.spool.base import SpoolError
from noetl.blobs.spool.memory import MemoryStore
from noetl.ids import Ids
from noetl.intake.audit import Audit, NotTold, ServerPoster, Shelf
from noetl.local.virtual import run_virtually
from tests.unit.intake.world import PATH, World

FOLDER = "default/subscriptions/s/events/"


def audit(world, machine=1, **more):
    return Audit(
        "7",
        PATH,
        ids=Ids(world.clock, machine),
        clock=world.clock,
        poster=world.server,
        metrics=world.metrics,
        **more,
    )


def told(world):
    return [event.payload["n"] for event in world.server.events.values()]


def test_events_are_told_in_order_with_ids_of_their_own():
    async def main():
        world = World()
        made = audit(world)
        for n in range(600):
            made.tell("subscription.reloaded", {"n": n})
        assert await made.flush()
        assert told(world) == list(range(600))
        first = next(iter(world.server.events.values()))
        assert (first.execution_id, first.event_type) == ("7", "subscription.reloaded")

    run_virtually(main())


def test_without_a_spool_there_is_room_for_so_many_and_messages_go_first():
    async def main():
        world = World()
        world.server.is_down = True
        made = audit(world, most=5)
        made.tell("subscription.circuit.opened", {"n": 0})
        for n in range(1, 8):
            made.tell("subscription.message.failed", {"n": n})
        assert not await made.flush()
        made.tell("subscription.circuit.closed", {"n": 8})
        world.server.is_down = False
        assert await made.flush()
        assert told(world) == [0, 5, 6, 7, 8]
        assert world.metrics.audit_dropped.value(PATH) == 4

    run_virtually(main())


def test_with_a_spool_nothing_is_dropped_and_a_restart_tells_it():
    async def main():
        world = World()
        world.server.is_down = True
        shelf = Shelf(world.store, FOLDER)
        made = audit(world, shelf=shelf, most=100)
        for n in range(250):
            made.tell("subscription.message.failed", {"n": n})
            if n % 50 == 49:
                assert not await made.flush()
        again = audit(world, 2, shelf=shelf)
        world.server.is_down = False
        again.tell("subscription.reloaded", {"n": 250})
        assert await again.flush()
        assert told(world) == list(range(251))
        assert await world.objects("events") == []
        assert world.metrics.audit_dropped.value(PATH) == 0

    run_virtually(main())


def test_a_death_between_telling_and_forgetting_tells_twice_and_stores_once():
    async def main():
        world = World()
        shelf = Shelf(world.store, FOLDER)
        made = audit(world, shelf=shelf)
        made.tell("subscription.reloaded", {"n": 1})
        world.server.is_down = True
        await made.flush()
        world.server.is_down = False
        key = await shelf.oldest()
        await world.server.post(await shelf.read(key))  # and it died
        assert await audit(world, shelf=shelf).flush()
        assert told(world) == [1]

    run_virtually(main())


def test_what_nobody_can_read_is_put_aside_told_and_counted(caplog):
    async def main():
        world = World()
        world.server.is_down = True
        shelf = Shelf(world.store, FOLDER)
        made = audit(world, shelf=shelf)
        for n in range(2):
            made.tell("subscription.reloaded", {"n": n})
            assert not await made.flush()
        key = await shelf.oldest()
        await world.store.put(key, b"[{")
        world.server.is_down = False
        assert await audit(world, shelf=shelf).flush()
        assert told(world) == [1]
        aside = f"{FOLDER}unreadable/{key.removeprefix(FOLDER)}"
        assert [one.key for one in await world.store.list(f"{FOLDER}unreadable/")] == [aside]
        assert await world.store.get(aside) == b"[{"
        assert await shelf.oldest() is None
        assert world.metrics.audit_dropped.value(PATH) == 1
        [line] = [one for one in caplog.records if one.name == "noetl.intake.audit"]
        assert (line.levelname, line.path, line.key) == ("ERROR", PATH, aside)

    run_virtually(main())


def test_what_is_told_again_replaces_nothing_that_lies_in_the_store():
    async def main():
        world = World()
        world.server.is_down = True
        shelf, kind = Shelf(world.store, FOLDER), "subscription.message.spooled"
        about = {"recv_seq": "12", "reason": "paused", "n": 1}
        first = audit(world, shelf=shelf)
        first.tell(kind, about)
        first.tell("subscription.reloaded", {"n": 2})
        assert not await first.flush()
        second = audit(world, 2, shelf=shelf)
        second.tell_again(kind, about, "2026-05-01T10:00:00.000Z")
        assert not await second.flush()
        world.server.is_down = False
        second.tell("subscription.reloaded", {"n": 3})
        assert await second.flush()
        assert told(world) == [1, 2, 3]
        assert world.metrics.spooled.value(PATH, "paused") == 1

    run_virtually(main())


def test_a_store_that_is_away_too_leaves_events_in_memory():
    class Broken(MemoryStore):
        async def put(self, *_):
            raise SpoolError("no")

        async def list(self, *_, **__):
            raise SpoolError("no")

    async def main():
        world = World()
        made = audit(world, shelf=Shelf(Broken(), FOLDER))
        made.tell("subscription.reloaded", {"n": 1})
        assert not await made.flush()

    run_virtually(main())


def test_whoever_runs_it_tries_again_by_itself():
    async def main():
        world = World()
        world.server.is_down = True
        made = audit(world)
        task = asyncio.create_task(made.run())
        made.tell("subscription.reloaded", {"n": 1})
        await asyncio.sleep(100)
        assert world.server.events == {}
        world.server.is_down = False
        await asyncio.sleep(31)
        assert told(world) == [1]
        task.cancel()
        await asyncio.wait({task})

    run_virtually(main())


class Taker:
    """A client of the server."""

    def __init__(self, fault=None, bad=()):
        self.fault = fault
        self.bad = set(bad)
        self.taken = []

    async def report(self, body):
        if self.fault is not None:
            raise self.fault
        if any(event.event_id in self.bad for event in body.events):
            raise refused(422)
        self.taken += [event.event_id for event in body.events]
        receipts = [
            Receipt(event_id=event.event_id, outcome="rejected" if event.step else "stored")
            for event in body.events
        ]
        return Reported(results=tuple(receipts))


def refused(status):
    return Refused(Problem(type="t", title="t", status=status, code="c", detail="d"))


@pytest.mark.parametrize("fault", [NoAnswer("no"), refused(503), refused(401)])
async def test_what_the_server_does_not_take_now_is_not_told(fault):
    with pytest.raises(NotTold):
        await ServerPoster(Taker(fault), "w", "p").post([event("1")])


async def test_an_event_that_makes_no_sense_stops_no_other():
    taker = Taker(bad=["3"])
    lost = await ServerPoster(taker, "w", "p").post([event(str(n)) for n in range(1, 7)])
    assert (lost, taker.taken) == (1, ["1", "2", "4", "5", "6"])


async def test_an_event_that_the_server_rejects_is_lost_and_counted():
    taker = Taker()
    assert await ServerPoster(taker, "w", "p").post([event("1", step="x"), event("2")]) == 1


def event(event_id, **more):
    return Report(execution_id="7", event_id=event_id, event_type="subscription.reloaded", **more)
