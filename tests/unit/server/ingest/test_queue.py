"""The group commit: isolation, races, bounds, and what becomes of requests when it fails."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from noetl.api.executions import Control
from noetl.edge.errors import Draining, PoolSaturated
from noetl.engine import events as ev
from noetl.engine.fold import fold
from noetl.engine.state import State
from noetl.errors import NoetlError
from noetl.server.ingest.lines import MOST_QUEUED
from noetl.server.ingest.posts import Ask, Post, Stamped
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import ONE_STEP, TWO_STEPS, many, rig, virtually


class Moody:
    """A log that fails or loses on demand."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.fails = 0
        self.loses = 0
        self.commits = 0
        self.held: list[str] = []
        self.gate: asyncio.Event | None = None

    async def commit(self, changes, delivered=()):
        self.commits += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            self.fails -= 1
            raise OSError("the disk is gone")
        if self.loses:
            self.loses -= 1
            return frozenset(change.execution_id for change in changes)
        return await self.inner.commit(changes, delivered)

    @asynccontextmanager
    async def holding(self, execution_id):
        self.held.append(execution_id)
        async with self.inner.holding(execution_id) as commit:
            yield commit

    def __getattr__(self, name: str):
        return getattr(self.inner, name)


def moody() -> tuple[MemoryStore, Moody]:
    store = MemoryStore()
    log = Moody(store.log)
    store.log = log
    return store, log


def nothing(_state):
    return iter(())


def cancelling(_state):
    yield Stamped(ev.PlaybookCancelled(by="test"))


@virtually
async def test_a_defect_of_the_engine_is_recorded_and_its_neighbour_goes_on() -> None:
    async with rig() as r:
        broken = await r.start(TWO_STEPS)
        fine = await r.start(many(2, 2))
        found = await r.claim(slots=8)
        program = await r.plane.programs.get(found[0].catalog_id)
        program.steps["end"].step = None  # what no playbook can do: the engine stumbles over it
        reports = [r.event(item, "call.done", result=1) for item in found]
        reported = await r.report(*reports)
        assert {item.outcome for item in reported.results} == {"stored"}
        assert await r.status(fine) == "COMPLETED"
        assert (await r.types(broken))[-1] == "engine.error"
        assert await r.status(broken) == "RUNNING"
        await asyncio.sleep(31)
        assert (await r.types(broken)).count("engine.error") == 2
        await asyncio.sleep(31)
        told = await r.client.execution(broken)
        assert (told.status, told.error["code"]) == ("FAILED", "engine_error")
        assert (await r.types(broken)).count("engine.error") == 3


@virtually
async def test_a_post_that_breaks_fails_alone_and_the_rest_of_its_run_is_kept() -> None:
    def breaking(_state):
        yield Stamped(ev.ExecutionPaused())
        raise ZeroDivisionError

    def pausing(_state):
        yield Stamped(ev.ExecutionPaused(reason="mine"))

    async with rig() as r:
        run = await r.start(ONE_STEP)
        other = await r.start(ONE_STEP)
        posts = [Post(run, pausing), Post(run, breaking), Post(other, cancelling)]
        await r.plane.ingest.submit(posts)
        assert [type(post.error) for post in posts] == [type(None), ZeroDivisionError, type(None)]
        assert await r.status(run) == "PAUSED"
        assert await r.status(other) == "CANCELLED"
        types = await r.types(run)
        assert types.count("execution.paused") == 1
        assert types[-1] == "engine.error"


@virtually
async def test_a_commit_that_fails_is_told_and_nothing_of_it_is_believed() -> None:
    store, log = moody()
    async with rig(store) as r:
        run = await r.start(ONE_STEP)
        log.fails = 1
        with pytest.raises(OSError, match="disk"):
            await r.plane.ingest.post(Post(run, cancelling))
        assert r.plane.cache.peek(run) is None
        assert await r.status(run) == "RUNNING"
        await r.plane.ingest.post(Post(run, cancelling))
        assert await r.status(run) == "CANCELLED"


@virtually
async def test_a_claim_of_a_failed_commit_stays_parked() -> None:
    store, log = moody()
    async with rig(store) as r:
        waiting = asyncio.create_task(r.claim(wait_seconds=10))
        await asyncio.sleep(1)
        log.fails = 1
        with pytest.raises(NoetlError):
            await r.start(ONE_STEP)
        assert not waiting.done()
        await r.start(ONE_STEP)
        assert len(await waiting) == 1


@virtually
async def test_a_claim_that_times_out_during_a_commit_gets_what_was_committed() -> None:
    store, log = moody()
    async with rig(store) as r:
        waiting = asyncio.create_task(r.claim(wait_seconds=10))
        await asyncio.sleep(9)
        log.gate = asyncio.Event()
        starting = asyncio.create_task(r.start(ONE_STEP))
        await asyncio.sleep(5)
        assert not waiting.done()
        log.gate.set()
        assert [item.node_name for item in await waiting] == ["start"]
        await starting


@virtually
async def test_the_queue_is_bounded_in_bytes_too() -> None:
    store, log = moody()
    async with rig(store) as r:
        run = await r.start(ONE_STEP)
        log.gate = asyncio.Event()
        ingest = r.plane.ingest
        first = asyncio.create_task(ingest.submit((Post(run, cancelling),)))
        await asyncio.sleep(1)  # it is under way, and everything else queues up behind it
        large = [
            asyncio.create_task(ingest.submit((Post(run, nothing),), size=16 << 20))
            for _ in range(4)
        ]
        await asyncio.sleep(1)
        with pytest.raises(PoolSaturated, match="bytes are queued") as refusal:
            await ingest.submit((Post(run, nothing),), size=1)
        assert refusal.value.retry_after == 1.0
        log.gate.set()
        await asyncio.gather(first, *large)
        await ingest.submit((Post(run, nothing),), size=1)


