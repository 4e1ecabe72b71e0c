"""Loops that one server runs: who leads, what follows when it stops, and after an outage."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

from noetl.api.catalog import Register
from noetl.api.commands import Heartbeat, Held
from noetl.clock import LoopClock
from noetl.server.loops import LOOPS, leading
from noetl.store.errors import DatabaseGone
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import HEAD, ONE_STEP, PYTHON, START, TWO_STEPS, rig, virtually

WAIT = "workflow:\n  - {step: start, tool: {kind: wait, seconds: 10}}\n"
CHILD = HEAD.replace("demo", "child") + ONE_STEP.lstrip()
PARENT = "workflow:\n  - step: start\n    tool: {kind: playbook, path: child/it}\n"
LIMITED = f"""
executor: {{spec: {{concurrency: {{key: one, limit: 1, on_limit: queue}}}}}}
workflow:
  - step: start
    tool: {PYTHON}
"""


@asynccontextmanager
async def two(**more):
    """Two servers on one store."""
    store, clock = MemoryStore(), LoopClock(asyncio.get_running_loop(), START)
    shared = {"clock": clock, "is_alone": False, **more}
    async with rig(store, **shared) as one, rig(store, machine=2, **shared) as other:
        yield one, other


def leaders() -> int:
    """How many servers of this loop lead."""
    return sum(task.get_name() == "leader: timers" for task in asyncio.all_tasks())


@virtually
async def test_one_of_two_servers_leads_and_the_other_follows() -> None:
    store = MemoryStore()
    async with rig(store, machine=2, is_alone=False) as other:
        async with rig(store, is_alone=False):
            await asyncio.sleep(1)
            assert leaders() == 1
        run = await other.start(WAIT)
        await asyncio.sleep(1)
        assert leaders() == 1
        await other.server.finished(run)


@virtually
async def test_leadership_moves_when_the_leader_stops() -> None:
    store, clock = MemoryStore(), LoopClock(asyncio.get_running_loop(), START)
    async with rig(store, clock=clock, is_alone=False) as one:
        run = await one.start(WAIT)
        follower = rig(store, clock=clock, machine=2, is_alone=False)
        other = await follower.__aenter__()
        await asyncio.sleep(1)
        assert leaders() == 1
    try:
        await other.server.finished(run)
        assert 10 <= clock.monotonic() <= 10.1
        assert leaders() == 1
    finally:
        await follower.__aexit__(None, None, None)
    assert leaders() == 0


@virtually
async def test_timers_of_the_other_server_fire_within_a_second() -> None:
    async with two() as (leader, other):
        await asyncio.sleep(1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        run = await other.start(WAIT.replace("10", "1.5"))
        watched = leader.server.finished(run)
        await watched
        assert 1.5 <= loop.time() - began <= 2.6


@virtually
async def test_a_role_that_is_lost_is_waited_for_again() -> None:
    lost: list[asyncio.Event] = []

    class Losing(type(MemoryStore().roles)):
        @asynccontextmanager
        async def lead(self, role):
            async with super().lead(role) as event:
                lost.append(event)
                yield event

    store = MemoryStore()
    store.roles = Losing()
    async with rig(store) as r:
        await asyncio.sleep(1)
        assert (len(lost), leaders()) == (1, 1)
        lost[0].set()
        await asyncio.sleep(1)
        assert (len(lost), leaders()) == (2, 1)
        run = await r.start(WAIT)
        await r.server.finished(run)


@virtually
async def test_after_an_outage_every_worker_has_one_lease_to_beat() -> None:
    async with rig() as r:
        await r.start(TWO_STEPS)
        await asyncio.sleep(100)
        (work,) = await r.claim()
        expired, commands = r.store.commands.expired, r.store.commands

        async def gone(*_args, **_more):
            raise DatabaseGone("the database is away")

        commands.expired = gone
        await asyncio.sleep(40)  # the lease has long ended, and nobody could tell
        commands.expired = expired
        held = Held(command_id=work.command_id, attempt=1)
        beat = await r.client.heartbeat(Heartbeat(worker_id="w", commands=(held,)))
        assert beat.extended == (work.command_id,)
        await asyncio.sleep(14)
        assert "command.lost" not in await r.types(work.execution_id)
        await asyncio.sleep(30)
        assert "command.lost" in await r.types(work.execution_id)


@virtually
async def test_a_new_process_waits_one_lease_before_it_takes_work_away() -> None:
    store, clock = MemoryStore(), LoopClock(asyncio.get_running_loop(), START)
    async with rig(store, clock=clock) as r:
        run = await r.start(ONE_STEP)
        await r.claim()
    await asyncio.sleep(60)
    async with rig(store, clock=clock, machine=2, is_alone=False) as r:
        await asyncio.sleep(14)
        assert "command.lost" not in await r.types(run)
        await asyncio.sleep(3)
        assert "command.lost" in await r.types(run)


@virtually
async def test_who_is_alone_takes_up_at_once_what_a_process_before_it_held() -> None:
    store, clock = MemoryStore(), LoopClock(asyncio.get_running_loop(), START)
    async with rig(store, clock=clock) as r:
        run = await r.start(ONE_STEP)
        await r.claim()
    await asyncio.sleep(60)
    async with rig(store, clock=clock, machine=2) as r:
        await asyncio.sleep(0.1)
        assert "command.lost" in await r.types(run)


@virtually
async def test_a_lost_lease_of_the_other_server_is_found() -> None:
    async with two() as (leader, other):
        run = await other.start(ONE_STEP)
        await asyncio.sleep(30)
        await other.claim("dies")
        await asyncio.sleep(17)
        (again,) = await leader.claim("lives")
        assert (again.execution_id, again.attempt) == (run, 2)


@virtually
async def test_messages_of_a_server_that_is_gone_are_delivered_by_the_leader() -> None:
    async with two() as (leader, other):
        await other.client.register(Register(content=CHILD))
        other.plane.signals.undelivered = _Forgetful()
        run = await other.start(PARENT)
        await asyncio.sleep(25)
        (work,) = await leader.claim()
        await leader.done(work)
        await leader.server.finished(run)
        await asyncio.sleep(2)
        assert await leader.store.outbox.waiting() == []


class _Forgetful(list):
    """Messages of a server that dies before it has delivered any."""

    def append(self, _item) -> None:
        """Forget it."""


@virtually
async def test_a_limit_of_one_holds_over_two_servers() -> None:
    async with two() as (one, other):
        await one.client.register(Register(content=HEAD + LIMITED.lstrip()))
        runs = await asyncio.gather(*(r.start(LIMITED) for _ in range(10) for r in (one, other)))
        statuses = [await one.status(run) for run in runs]
        assert sorted(statuses) == ["PENDING"] * 19 + ["RUNNING"]
        for _ in runs:
            while not (work := await one.claim(wait_seconds=1)):
                pass
            running = [run for run in runs if await one.status(run) == "RUNNING"]
            assert running == [work[0].execution_id]
            await other.done(work[0])
        assert {await one.status(run) for run in runs} == {"COMPLETED"}


@virtually
async def test_alternate_reports_give_one_dense_log() -> None:
    body = f"""
