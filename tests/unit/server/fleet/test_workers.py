"""Workers come and go, and every server knows of them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.api.commands import Heartbeat, Held
from noetl.api.http import AsgiTransport
from noetl.api.problems import Refused
from noetl.api.runtime import Left, PoolHeartbeat, WorkerEntry
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import ONE_STEP, rig, virtually

ENTRY = WorkerEntry(name="w1", labels={"pool": "gpu"}, capacity=4)


def names(workers) -> list[str]:
    return [item.name for item in workers]


@virtually
async def test_workers_come_fall_silent_and_go() -> None:
    async with rig(servers=("http://a", "http://b")) as r:
        workers = r.plane.workers
        joined = await r.client.register_worker(ENTRY)
        assert (joined.lease_seconds, joined.servers) == (15.0, ("http://a", "http://b"))
        assert joined.machine_id is not None
        assert names(await workers.live("gpu")) == ["w1"]
        await asyncio.sleep(31)
        assert await workers.live("gpu") == []
        await r.client.heartbeat(Heartbeat(worker_id="w1", free_slots=2))
        assert [(item.name, item.free_slots) for item in await workers.live("gpu")] == [("w1", 2)]
        await r.client.leave(Left(name="w1"))
        assert await workers.live("gpu") == []


@virtually
async def test_a_worker_is_told_where_the_server_is_seen_from_outside() -> None:
    own, public = "http://10.0.0.1:8082", "https://noetl.example"
    async with rig(server_url=own, public_url=public) as r:
        assert (await r.client.register_worker(ENTRY)).servers == (own, public)


@virtually
async def test_a_worker_of_one_server_is_known_to_the_other() -> None:
    store = MemoryStore()
    async with rig(store) as a, rig(store, machine=2) as b:
        first = await a.client.register_worker(ENTRY)
        other = await b.client.register_worker(
            WorkerEntry(name="w2", labels={"pool": "gpu"}, capacity=1)
        )
        assert first.machine_id != other.machine_id
        assert names(await b.plane.workers.live("gpu")) == ["w1", "w2"]
        await b.client.pool_heartbeat(PoolHeartbeat(name="w1", free_slots=3))
        again = await b.client.register_worker(ENTRY)
        assert (again.machine_id, again.runtime_id) == (first.machine_id, first.runtime_id)


@virtually
async def test_a_beat_extends_leases_and_an_unknown_worker_is_to_register_again() -> None:
    async with rig() as r:
        with pytest.raises(Refused) as refusal:
            await r.client.pool_heartbeat(PoolHeartbeat(name="w"))
        assert (refusal.value.code, refusal.value.problem.status) == ("unknown_worker", 404)
        await r.client.register_worker(WorkerEntry(name="w", capacity=2))
        await r.start(ONE_STEP)
        (work,) = await r.claim()
        held = Held(command_id=work.command_id, attempt=1)
        for _ in range(4):
            await asyncio.sleep(10)
            beat = await r.client.pool_heartbeat(PoolHeartbeat(name="w", commands=(held,)))
            assert (beat.extended, beat.status, beat.drain) == ((work.command_id,), "ok", False)
        await r.store.runtimes.mark("worker_pool", "w", "draining")
        await asyncio.sleep(2)
        assert (await r.client.pool_heartbeat(PoolHeartbeat(name="w"))).drain is True


@virtually
async def test_whoever_leaves_gives_back_what_he_holds_at_once() -> None:
    async with rig() as r:
        await r.client.register_worker(WorkerEntry(name="w", capacity=2))
        await r.start(ONE_STEP)
        (work,) = await r.claim()
        await r.client.leave(Left(name="w"))
        (again,) = await r.claim(worker_id="other")
        assert again.command_id == work.command_id


@virtually
async def test_pools_tell_what_they_can_do_and_what_waits() -> None:
    async with rig() as r:
        await r.client.register_worker(WorkerEntry(name="w", capacity=2))
        await r.client.register_worker(WorkerEntry(name="g", kind="gateway"))
        await r.start(ONE_STEP)
        await r.start(ONE_STEP)
        await r.claim()
        told = await r.client.pools()
        assert [(row.name, row.kind, row.status) for row in told.items] == [
            ("g", "gateway", "ready"),
            ("w", "worker_pool", "ready"),
        ]
        (pool,) = told.pools
        assert (pool.pool, pool.workers, pool.slots, pool.in_flight, pool.pending) == (
            "shared", 1, 2, 1, 1,
        )  # fmt: skip
        assert pool.oldest_pending_at is not None
        await asyncio.sleep(31)
        assert [row.status for row in (await r.client.pools(name="w")).items] == ["stale"]
        await asyncio.sleep(60)
        assert [row.name for row in (await r.client.pools(status="offline")).items] == ["g", "w"]
        with pytest.raises(Refused) as refusal:
            await r.client.pools(kind="toaster")
        assert refusal.value.problem.status == 422


@virtually
async def test_what_cannot_join_is_refused() -> None:
    async with rig() as r:
        for entry in (
            WorkerEntry(name="w", kind="toaster"),
            WorkerEntry(name=""),
            WorkerEntry(name="w", runtime={"worker_public_key": "c2hvcnQ="}),
            WorkerEntry(name="w", runtime={"worker_public_key": 7}),
        ):
            with pytest.raises(Refused) as refusal:
                await r.client.register_worker(entry)
            assert refusal.value.problem.status == 422
        key = "A" * 43 + "="
        joined = await r.client.register_worker(
            WorkerEntry(name="w", runtime={"worker_public_key": key, "pool": "gpu"})
        )
        assert joined.name == "w"
        assert names(await r.plane.workers.live("gpu")) == ["w"]


@virtually
async def test_the_other_names_of_the_routes_do_the_same() -> None:
    async with rig() as r:
        call = AsgiTransport(r.server.asgi).request
        body = b'{"name":"w","component_type":"worker_pool","capacity":1}'
        assert (await call("POST", "/api/runtime/register", body)).status == 200
        assert (await call("POST", "/api/runtime/heartbeat", b'{"name":"w"}')).status == 200
        gone = await call("DELETE", "/api/worker/pool/deregister", b'{"name":"w"}')
        assert (gone.status, msgspec.json.decode(gone.body)["status"]) == (200, "ok")
        assert (await call("POST", "/api/runtime/heartbeat", b'{"name":"w"}')).status == 404


@virtually
async def test_a_run_has_one_shard() -> None:
    async with rig() as r:
        call = AsgiTransport(r.server.asgi).request
        for execution_id, count, index in (
            (320816801799737344, 16, 14), (1, 4, 1), (42, 4, 3), (325, 4, 0), (325, 8, 4),
            (9223372036854775807, 4, 0),
        ):  # fmt: skip
            path = f"/api/runtime/shard-info?execution_id={execution_id}&shard_count={count}"
            told = msgspec.json.decode((await call("GET", path)).body)
            assert (told["shard_index"], told["hash_function"], told["seed"]) == (
                index, "xxh64-le-i64", 0,
            )  # fmt: skip
        for query in ("execution_id=x", "execution_id=1&shard_count=0", "shard_count=4", "",
                      "execution_id=1&shard_count=1025"):  # fmt: skip
            answer = await call("GET", f"/api/runtime/shard-info?{query}")
            assert (answer.status, msgspec.json.decode(answer.body)["code"]) == (400, "bad_query")


@virtually
async def test_slots_have_a_measure() -> None:
    async with rig() as r:
        for entry in (WorkerEntry(name="w", capacity=1 << 40), WorkerEntry(name="w", capacity=-1)):
            with pytest.raises(Refused) as refused:
                await r.client.register_worker(entry)
            assert (refused.value.problem.status, refused.value.code) == (422, "validation_failed")


@virtually
async def test_workers_that_are_to_drain_are_told_on_the_bus_and_by_both_beats() -> None:
    async with rig() as r:
        for name in ("w1", "w2"):
            await r.client.register_worker(msgspec.structs.replace(ENTRY, name=name))
        async with r.bus.listen("noetl.control.gpu") as words:
            assert (await r.client.drain_pool("gpu", "w2")).workers == ("w2",)
            one = msgspec.json.decode((await anext(words)).payload)
            beats = [
                (
                    (await r.client.heartbeat(Heartbeat(worker_id=name))).drain,
                    (await r.client.pool_heartbeat(PoolHeartbeat(name=name))).drain,
                )
                for name in ("w1", "w2")
            ]
            await r.client.drain_pool("gpu")
            every = msgspec.json.decode((await anext(words)).payload)
        assert one == {"op": "drain", "workers": ["w2"]}
        assert every == {"op": "drain", "workers": ["w1", "w2"]}
        assert beats == [(False, False), (True, True)]
        assert (await r.client.heartbeat(Heartbeat(worker_id="nobody"))).drain is False


@virtually
async def test_a_drain_needs_no_bus() -> None:
    async with rig() as r:
        await r.client.register_worker(ENTRY)
        await r.bus.close()
        assert (await r.client.drain_pool("gpu")).workers == ("w1",)
        assert (await r.client.pool_heartbeat(PoolHeartbeat(name="w1"))).drain is True
