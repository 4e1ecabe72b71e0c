"""New runs give way: to what waits for workers, and to what was begun before them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.api.catalog import Register
from noetl.api.executions import Execute
from noetl.edge.errors import PoolSaturated
from noetl.edge.problems import answer_of
from noetl.server.access.caller import Caller
from noetl.server.ingest.lines import MOST_STARTS, MOST_STARTS_QUEUED
from noetl.server.ingest.posts import Post
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import HEAD, ONE_STEP, TWO_STEPS, rig, virtually

SOMEBODY = Caller(account="somebody", tenant_id="default", roles=("admin",))
WISH = Execute(path="demo/it")


class CountingCatalog:
    """A catalog that counts how often it is asked."""

    def __init__(self, inner):
        self.inner = inner
        self.looks = 0

    async def resolve(self, *asked):
        self.looks += 1
        return await self.inner.resolve(*asked)

    def __getattr__(self, name):
        return getattr(self.inner, name)


async def started(r, count=1, wish=WISH):
    for _ in range(count):
        await r.plane.starts.execute(wish, SOMEBODY)


@virtually
async def test_a_run_is_refused_while_too_many_commands_of_its_pool_wait():
    async with rig(backlog_max=3) as r:
        await r.client.register(Register(content=HEAD + TWO_STEPS))
        await started(r, 3)
        with pytest.raises(PoolSaturated) as refusal:
            await started(r)
        answer = answer_of(refusal.value)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert "'shared'" in refusal.value.message
        await r.claim(slots=1)
        await started(r)


@virtually
async def test_what_was_refused_is_refused_again_without_a_look_at_the_catalog():
    store = MemoryStore()
    store.catalog = catalog = CountingCatalog(store.catalog)
    async with rig(store, backlog_max=1) as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        await started(r)
        with pytest.raises(PoolSaturated):
            await started(r)
        looks = catalog.looks
        with pytest.raises(PoolSaturated):
            await started(r)
        assert catalog.looks == looks
        await r.claim(slots=1)
        await started(r)
        assert catalog.looks == looks + 1


@virtually
async def test_another_pool_has_room_of_its_own():
    async with rig(backlog_max=1) as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        await started(r)
        with pytest.raises(PoolSaturated):
            await started(r)
        await started(r, wish=Execute(path="demo/it", execution_pool="other"))


@virtually
async def test_what_runs_and_the_platform_itself_start_is_not_refused():
    async with rig(backlog_max=1) as r:
        await r.client.register(Register(content=HEAD + TWO_STEPS))
        await started(r)
        parent = (await r.plane.starts.execute(WISH)).execution_id
        await started(r, wish=Execute(path="demo/it", parent_execution_id=parent))


@virtually
async def test_runs_that_are_about_to_begin_count_as_well():
    async with rig(backlog_max=2) as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        asked = [r.plane.starts.execute(WISH, SOMEBODY) for _ in range(5)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(answer, PoolSaturated) for answer in answers) == 3


@virtually
async def test_a_batch_begins_what_there_is_room_for():
    async with rig(backlog_max=2) as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        items = (msgspec.Raw(b'{"path": "demo/it"}'),) * 5
        answer = await r.plane.batches.execute(items, SOMEBODY)
        assert (answer.started, answer.failed) == (2, 3)
        told = [item.error for item in answer.results if item.error is not None]
        assert {(error["code"], error["retryable"]) for error in told} == {("pool_saturated", True)}


class Slow:
    """A log whose commits wait, and are noted."""

    def __init__(self, inner):
        self.inner = inner
        self.gate = asyncio.Event()
        self.began = []

    async def commit(self, changes, delivered=()):
        self.began.append([change.expected_seq == 0 for change in changes])
        await self.gate.wait()
        return await self.inner.commit(changes, delivered)

    def __getattr__(self, name):
        return getattr(self.inner, name)


@virtually
async def test_what_was_begun_goes_before_new_runs_and_few_of_those_go_with_it():
    store = MemoryStore()
    async with rig(store) as r:
        await r.client.register(Register(content=HEAD + TWO_STEPS))
        await started(r)
        (command,) = await r.claim()
        log = store.log = Slow(store.log)
        async with asyncio.TaskGroup() as group:
            for _ in range(2 * MOST_STARTS + 1):
                group.create_task(started(r))
            await asyncio.sleep(0.01)
            group.create_task(r.done(command))
            await asyncio.sleep(0.01)
            log.gate.set()
        sizes = [(kinds.count(False), kinds.count(True)) for kinds in log.began]
        assert sizes[1][0] == 1
        assert max(new for _, new in sizes[1:]) == MOST_STARTS


@virtually
async def test_requests_for_runs_are_refused_long_before_reports_are():
    store = MemoryStore()
    async with rig(store) as r:
        run = await r.start(TWO_STEPS)
        (command,) = await r.claim()
        log = store.log = Slow(store.log)
        ingest = r.plane.ingest
        async with asyncio.TaskGroup() as group:
            group.create_task(ingest.post(Post(run, lambda _: iter(()))))
            group.create_task(r.done(command))
            await asyncio.sleep(0.01)
            for _ in range(MOST_STARTS_QUEUED):
                post = Post(run, lambda _: iter(()), gives_way=True)
                group.create_task(ingest.submit([post]))
            await asyncio.sleep(0)
            with pytest.raises(PoolSaturated):
                await ingest.submit([Post(run, lambda _: iter(()), gives_way=True)])
            group.create_task(ingest.submit([Post(run, lambda _: iter(()))]))
            assert ingest.pressure == "ok"
            log.gate.set()
