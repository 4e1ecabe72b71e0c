"""JSON-RPC: the same calls with the same answers on every way in."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.gateway.rig import gateway_rig
from tests.unit.gateway.streaming import events, socket, until
from tests.unit.server.rig import ONE_STEP


def _call(method: str, params: Any = None, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}, **more}


async def test_bad_calls_have_the_codes_of_the_contract() -> None:
    async with gateway_rig() as rig:
        ann = rig.caller(await rig.login())
        cases: list[tuple[Any, int, int]] = [
            (b"{", 200, -32700),
            ([_call("ping")], 200, -32600),
            ({"id": 1, "method": "ping"}, 200, -32600),
            (_call("ping", jsonrpc="1.0"), 200, -32600),
            (_call("ping", id=True), 200, -32600),
            ({"jsonrpc": "2.0", "id": 1, "method": 5}, 200, -32600),
            (_call("no/such"), 200, -32601),
            ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}, 200, -32602),
            (_call("playbook/execute", {"name": "demo/it", "variables": [1]}), 200, -32602),
            (_call("playbook/execute", {"name": "demo/it", "nme": 1}), 200, -32602),
            (_call("playbook/status"), 200, -32602),
            (_call("playbook/execute", {"name": "no/such"}), 200, -32008),
            (_call("playbook/status", {"requestId": "x"}), 200, -32008),
            (_call("playbook/execute", {"name": "x", "clientId": "client-00009"}), 403, -32003),
            (b'{"a": "' + b"x" * (1 << 20) + b'"}', 413, -32006),
        ]
        for body, status, code in cases:
            sent = body if isinstance(body, bytes) else json.dumps(body).encode()
            answer = await ann.post("/rpc", sent, {"content-type": "application/json"})
            told = json.loads(answer.body)
            assert (answer.status, told["error"]["code"]) == (status, code), body
            assert told["jsonrpc"] == "2.0"


async def test_a_caller_without_a_session_gets_401_and_an_error_of_json_rpc() -> None:
    async with gateway_rig() as rig:
        answer = await rig.caller().post("/rpc", _call("ping"))
        told = json.loads(answer.body)
        assert (answer.status, told["error"]["code"], told["id"]) == (401, -32002, None)
        assert "www-authenticate" in answer.headers


async def test_a_notification_is_answered_202_without_a_body() -> None:
    async with gateway_rig() as rig:
        ann = rig.caller(await rig.login())
        for method in ("ping", "pong", "no/such"):
            answer = await ann.post("/rpc", {"jsonrpc": "2.0", "method": method})
            assert (answer.status, answer.body) == (202, b"")
        assert json.loads((await ann.post("/rpc", _call("ping"))).body)["result"] == {}


async def test_initialize_tells_what_a_stream_would() -> None:
    async with gateway_rig() as rig:
        ann = rig.caller(await rig.login())
        told = json.loads((await ann.post("/rpc", _call("initialize"))).body)["result"]
        assert told["protocolVersion"] == "2024-11-05"
        assert told["serverInfo"]["name"] == "noetl-gateway"
        assert len(told["clientId"]) == 36
        assert told["epoch"]


async def test_23_another_users_client_id_gets_403_in_events_ws_and_rpc() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann, bob = await rig.login("ann"), await rig.login("bob")
        theirs = {"name": "demo/it", "clientId": "client-of-ann"}
        async with events(rig.gateway.asgi, ann.headers, client_id="client-of-ann") as stream:
            async with events(rig.gateway.asgi, bob.headers, client_id="client-of-ann") as refused:
                assert (refused.status, refused.problem["code"]) == (403, "client_not_yours")
            async with socket(rig.gateway.asgi, bob.headers) as refused_socket:
                answer = await refused_socket.call("initialize", {"clientId": "client-of-ann"})
                assert answer["error"]["code"] == -32003
                assert await refused_socket.closed() == 4403
            answer = await rig.caller(bob).post("/rpc", _call("playbook/execute", theirs))
            assert (answer.status, json.loads(answer.body)["error"]["code"]) == (403, -32003)
            async with socket(rig.gateway.asgi, bob.headers) as refused_socket:
                await refused_socket.call("initialize")
                told = await refused_socket.call("playbook/execute", theirs)
                assert told["error"]["code"] == -32003
            assert not stream.is_over
            assert (
                await rig.caller(ann).post("/rpc", _call("playbook/execute", theirs))
            ).status == 200


async def test_32_execute_behaves_the_same_on_rpc_and_ws() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        caller = rig.caller(ann)
        calls: list[Any] = [
            {"name": "demo/it"},
            {"name": "demo/it", "variables": {"a": 1}, "clientId": "client-00001"},
            {"name": "demo/it", "delivery": "session"},
            {"name": "no/such"},
            {"name": "demo/it", "variables": "x"},
            {"name": "demo/it", "clientId": "client-unknown"},
            {"name": "demo/it", "timeoutSecs": 0},
            {},
        ]
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize", {"clientId": "client-00001"})
            for params in calls:
                body = {"jsonrpc": "2.0", "id": 1, "method": "playbook/execute", "params": params}
                one = json.loads((await caller.post("/rpc", body)).body)
                two = await ws.call("playbook/execute", params)
                assert _shape(one) == _shape(two), params


def _shape(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        return answer["error"]
    assert set(answer["result"]) == {"requestId", "executionId", "status"}
    return answer["result"]["status"]


async def test_the_header_is_an_idempotency_key_as_well() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = rig.caller(await rig.login())
        body = _call("playbook/execute", {"name": "demo/it"})
        first, second = [
            json.loads((await ann.post("/rpc", body, {"idempotency-key": "k1"})).body)["result"]
            for _ in range(2)
        ]
        assert first == second


async def test_a_request_can_be_looked_at_and_cancelled() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = rig.caller(await rig.login())

        async def told(method: str, **params: Any) -> Any:
            return json.loads((await ann.post("/rpc", _call(method, params))).body)["result"]

        made = await told("playbook/execute", name="demo/it")
        for params in ({"requestId": made["requestId"]}, {"executionId": made["executionId"]}):
            document = await told("playbook/status", **params)
            assert document["requestId"] == made["requestId"]
            assert document["state"] in {"accepted", "running"}
        ended = await told("playbook/cancel", requestId=made["requestId"])
        assert ended["executionId"] == made["executionId"]


async def test_a_subscribed_client_is_told_of_a_run_until_it_ends() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize")
            made = (await ws.call("playbook/execute", {"name": "demo/it", "delivery": "none"}))[
                "result"
            ]
            run = made["executionId"]
            asked = {"executionIds": [run], "channels": ["state", "events"]}
            assert (await ws.call("subscribe", asked))["result"] == {"subscribed": [run]}
            assert await rig.step({"n": 1})
            await ws.until(
                lambda: any(
                    one["eventType"] == "playbook.completed" for one in ws.bodies("playbook/state")
                )
            )
            seqs = [one["seq"] for one in ws.bodies("playbook/event")]
            assert seqs == list(range(1, len(seqs) + 1))
            assert all("eventId" not in one for one in ws.bodies("playbook/event"))
            await until(lambda: not rig.gate.hub.watches.followed)


async def test_a_run_that_somebody_may_not_see_is_not_subscribed() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize")
            told = await ws.call("subscribe", {"executionIds": ["12345"]})
            assert told["error"]["code"] == -32008
            told = await ws.call("subscribe", {"executionIds": [str(n) for n in range(1, 52)]})
            assert told["error"]["code"] == -32602
            told = await ws.call("subscribe", {"executionIds": ["1"], "channels": ["all"]})
            assert told["error"]["code"] == -32602
            told = await ws.call("subscribe", {"executionIds": ["1"], "clientId": "client-00009"})
            assert told["error"]["code"] == -32003


@pytest.mark.parametrize("way", ["rpc", "ws"])
async def test_an_acknowledged_result_is_not_told_again(way: str) -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        caller = rig.caller(ann)
        async with socket(rig.gateway.asgi, ann.headers) as ws, rig.worker({"n": 1}):
            await ws.call("initialize", {"clientId": "client-00001"})
            await ws.call("playbook/execute", {"name": "demo/it", "clientId": "client-00001"})
            (result,) = await ws.got("playbook/result")
            person, undelivered = (
                await rig.gate.sessions.of(ann.token),
                rig.gate.requests.undelivered,
            )
            assert len([each async for each in undelivered(person, "client-00001")]) == 1
            if way == "ws":
                assert (await ws.call("ack", {"eventId": result["eventId"]}))["result"] == {}
            else:
                await caller.post("/rpc", _call("ack", {"eventId": result["eventId"]}))
            assert [each async for each in undelivered(person, "client-00001")] == []
