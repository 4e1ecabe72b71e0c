"""Retention, drains, figures and the contract of a server."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import msgspec
import pytest

from noetl.api.commands import Held
from noetl.api.executions import Dedup, Execute
from noetl.api.http import AsgiTransport
from noetl.api.internal import Purge, Purged
from noetl.api.operations import OPERATIONS
from noetl.api.problems import Refused
from noetl.api.runtime import PoolHeartbeat, WorkerEntry
from noetl.clock import LoopClock
from noetl.engine.events import KINDS
from noetl.store.base import Listing
from tests.unit.server.rig import ONE_STEP, START, TWO_STEPS, rig, virtually


class Skipping:
    """The time of a loop, and days that pass while nobody looks."""

    def __init__(self) -> None:
        self._clock = LoopClock(asyncio.get_running_loop(), START)
        self._skipped = timedelta()

    def skip(self, days: float) -> None:
        self._skipped += timedelta(days=days)

    def now(self) -> datetime:
        return self._clock.now() + self._skipped

    def monotonic(self) -> float:
        return self._clock.monotonic()


async def finished(r) -> str:
    run = await r.start(ONE_STEP)
    (work,) = await r.claim()
    await r.done(work)
    return run


@virtually
async def test_runs_go_with_their_time_and_living_ones_stay() -> None:
    clock = Skipping()
    async with rig(retention_days=30, clock=clock) as r:
        old = await finished(r)
        live = await r.start(TWO_STEPS)
        clock.skip(31)
        await r.plane.retention.turn()
        kept = {row.execution_id for row in await r.store.executions.listed(Listing())}
        assert kept == {live}
        assert await r.store.log.read(old) == []
        assert (await r.client.status(live)).status == "RUNNING"
        assert (await r.claim())[0].execution_id == live


@virtually
async def test_without_a_number_of_days_everything_is_kept() -> None:
    clock = Skipping()
    async with rig(clock=clock) as r:
        await finished(r)
        clock.skip(400)
        await r.plane.retention.turn()
        assert len(await r.store.executions.listed(Listing())) == 1


@virtually
async def test_a_dry_purge_counts_and_changes_nothing() -> None:
    clock = Skipping()
    async with rig(clock=clock) as r:
        await r.client.register_worker(WorkerEntry(name="w", capacity=1))
        run = await finished(r)
        await r.client.execute(Execute(path="demo/it", dedup=Dedup(key="k", window_secs=300)))
        clock.skip(8)
        dry = await r.client.purge(Purge(dry_run=True))
        wanted = (1, 1, 1, ())
        assert told(dry) == wanted
        assert told(await r.client.purge(Purge(dry_run=True))) == wanted
        assert told(await r.client.purge(Purge())) == wanted
        assert told(await r.client.purge(Purge())) == (0, 0, 0, ())
        assert (await r.client.pools()).items == ()
        assert (await r.client.status(run)).status == "COMPLETED"


@virtually
async def test_zero_keeps_and_what_is_no_number_of_days_is_refused() -> None:
    clock = Skipping()
    async with rig(clock=clock) as r:
        await finished(r)
        clock.skip(8)
        kept = Purge(command_retention_days=0, runtime_stale_minutes=0, dedup=False)
        assert told(await r.client.purge(kept)) == (0, 0, 0, ())
        for wrong in (
            Purge(command_retention_days=-1),
            Purge(runtime_stale_minutes=-1),
            Purge(event_retention_days=100_000),
        ):
            with pytest.raises(Refused) as refusal:
                await r.client.purge(wrong)
            assert refusal.value.problem.status == 422


def told(purged: Purged) -> tuple[int, int, int, tuple[str, ...]]:
    return (
        purged.commands_purged,
        purged.runtime_purged,
        purged.dedup_purged,
        purged.event_partitions_dropped,
    )


@virtually
async def test_a_drained_worker_hears_it_with_its_next_beat() -> None:
    async with rig() as r:
        for name in ("w1", "w2"):
            await r.client.register_worker(WorkerEntry(name=name, capacity=2))
        await r.client.register_worker(WorkerEntry(name="g", labels={"pool": "gpu"}))
        await r.start(ONE_STEP)
        (work,) = await r.claim(worker_id="w1")
        drained = await r.client.drain_pool("shared", "w1")
        assert (drained.workers, drained.status) == (("w1",), "draining")
        held = (Held(command_id=work.command_id, attempt=1),)
        beat = await r.client.pool_heartbeat(PoolHeartbeat(name="w1", commands=held))
        assert (beat.drain, beat.extended) == (True, (work.command_id,))
        assert not (await r.client.pool_heartbeat(PoolHeartbeat(name="w2"))).drain
        assert (await r.client.drain_pool("shared")).workers == ("w1", "w2")
        assert not (await r.client.pool_heartbeat(PoolHeartbeat(name="g"))).drain
        for pool, worker in (("nowhere", None), ("shared", "w9")):
            with pytest.raises(Refused) as refusal:
                await r.client.drain_pool(pool, worker)
            assert refusal.value.code == "unknown_worker"
        # One that comes back is ready again.
        await r.client.register_worker(WorkerEntry(name="w1", capacity=2))
        assert not (await r.client.pool_heartbeat(PoolHeartbeat(name="w1"))).drain


@virtually
async def test_pools_tell_how_far_their_consumers_are_behind() -> None:
    async with rig() as r:
        await r.client.register_worker(WorkerEntry(name="w", capacity=2))
        await r.start(ONE_STEP)
        await asyncio.sleep(1)
        (pool,) = (await r.client.pools()).pools
        assert (pool.pool, pool.pending, pool.consumer_lag) == ("shared", 1, 1)


@virtually
async def test_figures_are_measured() -> None:
    clock = Skipping()
    async with rig(clock=clock) as r:
        await finished(r)
        await r.start(TWO_STEPS)
        await r.client.register_worker(WorkerEntry(name="w", capacity=2))
        told = await r.client.dashboard()
        assert told.executions.live == {"PENDING": 0, "RUNNING": 1, "PAUSED": 0}
        assert told.executions.ended_24h == {"COMPLETED": 1, "FAILED": 0, "CANCELLED": 0}
        assert (told.executions.total_estimated, told.playbooks) == (2, 1)
        assert told.workers == {"ready": 1}
        assert [(q.pool, q.pending, q.in_flight) for q in told.queues] == [("shared", 1, 0)]
        clock.skip(2)
        await asyncio.sleep(6)
        later = await r.client.dashboard()
        assert later.executions.ended_24h["COMPLETED"] == 0


@virtually
async def test_shards_tell_how_they_are() -> None:
    async with rig() as r:
        shard, cluster = (await r.client.shards_health()).items
        assert (shard.shard, shard.role, shard.status) == (0, "shard", "ok")
        assert (cluster.shard, cluster.role, cluster.default_rows) == (None, "cluster", 0)


@virtually
async def test_the_contract_names_every_route_and_event() -> None:
    async with rig() as r:
        told = await r.client.contract()
        assert told.event_types == tuple(sorted(KINDS))
        known = {*told.routes["public"], *told.routes["protected"]}
        assert "GET /api/runtime/contract" in told.routes["public"]
        assert "POST /api/internal/cleanup/purge" in told.routes["protected"]
        assert set(told.cli_operation_mapping.values()) <= known
        assert told.cli_operation_mapping == OPERATIONS
        assert told.limits["schedules_per_tenant"] == 10_000


@virtually
async def test_an_internal_route_is_not_for_gateways() -> None:
    async with rig(is_open=False, internal_tokens=("inner",)) as r:
        call = AsgiTransport(r.server.asgi).request
        right = {"authorization": "Bearer inner"}
        assert (await call("GET", "/api/internal/outbox/pending-count", b"", right)).status == 200
        wrong = await call("GET", "/api/internal/outbox/pending-count", b"", {})
        assert (wrong.status, msgspec.json.decode(wrong.body)["code"]) == (
            403, "internal_token_mismatch",
        )  # fmt: skip
