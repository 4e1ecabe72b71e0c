"""A request for many runs is written in slices: nobody waits for more than one of them."""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from noetl.api.catalog import Register
from noetl.api.executions import Execute
from noetl.clock import SystemClock
from noetl.edge.errors import Draining, UnknownExecution
from noetl.engine import events as ev
from noetl.server.access.caller import Caller
from noetl.server.ingest.floods import Floods
from noetl.server.ingest.lines import FEW, MOST_STARTS, MOST_TAKEN_BYTES, Lines
from noetl.server.ingest.posts import Post, Stamped, Work
from noetl.store.errors import DatabaseGone
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import HEAD, ONE_STEP, TWO_STEPS, rig, virtually

SOMEBODY = Caller(account="somebody", tenant_id="default", roles=("admin",))
MANY = 300


class Log:
    """A log whose commits are let through one by one."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.commits: list[list[str]] = []
        self.turns = asyncio.Semaphore(0)
        self.fails_at = 0

    async def commit(self, changes, delivered=()):
        self.commits.append([change.execution_id for change in changes])
        await self.turns.acquire()
        if len(self.commits) == self.fails_at:
            raise DatabaseGone("the disk is gone")
        return await self.inner.commit(changes, delivered)

    def open(self) -> None:
        """Let all through."""
        for _ in range(MANY):
            self.turns.release()

    def __getattr__(self, name: str):
        return getattr(self.inner, name)


def watched(store: MemoryStore) -> Log:
    log = store.log = Log(store.log)
    return log


def cancelling(_state):
    yield Stamped(ev.PlaybookCancelled(by="test"))


def nothing(_state):
    return iter(())


def items(count: int, **keys):
    made = ({"path": "demo/it"} | {name: of(n) for name, of in keys.items()} for n in range(count))
    return tuple(msgspec.Raw(json.dumps(item).encode()) for item in made)


@virtually
async def test_a_report_waits_for_one_slice_of_a_huge_batch():
    store = MemoryStore()
    async with rig(store) as r:
        run = await r.start(TWO_STEPS)
        (command,) = await r.claim()
        log = watched(store)
        async with asyncio.TaskGroup() as group:
            batch = group.create_task(r.plane.batches.execute(items(MANY), SOMEBODY))
            await asyncio.sleep(1)
            report = group.create_task(r.done(command))
            await asyncio.sleep(1)
            assert len(log.commits) == 1
            assert len(log.commits[0]) <= MOST_STARTS
            log.turns.release()
            await asyncio.sleep(1)
            assert run in log.commits[1]
            log.turns.release()
            await report
            assert not batch.done()
            log.open()
        assert batch.result().started == MANY
        assert max(map(len, log.commits)) <= MOST_STARTS + 1


@virtually
async def test_a_single_run_waits_for_one_slice_of_huge_batches():
    store = MemoryStore()
    async with rig(store) as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        log = watched(store)
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(r.plane.batches.execute(items(MANY // 2), SOMEBODY))
            await asyncio.sleep(1)
            single = group.create_task(r.plane.starts.execute(Execute(path="demo/it"), SOMEBODY))
            await asyncio.sleep(1)
            log.turns.release()
            await asyncio.sleep(1)
            log.turns.release()
            assert (await single).execution_id in log.commits[1]
            log.open()


@virtually
async def test_slices_keep_the_order_of_a_batch_and_of_its_answer():
    store = MemoryStore()
    async with rig(store) as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        log = watched(store)
        log.open()
        answer = await r.plane.batches.execute(items(300), SOMEBODY)
        asked = [item.execution_id for item in answer.results]
        assert [item.index for item in answer.results] == list(range(300))
        assert [run for commit in log.commits for run in commit] == asked


@virtually
async def test_equal_keys_are_one_run_whatever_slices_they_are_in():
    async with rig() as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        wishes = items(300, dedup=lambda n: {"key": f"k{n % 150}"})
        answer = await r.plane.batches.execute(wishes, SOMEBODY)
        assert (answer.started, answer.duplicates, answer.failed) == (150, 150, 0)
        runs = [item.execution_id for item in answer.results]
        assert runs[:150] == runs[150:]
        again = await r.plane.batches.execute(wishes, SOMEBODY)
        assert (again.started, [item.execution_id for item in again.results]) == (0, runs)


@virtually
async def test_a_slice_that_fails_fails_alone():
    store = MemoryStore()
    async with rig(store) as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        log = watched(store)
        log.fails_at = 2
        log.open()
        answer = await r.plane.batches.execute(items(3 * MOST_STARTS), SOMEBODY)
        told = [item.status for item in answer.results]
        of_slice = ["started"] * MOST_STARTS
        assert told == of_slice + ["error"] * MOST_STARTS + of_slice
        runs = [item.execution_id for item in answer.results if item.execution_id is not None]
        assert all([await store.executions.get(run) for run in runs])
        assert len(runs) == answer.started == 2 * MOST_STARTS


@virtually
async def test_a_server_that_stops_tells_which_runs_have_begun():
    store = MemoryStore()
    new = {"gives_way": True, "pool": "shared"}
    posts = [Post(str(n), nothing, **new) for n in range(1, MANY)]
    async with rig(store) as r:
        for place in (0, MOST_STARTS):
            posts[place] = Post(await r.start(ONE_STEP), cancelling, **new)
        log = watched(store)
        asked = asyncio.ensure_future(r.plane.ingest.submit(posts))
        await asyncio.sleep(1)
        log.turns.release()
        await asyncio.sleep(1)
    await asked
    assert posts[0].error is None
    assert {type(post.error) for post in posts[1:MOST_STARTS]} == {UnknownExecution}
    assert {type(post.error) for post in posts[MOST_STARTS:]} == {Draining}


# ------------------------------------------------------------------------------- the lines


def work(count: int, *, size: int = 0, is_new: bool = True) -> Work:
    posts = tuple(Post(str(n), nothing, gives_way=is_new) for n in range(count))
    return Work(posts, done=None, size=size)  # type: ignore[arg-type] # nobody waits


def test_every_batch_takes_of_each_line():
    lines = Lines(Floods(SystemClock(), lambda _: 0))
    huge, single, report = work(MANY), work(1), work(3, is_new=False)
    for each in (huge, single, report):
        lines.add(each)
    taken = lines.taken()
    assert taken.works == [report, single, huge]
    assert taken.posts == [*report.posts, *single.posts, *huge.posts[:MOST_STARTS]]
    assert len(lines) == 1
    assert lines.taken().posts == list(huge.posts[MOST_STARTS : 2 * MOST_STARTS])


def test_a_request_for_few_runs_is_never_cut():
    lines = Lines(Floods(SystemClock(), lambda _: 0))
    for _ in range(MOST_STARTS):
        lines.add(work(FEW))
    assert len(lines.taken().posts) == MOST_STARTS


def test_a_slice_goes_on_with_the_next_request():
    lines = Lines(Floods(SystemClock(), lambda _: 0))
    first, second = work(MOST_STARTS - 10), work(MOST_STARTS)
    lines.add(first)
    lines.add(second)
    taken = lines.taken()
    assert (taken.works, taken.posts[-1]) == ([first, second], second.posts[9])
    assert (lines.taken().works, len(lines)) == ([], 0)


@pytest.mark.parametrize("count", [FEW, MOST_STARTS])
def test_a_batch_takes_no_more_bytes_than_it_may(count):
    lines = Lines(Floods(SystemClock(), lambda _: 0))
    for _ in range(2):
        lines.add(work(count, size=MOST_TAKEN_BYTES))
    assert [len(lines.taken().posts), len(lines)] == [count, 1]
    assert [len(lines.taken().posts), len(lines)] == [count, 0]
