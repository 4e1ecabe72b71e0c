"""Starting: nothing begins that is not kept, and nothing begins twice."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.api.gateway import Wish
from noetl.api.http import Answer
from noetl.api.problems import Refused
from noetl.edge.errors import Conflict, Unacceptable
from noetl.errors import NoetlError
from noetl.gateway.errors import ClientNotYours, UpstreamUnavailable, rpc_of
from noetl.gateway.person import Person
from noetl.gateway.requests.record import wish_key
from tests.unit.gateway.requests.desk import ANN, BOB, CLIENT, Desk, desk
from tests.unit.server.rig import virtually


async def runs(d: Desk) -> list[str]:
    page = await d.system.executions()
    return [item.execution_id for item in page.items]


@virtually
async def test_28_a_server_that_is_lost_leaves_at_most_one_run() -> None:
    async with desk() as d:
        await d.start()
        before = await runs(d)
        d.way.is_barred = True
        with pytest.raises(UpstreamUnavailable) as caught:
            await d.start()
        assert rpc_of(caught.value).code == -32007
        execution_id = caught.value.execution_id
        assert rpc_of(caught.value).data["executionId"] == execution_id
        d.way.is_barred = False
        assert await runs(d) == before
        for _ in range(9):
            await asyncio.sleep(5)
            await d.requests.sweeping.sweep()
        (settled,) = [
            each for each in await d.requests.listed(ANN) if each.execution_id == execution_id
        ]
        assert settled.state == "rejected"


@virtually
async def test_28_a_lost_answer_of_execute_is_asked_again_and_starts_no_second_run() -> None:
    async with desk() as d:
        await d.start()
        d.way.lost.add("/api/execute")
        wish = asyncio.create_task(d.start())
        await asyncio.sleep(1)
        d.way.lost.clear()
        started = await wish
        assert (await runs(d)).count(started.execution_id) == 1
        assert len(await runs(d)) == 2
        await d.step()
        await d.step()
        await d.heard()
        assert started.request_id in {each["requestId"] for each in await d.results()}


@virtually
async def test_28_a_refusal_after_a_lost_answer_does_not_deny_a_run_that_is_there() -> None:
    async with desk() as d:
        await d.start()
        d.way.lost.add("/api/execute")
        wish = asyncio.create_task(d.start())
        await asyncio.sleep(0.05)
        ask = d.way._way.request  # noqa: SLF001 - the server is asked too often

        async def limited(method: str, path: str, body: bytes, headers: object) -> Answer:
            if path != "/api/execute":
                return await ask(method, path, body, headers)
            problem = {"type": "t", "title": "t", "status": 429, "code": "rate_limited"}
            return Answer(429, {}, msgspec.json.encode({**problem, "detail": "slow down"}))

        d.way._way.request = limited  # noqa: SLF001 - as above
        d.way.lost.clear()
        started = await wish
        assert (await runs(d)).count(started.execution_id) == 1
        assert (await d.requests.document(ANN, started.request_id)).state == "running"


@virtually
async def test_28_a_run_whose_start_was_never_answered_is_told_all_the_same() -> None:
    async with desk() as d:
        await d.start()
        d.way.lost.add("/api/execute")
        with pytest.raises(UpstreamUnavailable) as caught:
            await d.start()
        d.way.lost.clear()
        assert (await runs(d)).count(str(caught.value.execution_id)) == 1
        await d.step()
        await d.step()
        await d.heard()
        told = {each["executionId"] for each in await d.results()}
        assert caught.value.execution_id in told


@pytest.mark.parametrize("operation", ["create", "put"])
def test_a_bucket_that_is_away_starts_nothing(operation: str) -> None:
    @virtually
    async def run() -> None:
        async with desk() as d:
            d.keys.barred.add(operation)
            with pytest.raises(UpstreamUnavailable) as caught:
                await d.start()
            assert rpc_of(caught.value).code == -32007
            assert caught.value.execution_id is None
            assert await runs(d) == []
            assert d.metrics.kv_errors.value("requests", "create") == 1

    run()


@virtually
async def test_a_run_that_begun_is_answered_though_the_bucket_is_away_by_then() -> None:
    async with desk() as d:
        d.keys.barred.add("update")
        started = await d.start()
        d.keys.barred.clear()
        assert await runs(d) == [started.execution_id]
        await d.published()
        await d.heard()
        kept = await d.requests.document(ANN, started.request_id)
        assert kept.state == "running"


@virtually
async def test_29_one_key_twice_is_one_run() -> None:
    async with desk(ttl_s=60.0, deadline_s=10.0) as d:
        first = await d.start(idempotency_key="k", variables={"b": 1, "a": 2})
        again = await d.start(idempotency_key="k", variables={"a": 2, "b": 1})
        assert again == first
        assert await runs(d) == [first.execution_id]
        with pytest.raises(Conflict) as caught:
            await d.start(idempotency_key="k", variables={"a": 3})
        assert caught.value.code == "dedup_conflict"
        assert rpc_of(caught.value).code == -32602
        await asyncio.sleep(200)
        assert await d.requests.parts.records.find(first.request_id) is None, "forgotten by now"
        assert await d.start(idempotency_key="k", variables={"a": 2, "b": 1}) == first
        key = wish_key(ANN.owner, "k")
        left_s = d.bus.requests._kept[key].until - d.clock.monotonic()  # noqa: SLF001 - its life
        assert left_s == pytest.approx(86_400 - 200, abs=5)


@virtually
async def test_29_one_key_at_once_on_two_gateways_is_one_run() -> None:
    async with desk() as d:
        other = d.replica()
        wish = Wish(name="demo/it", client_id=CLIENT, idempotency_key="k")
        made = await asyncio.gather(
            *(each.requests.start(ANN, wish) for each in (d, other, d, other))
        )
        assert len({each.execution_id for each in made}) == 1
        assert len(await runs(d)) == 1
        elsewhere = Wish(name="demo/it", idempotency_key="k")
        mine = await d.requests.start(BOB, elsewhere)
        assert mine.execution_id != made[0].execution_id, "a key is somebody's own"


@virtually
async def test_a_key_whose_start_was_refused_is_free_again() -> None:
    async with desk() as d:
        await d.playbook(
            "inputs: {n: {type: integer, required: true}}\n"
            'workflow:\n  - step: start\n    tool: {kind: python, code: "return 1"}\n',
            "demo/strict",
        )
        with pytest.raises(Refused):
            await d.start(name="demo/strict", idempotency_key="k", variables={"n": "text"})
        started = await d.start(name="demo/strict", idempotency_key="k", variables={"n": 1})
        assert await runs(d) == [started.execution_id]
        states = [each.state for each in await d.requests.listed(ANN)]
        assert sorted(states) == ["rejected", "running"]
        assert len(await d.requests.parts.records.opened()) == 1


@virtually
async def test_a_start_that_was_left_behind_is_done_by_whoever_repeats_it() -> None:
    async with desk() as d:
        await d.start()
        d.way.is_barred = True
        wish = asyncio.create_task(d.start(idempotency_key="k"))
        await asyncio.sleep(1)
        wish.cancel()
        await asyncio.gather(wish, return_exceptions=True)
        d.way.is_barred = False
        started = await d.start(idempotency_key="k")
        assert len(await runs(d)) == 2
        token = await d.token(started.request_id)
        assert await d.call_back(started.request_id, data=1, token=token) == "delivered"
        assert await d.start(idempotency_key="k") == started


@virtually
async def test_what_cannot_be_meant_is_refused_before_any_effect() -> None:
    async with desk() as d:
        for more in (
            {"name": " "},
            {"timeout_secs": 0},
            {"timeout_secs": 86_401},
            {"client_id": None, "delivery": "client"},
            {"idempotency_key": ""},
        ):
            with pytest.raises(Unacceptable):
                await d.start(**more)
        with pytest.raises(Unacceptable):
            await d.requests.start(ANN, msgspec.structs.replace(WISH, variables=[1]))
        with pytest.raises(ClientNotYours):
            await d.requests.start(BOB, WISH)
        with pytest.raises(ClientNotYours):
            await d.start(client_id="nobody-knows-it")
        viewer = Person(user_id="9", subject="vi", roles=("viewer",), session_id="s-vi")
        for person, name, code in (
            (viewer, "demo/it", -32003),
            (ANN, "demo/none", -32008),
        ):
            with pytest.raises(NoetlError) as caught:
                await d.requests.start(person, Wish(name=name))
            assert rpc_of(caught.value).code == code
        assert await runs(d) == []
        assert d.keys.count("create", "put") == 0


WISH = Wish(name="demo/it", client_id=CLIENT)


@virtually
async def test_a_rerun_is_a_request_of_its_own_with_the_same_or_other_variables() -> None:
    async with desk() as d:
        first = await d.start(variables={"a": 1})
        same = await d.requests.rerun(ANN, first.execution_id, None, CLIENT)
        other = await d.requests.rerun(ANN, first.execution_id, {"a": 2}, CLIENT)
        for started, value in ((same, 1), (other, 2)):
            run = await d.system.execution(started.execution_id)
            assert run.rerun_of == first.execution_id
            assert run.workload["a"] == value
            assert run.workload["request_id"] == started.request_id
            assert await d.token(started.request_id) != await d.token(first.request_id)
            assert await d.call_back(started.request_id, data=value) == "delivered"


@virtually
async def test_the_cost_of_a_start_and_of_an_end() -> None:
    async with desk() as d:
        await d.start()
        d.keys.used.clear()
        d.way.asked.clear()
        started = await d.start()
        writes = [f"{name} {key[:2]}" for name, key in d.keys.used]
        assert sorted(writes) == sorted(
            ["create r.", "put e.", "put u.", "put c.", "put o.", "update r."]
        ), "five at once, and one after the run has begun"
        assert d.way.asked == ["POST /api/execute"]
        token = await d.token(started.request_id)
        d.keys.used.clear()
        d.way.asked.clear()
        await d.call_back(started.request_id, data=1, token=token)
        assert [f"{name} {key[:2]}" for name, key in d.keys.used] == [
            "get r.", "update r.", "delete o.",
        ]  # fmt: skip
        assert [each.partition(" ")[0] for each in d.way.asked] == ["PUT"]
        other = await d.start()
        await d.published()
        await d.heard()
        for _ in range(3):
            assert await d.step()
        d.keys.used.clear()
        d.way.asked.clear()
        await d.heard()
        of_other = [(name, key[:2]) for name, key in d.keys.used if other.request_id in key]
        assert of_other == [("update", "r."), ("delete", "o.")]
        assert d.way.asked == []