@virtually
async def test_a_lost_race_is_decided_again_and_after_eight_the_run_is_held() -> None:
    store, log = moody()
    async with rig(store) as r:
        run = await r.start(ONE_STEP)
        log.loses = 7
        await r.plane.ingest.post(Post(run, cancelling))
        assert (await r.status(run), log.held) == ("CANCELLED", [])
        run = await r.start(ONE_STEP)
        log.loses = 100
        await r.plane.ingest.post(Post(run, cancelling))
        assert (await r.status(run), log.held) == ("CANCELLED", [run])
        assert log.loses == 92


@virtually
async def test_a_report_that_had_to_be_held_is_answered_without_work() -> None:
    store, log = moody()
    async with rig(store) as r:
        await r.start(TWO_STEPS)
        (mine,) = await r.claim()
        log.loses = 8
        reported = await r.done(mine, slots=1)
        assert [item.outcome for item in reported.results] == ["stored", "stored"]
        assert reported.claimed == ()
        assert [item.node_name for item in await r.claim()] == ["end"]


@virtually
async def test_a_claim_of_a_lost_race_is_taken_back() -> None:
    store, log = moody()
    async with rig(store) as r:
        await r.start(ONE_STEP)
        log.loses = 1
        ask = Ask("w", "shared", 4)
        await r.plane.ingest.submit((), ask)
        assert (ask.given, ask.slots) == ([], 4)
        assert len(await r.claim()) == 1


@virtually
async def test_a_parked_claim_of_a_lost_race_looks_again_at_once() -> None:
    store, log = moody()
    async with rig(store) as r:
        await r.start(ONE_STEP)
        log.loses = 1
        assert len(await r.claim(wait_seconds=20)) == 1
        assert asyncio.get_running_loop().time() == 0


@virtually
async def test_many_requests_share_a_commit() -> None:
    store, log = moody()
    async with rig(store) as r:
        run = await r.start(many(256, 256))
        work = [item for _ in range(4) for item in await r.claim(slots=64)]
        before = log.commits
        await asyncio.gather(*(r.done(item) for item in work))
        assert log.commits - before <= 40
        assert await r.status(run) == "COMPLETED"


@virtually
async def test_a_full_queue_refuses_and_tells_the_pressure() -> None:
    store, log = moody()
    async with rig(store) as r:
        run = await r.start(ONE_STEP)
        log.gate = asyncio.Event()
        ingest = r.plane.ingest
        blocking = asyncio.create_task(ingest.post(Post(run, cancelling)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        async with asyncio.TaskGroup() as group:
            for _ in range(MOST_QUEUED):
                group.create_task(ingest.submit([Post(run, lambda _: iter(()))]))
            await asyncio.sleep(0)
            assert ingest.pressure == "stop"
            with pytest.raises(PoolSaturated):
                await ingest.submit([])
            log.gate.set()
        await blocking
        assert ingest.pressure == "ok"


@virtually
async def test_decisions_of_one_turn_are_bounded_and_the_rest_follows() -> None:
    store, log = moody()
    async with rig(store) as r:
        body = (
            "executor: {spec: {policy: {limits: {max_steps: 30000}}}}\n"
            "workload: {n: 0}\n"
            "workflow:\n"
            "  - step: start\n"
            "    tool: {kind: noop}\n"
            "    set: {ctx.n: '{{ (ctx.n | default(0)) + 1 }}'}\n"
            "    next: {arcs: [{step: start, when: '{{ ctx.n < 6000 }}'}]}\n"
        )
        run = await r.start(body)
        assert await r.status(run) == "RUNNING"
        await r.server.finished(run)
        assert log.commits >= 2
        assert (await r.client.execution(run)).ctx == {"n": 6000}


@virtually
async def test_snapshots_shorten_the_way_back_and_are_never_needed() -> None:
    store, _ = moody()
    async with rig(store) as r:
        run = await r.start(many(300, 64))
        work = await r.claim(slots=64)
        while work:
            reported = await r.report(
                *(r.event(item, "call.done", result=1) for item in work), slots=64
            )
            work = list(reported.claimed)
        kept = await store.log.snapshot(run)
        assert kept is not None
        assert kept[0] >= 1000
        entry = await r.plane.cache.read(run)
        assert entry.snapshot_seq == kept[0]
        replayed = State(program=entry.state.program)
        for item in await store.log.read(run, 0, 10_000):
            fold(replayed, item)
        assert entry.state == replayed
        early = (await r.plane.cache.read(run, upto=10)).state
        assert (early.seq, early.terminal) == (10, None)


@virtually
async def test_a_server_that_stops_answers_who_waits() -> None:
    async with rig() as r:
        waiting = asyncio.create_task(r.claim(wait_seconds=20))
        await asyncio.sleep(1)
        ingest = r.plane.ingest
    assert await waiting == []
    with pytest.raises(Draining):
        await ingest.submit([])


@virtually
async def test_a_caller_that_goes_away_leaves_no_claim_behind() -> None:
    async with rig() as r:
        waiting = asyncio.create_task(r.claim(wait_seconds=20))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.sleep(0)
        await r.start(ONE_STEP)
        assert len(await r.claim("other")) == 1


@virtually
async def test_an_unknown_run_is_refused_without_a_commit() -> None:
    store, log = moody()
    async with rig(store) as r:
        with pytest.raises(NoetlError) as refused:
            await r.plane.controls.cancel("12", Control())
        assert (refused.value.code, log.commits) == ("unknown_execution", 0)
