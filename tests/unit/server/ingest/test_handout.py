"""Who gets which command first."""

from __future__ import annotations

import asyncio

from noetl.api.catalog import Register
from noetl.api.executions import Execute
from tests.unit.server.rig import HEAD, ONE_STEP, TWO_STEPS, many, rig, virtually


async def start(r, priority: int = 5) -> str:
    started = await r.client.execute(Execute(path="demo/it", priority=priority))
    return started.execution_id


@virtually
async def test_the_oldest_comes_first() -> None:
    async with rig() as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        runs = [await start(r) for _ in range(3)]
        assert [item.execution_id for item in await r.claim(slots=2)] == runs[:2]


@virtually
async def test_young_work_of_others_waits_behind_the_chain_and_old_work_does_not() -> None:
    async with rig() as r:
        chain = await r.start(TWO_STEPS)
        (first,) = await r.claim()
        other = await start(r)
        reported = await r.done(first, slots=1)
        assert [item.execution_id for item in reported.claimed] == [chain]
        third = await start(r)
        (mine,) = await r.claim("w2")
        assert mine.execution_id == other
        await asyncio.sleep(2)
        reported = await r.done(mine, worker_id="w2", slots=1)
        assert [item.execution_id for item in reported.claimed] == [third]


@virtually
async def test_a_kind_that_a_worker_excludes_is_left_to_others() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        assert await r.claim(exclude_kinds=("python",)) == []
        assert len(await r.claim()) == 1


@virtually
async def test_a_pool_gives_nothing_to_another() -> None:
    async with rig() as r:
        await r.start(ONE_STEP, execution_pool="gpu")
        assert await r.claim() == []


@virtually
async def test_parked_requests_share_what_a_commit_makes() -> None:
    async with rig() as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        waiting = [asyncio.create_task(r.claim(f"w{n}", wait_seconds=20)) for n in range(3)]
        await asyncio.sleep(1)
        await asyncio.gather(*(start(r) for _ in range(3)))
        claimed = await asyncio.gather(*waiting)
        assert [len(item) for item in claimed] == [1, 1, 1]


@virtually
async def test_who_asks_for_much_gets_no_more_than_others_that_have_room() -> None:
    async with rig() as r:
        await r.start(many(14, 7))
        (first,) = await r.claim("greedy")
        taken = await r.claim("other", slots=6)
        assert len(taken) == 6
        waiting = asyncio.create_task(r.claim("modest", slots=2, wait_seconds=20))
        await asyncio.sleep(1)
        events = [r.event(item, "call.done", result=1) for item in (first, *taken)]
        reported = await r.report(*events[:1], worker_id="greedy", slots=40)
        assert len(reported.claimed) == 1  # of one, whoever reports has it
        reported = await r.report(*events[1:], worker_id="other", slots=40)
        assert (len(reported.claimed), len(await waiting)) == (4, 2)


@virtually
async def test_a_command_tells_all_that_a_worker_needs() -> None:
    async with rig() as r:
        run = await r.start("workload: {a: 7}\n" + ONE_STEP.lstrip().replace("return 1", "{{ a }}"))
        (mine,) = await r.claim()
        row = await r.store.commands.get(mine.command_id)
        assert (mine.execution_id, mine.event_id, mine.node_name, mine.action) == (
            run, row.command_id, "start", "python",
        )  # fmt: skip
        assert (mine.command_key, mine.path, mine.version, mine.pool, mine.attempt) == (
            "start#1", "demo/it", 1, "shared", 1,
        )  # fmt: skip
        assert mine.idempotency_key == f"{run}/start/-/1"
        assert (mine.lease_seconds, mine.lease_until) == (15.0, row.lease_until)
        assert mine.context.tool == {"kind": "python"}
        assert mine.context.checkpoint is None
