"""What people want of dead letters: done once, by whoever holds the spool, and no more."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

from noetl.api.subscriptions import LettersWanted
from noetl.blobs.spool.memory import MemoryStore
from noetl.clock import rfc3339
from noetl.intake.redriving import AGAIN_S, Letters
from noetl.local.virtual import run_virtually
from tests.unit.intake.bench import bench, polled
from tests.unit.intake.world import World, message
from tests.unit.server.rig import virtually
from tests.unit.server.subscriptions.stage import facts, post, report

SOON_S = 1.0
PADDING = {"x": "x" * 600}


class Desk:
    """One who does what is wanted, and hears what came of it."""

    def __init__(self, world, engine):
        self.world = world
        self.engine = engine
        self.spool = engine.spool
        self.told = []
        self.may_work = True
        self.letters = Letters(self.spool, world.clock, self._tell, lambda: None)

    def _tell(self, name, fields):
        self.told.append((name.removeprefix("subscription."), fields))

    async def dead(self, *numbers):
        """So many dead letters."""
        for number in numbers:
            self.world.server.refused.add("plant/store")
            await self.engine.intake.handle([message(number)])
            self.world.server.refused.clear()
            await asyncio.sleep(1)

    async def left(self):
        """The dead letters that are there."""
        return [name.partition("-")[2] for name in await self.world.objects("dlq")]

    def asked(self, number="1", action="discard", **more):
        """A request as the log has it."""
        at = rfc3339(self.world.clock.now())
        return {"request_id": number, "action": action, "at": at, "all": True, **more}


def at_a_desk(scenario, spool=None):
    """Play a scenario in virtual time."""

    async def main():
        world = World(spool=spool or {})
        desk = Desk(world, world.engine())
        task = asyncio.create_task(desk.letters.run(lambda: desk.may_work))
        try:
            await scenario(desk)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    run_virtually(main())


def test_all_are_those_that_came_before_the_request():
    async def scenario(desk):
        await desk.dead(1, 2)
        request = desk.asked()
        await asyncio.sleep(1)
        await desk.dead(3)
        desk.letters.wanted([request])
        await asyncio.sleep(SOON_S)
        assert await desk.left() == ["S_3.json"]
        assert desk.told == [
            ("discard.completed", {"request_id": "1", "done": 2, "missing": 0, "corrupt": 0})
        ]
        desk.letters.wanted([request])
        await asyncio.sleep(SOON_S)
        assert len(desk.told) == 1

    at_a_desk(scenario)


def test_what_stands_in_the_log_no_more_is_not_done_later():
    async def scenario(desk):
        desk.may_work = False
        await desk.dead(1)
        desk.letters.wanted([desk.asked()])
        await asyncio.sleep(SOON_S)
        desk.letters.wanted([])
        desk.may_work = True
        await desk.dead(2)
        await asyncio.sleep(2 * AGAIN_S)
        assert (await desk.left(), desk.told) == (["S_1.json", "S_2.json"], [])

    at_a_desk(scenario)


def test_who_may_not_go_on_leaves_the_rest_to_whoever_may():
    async def scenario(desk):
        await desk.dead(1, 2, 3)
        desk.letters.wanted([desk.asked(action="redrive", rate=0.5)])
        await asyncio.sleep(SOON_S)
        desk.may_work = False
        await asyncio.sleep(20)
        left = await desk.left()
        assert (0 < len(left) < 3, desk.told) == (True, [])
        desk.may_work = True
        await asyncio.sleep(20)
        assert await desk.left() == []
        assert [name for name, _ in desk.told] == ["redrive.completed"]

    at_a_desk(scenario)


def test_letters_that_are_not_there_or_cannot_be_read_end_the_request():
    async def scenario(desk):
        await desk.dead(1, 2)
        name = (await desk.world.objects("dlq"))[0]
        place = f"default/subscriptions/s/dlq/{name}"
        await desk.world.store.put(place, b"{}")
        seq = int(name.partition("-")[0])
        refs = [f"noetl://spool/subscriptions/s/{seq}/S:1", "noetl://spool/subscriptions/s/7/S:9"]
        desk.letters.wanted([desk.asked(action="redrive", all=False, refs=refs)])
        await asyncio.sleep(SOON_S)
        assert desk.told == [
            ("redrive.completed", {"request_id": "1", "done": 0, "missing": 1, "corrupt": 1})
        ]
        assert await desk.left() == ["S_1.json", "S_2.json"]

    at_a_desk(scenario)


def test_what_has_no_room_is_tried_again_and_then_told():
    async def scenario(desk):
        await desk.dead(1)
        await desk.engine.intake.handle([message(2, headers=PADDING)], is_paused=True)
        desk.letters.wanted([desk.asked(action="redrive")])
        await asyncio.sleep(SOON_S)
        assert (await desk.left(), desk.told) == (["S_1.json"], [])
        await desk.spool.done(desk.spool.take(["default"]))
        await asyncio.sleep(AGAIN_S)
        assert (await desk.left(), [name for name, _ in desk.told]) == ([], ["redrive.completed"])

    at_a_desk(scenario, {"retention": {"max_bytes": 1600}})


# ---------------------------------------------------------------------------- with a server


@asynccontextmanager
async def working(b, holder):
    """A process that listens, and asks the server now and then what is wanted."""
    engine = b.begun(holder)
    await engine.start()

    async def look():
        while True:
            found = await b.r.client.subscription(b.sub)
            engine.letters.wanted(found.pending_actions if engine.lease.is_held else ())
            await asyncio.sleep(5)

    async with asyncio.TaskGroup() as tasks:
        made = [tasks.create_task(engine.run()), tasks.create_task(look())]
        yield engine
        for task in made:
            task.cancel()


async def pending(b):
    return (await b.r.client.subscription(b.sub)).pending_actions


@virtually
async def test_a_request_with_a_letter_that_nobody_can_read_is_over_and_a_restart_repeats_nothing():
    async with bench(store=MemoryStore(), playbook="plant/unknown") as b:
        async with working(b, "one") as engine:
            for number in (1, 2):
                await engine.intake.handle([polled(number, b"{}")])
            await asyncio.sleep(SOON_S)
            folder = "default/subs/meters/dlq/"
            [first, _] = [one.key for one in await b.store.list(folder)]
            await b.store.put(first, b"{}")
            asked = await b.r.client.redrive(b.sub, LettersWanted(all=True))
            await asyncio.sleep(10)
            told = await facts(b.r, b.sub, "redrive.completed")
            request = {"request_id": asked.request_id}
            assert told == [{**request, "done": 1, "missing": 0, "corrupt": 1}]
            assert await pending(b) == ()
        async with working(b, "one"):
            await asyncio.sleep(30)
            assert await facts(b.r, b.sub, "redrive.completed") == told
            assert (await b.store.list(folder))[0].key == first


@virtually
async def test_a_request_for_letters_of_the_server_is_not_over_when_a_spool_has_none():
    async with bench() as b:
        event = {"message_id": "m", "reason": "poison"}
        await post(b.r, report(b.r, b.sub, "message.dead_lettered", ref="a", **event))
        only = await b.r.client.redrive(b.sub, LettersWanted(all=True))
        await b.r.client.steer_subscription(b.sub, "activate")
        await b.r.client.steer_subscription(b.sub, "pause")
        await b.handle(polled(1, b'{"a":' * 70 + b"1" + b"}" * 70))
        both = await b.r.client.redrive(b.sub, LettersWanted(all=True))
        for asked in (only, both):
            done = report(b.r, b.sub, "redrive.completed", request_id=asked.request_id)
            await post(b.r, done)
        assert [one["request_id"] for one in await pending(b)] == [both.request_id]
