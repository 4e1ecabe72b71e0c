"""Starting many runs at once, and what a single start may ask for."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.api.catalog import Register
from noetl.api.executions import Control, Dedup, Execute
from noetl.api.http import AsgiTransport
from noetl.api.problems import Refused
from noetl.edge.errors import Forbidden
from noetl.server.access.entry import Caller
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import HEAD, ONE_STEP, rig, virtually

DEVELOPER = Caller("dev", ("developer",))
LIMITED = "executor: {spec: {concurrency: {key: k, limit: 1, on_limit: queue}}}\n"
TYPED = "workload: {a: 1}\ninputs: {n: {type: integer, required: true}}\n"


class Counting(MemoryStore):
    """Counts the commits."""

    def __init__(self) -> None:
        super().__init__(self._seen)
        self.commits = 0

    def _seen(self, _events) -> None:
        self.commits += 1


async def registered(r, head: str = "") -> None:
    await r.client.register(Register(content=HEAD + head + ONE_STEP))


@virtually
async def test_a_batch_is_one_commit_and_bad_items_fail_alone() -> None:
    store = Counting()
    async with rig(store) as r:
        await registered(r)
        bodies: list[Execute] = [Execute(path="demo/it", priority=n % 10) for n in range(1000)]
        bodies[3] = Execute(path="nowhere")
        bodies[500] = Execute(path="demo/it", priority=11)
        bodies[999] = Execute()
        told = await r.client.execute_batch(bodies)
        assert (told.count, told.started, told.duplicates, told.failed) == (1000, 997, 0, 3)
        assert [item.index for item in told.results] == list(range(1000))
        failed = {item.index: item.error["code"] for item in told.results if item.error}
        assert failed == {3: "unknown_path", 500: "validation_failed", 999: "validation_failed"}
        assert store.commits == 1
        assert len({item.execution_id for item in told.results}) == 998


@virtually
async def test_a_batch_has_a_size() -> None:
    async with rig() as r:
        await registered(r)
        for count in (0, 1001):
            with pytest.raises(Refused) as refusal:
                await r.client.execute_batch([Execute(path="demo/it")] * count)
            assert (refusal.value.code, refusal.value.problem.status) == ("batch_size_invalid", 422)


@virtually
async def test_equal_keys_of_a_batch_are_one_run() -> None:
    async with rig() as r:
        await registered(r)
        asked = Execute(path="demo/it", dedup=Dedup(key="k"))
        other = Execute(path="demo/it", dedup=Dedup(key="l"))
        told = await r.client.execute_batch([asked, other, asked, asked])
        assert (told.started, told.duplicates) == (2, 2)
        runs = [item.execution_id for item in told.results]
        assert runs[0] == runs[2] == runs[3] != runs[1]
        again = await r.client.execute_batch([asked])
        assert [item.execution_id for item in again.results] == [runs[0]]


@virtually
async def test_two_batches_with_the_same_keys_in_other_orders_do_not_block_each_other() -> None:
    async with rig() as r:
        await registered(r)
        bodies = [Execute(path="demo/it", dedup=Dedup(key=str(n))) for n in range(20)]
        one, two = await asyncio.gather(
            r.client.execute_batch(bodies), r.client.execute_batch(bodies[::-1])
        )
        assert one.started + two.started == 20
        assert one.duplicates + two.duplicates == 20


@virtually
async def test_items_of_one_concurrency_key_keep_its_limit() -> None:
    async with rig() as r:
        await registered(r, LIMITED)
        told = await r.client.execute_batch([Execute(path="demo/it")] * 3)
        assert told.started == 3
        states = [await r.status(item.execution_id) for item in told.results]
        assert sorted(states) == ["PENDING", "PENDING", "RUNNING"]


@virtually
async def test_a_hundred_starts_under_one_key_are_one_run_until_the_window_ends() -> None:
    async with rig() as r:
        await registered(r)
        asked = Execute(path="demo/it", dedup=Dedup(key="k", window_secs=60))
        told = await asyncio.gather(*(r.client.execute(asked) for _ in range(100)))
        assert sorted(item.status for item in told) == ["duplicate"] * 99 + ["started"]
        assert len({item.execution_id for item in told}) == 1
        await asyncio.sleep(61)
        assert (await r.client.execute(asked)).status == "started"


@virtually
async def test_an_idempotency_key_means_one_body() -> None:
    async with rig() as r:
        await registered(r)
        transport = AsgiTransport(r.server.asgi)

        async def start(body: bytes, key: str):
            answer = await transport.request("POST", "/api/execute", body, {"Idempotency-Key": key})
            return answer.status, msgspec.json.decode(answer.body)

        _, first = await start(b'{"path":"demo/it"}', "k")
        _, again = await start(b'{"path":"demo/it"}', "k")
        assert (again["status"], again["execution_id"]) == ("duplicate", first["execution_id"])
        status, problem = await start(b'{"path":"demo/it","payload":{"a":2}}', "k")
        assert (status, problem["code"]) == (409, "dedup_conflict")
        assert (await start(b'{"path":"demo/it"}', "x" * 201))[0] == 422


@virtually
async def test_an_id_of_the_callers_means_one_body() -> None:
    async with rig() as r:
        await registered(r)
        started = await r.client.execute(Execute(path="demo/it", execution_id=4711))
        assert started.execution_id == "4711"
        again = await r.client.execute(Execute(path="demo/it", execution_id="4711"))
        assert again.status == "duplicate"
        with pytest.raises(Refused) as refusal:
            await r.client.execute(Execute(path="demo/it", execution_id="4711", payload={"a": 1}))
        assert (refusal.value.code, refusal.value.problem.status) == ("dedup_conflict", 409)


@virtually
async def test_a_dry_run_checks_and_stores_nothing() -> None:
    async with rig() as r:
        await registered(r, TYPED)
        good = await r.client.rehearse(Execute(path="demo/it", workload={"n": 1}))
        assert (good.valid, good.entry_step) == (True, "start")
        assert good.workload is not None
        assert (good.workload["a"], good.workload["n"]) == (1, 1)
        bad = await r.client.rehearse(Execute(path="demo/it", payload={"n": "x"}))
        assert (bad.valid, bool(bad.problems)) == (False, True)
        with pytest.raises(Refused) as refusal:
            await r.client.rehearse(Execute(path="nowhere"))
        assert refusal.value.code == "unknown_path"
        assert (await r.client.executions()).items == ()


@virtually
async def test_what_a_caller_may_not_ask_for() -> None:
    async with rig() as r:
        await registered(r)
        starts = r.plane.starts
        for body, code in (
            (Execute(path="demo/it", execution_id="1"), "field_not_allowed"),
            (Execute(path="demo/it", request={"request_id": "r"}), "field_not_allowed"),
            (Execute(path="demo/it", trigger={"kind": "x"}), "field_not_allowed"),
            (Execute(path="demo/it", execution_pool="system"), "reserved_pool"),
        ):
            with pytest.raises(Forbidden) as refusal:
                await starts.execute(body, DEVELOPER)
            assert refusal.value.code == code
        with pytest.raises(Forbidden):
            await starts.execute(Execute(path="demo/it"), Caller("w", ("worker",), "shared"))
        system = Register(content=(HEAD + ONE_STEP).replace("demo/it", "system/it"))
        with pytest.raises(Forbidden) as refusal:
            await r.plane.registration.register(system, DEVELOPER)
        assert refusal.value.code == "reserved_namespace"
        await r.plane.registration.register(system)
        with pytest.raises(Forbidden) as refusal:
            await starts.execute(Execute(path="system/it"), DEVELOPER)
        assert refusal.value.code == "reserved_namespace"
        started = await starts.execute(Execute(path="demo/it"), DEVELOPER)
        told = await r.client.execution(started.execution_id, with_state=False)
        assert told.created_by == "dev"


@virtually
async def test_labels_traces_and_times_have_bounds() -> None:
    async with rig() as r:
        await registered(r)
        for body, code in (
            (Execute(path="demo/it", labels={str(n): "" for n in range(33)}), "validation_failed"),
            (Execute(path="demo/it", labels={"n" * 64: ""}), "validation_failed"),
            (Execute(path="demo/it", labels={"n": "v" * 256}), "validation_failed"),
            (Execute(path="demo/it", trace={"traceparent": "00-1"}), "validation_failed"),
            (Execute(path="demo/it", start_at="tomorrow"), "bad_time"),
            (Execute(path="demo/it", start_at="2027-06-01T00:00:00Z"), "bad_time"),
            (Execute(path="demo/it", payload={}, workload={}), "validation_failed"),
        ):
            with pytest.raises(Refused) as refusal:
                await r.client.execute(body)
            assert (refusal.value.code, refusal.value.problem.status) == (code, 422)
        transport = AsgiTransport(r.server.asgi)
        parent = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
        answer = await transport.request(
            "POST", "/api/execute", b'{"path":"demo/it"}', {"traceparent": parent}
        )
        run = msgspec.json.decode(answer.body)["execution_id"]
        assert (await r.client.execution(run)).trace == {"traceparent": parent}


@virtually
async def test_a_run_waits_for_its_time() -> None:
    async with rig() as r:
        await registered(r)
        asked = Execute(path="demo/it", start_at="2026-01-01T02:00:00+01:00")
        run = (await r.client.execute(asked)).execution_id
        assert await r.status(run) == "PENDING"
        assert await r.claim() == []
        (reason,) = (await r.client.why(run))["reasons"]
        assert (reason["code"], reason["due_at"]) == (
            "start_delayed",
            "2026-01-01T01:00:00.000000Z",
        )
        await asyncio.sleep(3599)
        assert await r.status(run) == "PENDING"
        await asyncio.sleep(2)
        (work,) = await r.claim()
        await r.done(work)
        assert await r.status(run) == "COMPLETED"
        past = Execute(path="demo/it", start_at="2026-01-01T00:00:00Z")
        assert await r.status((await r.client.execute(past)).execution_id) == "RUNNING"


@virtually
async def test_a_run_that_waits_for_its_time_is_cancelled_like_any_other() -> None:
    async with rig() as r:
        await registered(r)
        asked = Execute(path="demo/it", start_at="2026-01-01T01:00:00Z")
        run = (await r.client.execute(asked)).execution_id
        await r.client.cancel(run, Control())
        await asyncio.sleep(4000)
        assert await r.status(run) == "CANCELLED"
        assert "execution.admitted" not in await r.types(run)


@virtually
async def test_a_key_is_asked_for_when_the_time_has_come() -> None:
    async with rig() as r:
        await registered(r, LIMITED)
        asked = Execute(path="demo/it", start_at="2026-01-01T01:00:00Z")
        later = (await r.client.execute(asked)).execution_id
        now = (await r.client.execute(Execute(path="demo/it"))).execution_id
        assert [await r.status(run) for run in (now, later)] == ["RUNNING", "PENDING"]
        await asyncio.sleep(3700)
        assert [await r.status(run) for run in (now, later)] == ["RUNNING", "PENDING"]
        (work,) = await r.claim()
        await r.done(work)
        await asyncio.sleep(1)
        assert [await r.status(run) for run in (now, later)] == ["COMPLETED", "RUNNING"]