workflow:
  - step: start
    loop: {{in: 40, iterator: n, spec: {{mode: parallel, max_in_flight: 8}}}}
    tool: {PYTHON}
"""
    async with two() as (one, other):
        run = await one.start(body)
        servers = [one, other]
        turn = 0
        while await one.status(run) == "RUNNING":
            work = await servers[turn % 2].claim(slots=4, wait_seconds=2)
            await asyncio.gather(
                *(servers[(turn + i) % 2].done(item, i) for i, item in enumerate(work))
            )
            turn += 1
        rows = await one.store.log.read(run, 0, 10_000)
        assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
        types = [type(row.event).__struct_config__.tag for row in rows]
        assert types.count("playbook.completed") == 1
        assert types.count("call.done") == 40


def test_every_loop_has_a_name() -> None:
    assert {"deliver", "hints", "leading"} <= set(LOOPS)
    assert leading.ROLE == "loops"


@virtually
async def test_a_parked_claim_gets_work_of_the_other_server_without_a_hint() -> None:
    async with two() as (one, other):
        claims = [asyncio.create_task(one.claim(f"w{n}", wait_seconds=20)) for n in range(3)]
        await asyncio.sleep(5)
        began = asyncio.get_running_loop().time()
        await other.start(ONE_STEP)
        await asyncio.wait(claims, return_when=asyncio.FIRST_COMPLETED)
        assert asyncio.get_running_loop().time() - began <= 5.1
        found = await asyncio.gather(*claims)
        assert sum(map(len, found)) == 1
