"""WebSocket: who gets in, what he may say, and how it ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from noetl.edge.errors import RateLimited
from noetl.gateway import frames
from tests.unit.gateway.rig import gateway_rig
from tests.unit.gateway.streaming import socket, until
from tests.unit.server.rig import ONE_STEP, virtually

if TYPE_CHECKING:
    import pytest

OWN = {"origin": "http://gateway.test"}


@virtually
async def test_30_a_foreign_origin_gets_403_before_the_upgrade() -> None:
    async with gateway_rig(cors_origins=("https://ui.example",)) as rig:
        ann = await rig.login()
        cases: list[tuple[dict[str, str], bool]] = [
            ({**ann.headers, "origin": "https://evil.example"}, False),
            ({**ann.headers, "origin": "https://ui.example.evil.example"}, False),
            ({**ann.headers, "origin": "null"}, False),
            ({"cookie": f"noetl_session={ann.token}"}, False),
            ({}, False),
            ({**ann.headers, "origin": "https://ui.example"}, True),
            ({**ann.headers, **OWN}, True),
            (ann.headers, True),
        ]
        for headers, is_in in cases:
            async with socket(rig.gateway.asgi, headers) as ws:
                assert ws.is_accepted == is_in, headers
                if not is_in:
                    assert ws.denied is not None
                    status, body = ws.denied
                    assert (status, json.loads(body)["code"]) == (403, "origin_refused")


@virtually
async def test_a_bad_session_on_the_upgrade_gets_401() -> None:
    bad = {"authorization": "Bearer nts_nobody"}
    async with gateway_rig() as rig, socket(rig.gateway.asgi, bad) as ws:
        assert ws.denied is not None
        assert (ws.denied[0], ws.is_accepted) == (401, False)


@virtually
async def test_the_subprotocol_is_noetl_v1_or_none() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with socket(rig.gateway.asgi, ann.headers, ("other", "noetl.v1")) as ws:
            assert ws.subprotocol == "noetl.v1"
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            assert ws.subprotocol is None
        async with socket(rig.gateway.asgi, ann.headers, ("other",)) as ws:
            assert ws.denied is not None
            assert ws.denied[0] == 422


@virtually
async def test_30_no_initialize_in_time_closes_with_4408() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        for headers in (OWN, ann.headers):
            async with socket(rig.gateway.asgi, headers) as ws:
                assert await ws.closed() == 4408


@virtually
async def test_without_a_credential_the_first_message_brings_the_session() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with socket(rig.gateway.asgi, OWN) as ws:
            told = await ws.call("initialize", {"sessionToken": ann.token})
            assert told["result"]["sessionExpiresAt"]
            assert (await ws.call("ping"))["result"] == {}
        async with socket(rig.gateway.asgi, OWN) as ws:
            told = await ws.call("initialize", {"sessionToken": "nts_wrong"})
            assert (told["error"]["code"], await ws.closed()) == (-32002, 4401)
        async with socket(rig.gateway.asgi, OWN) as ws:
            told = await ws.call("initialize")
            assert (told["error"]["code"], await ws.closed()) == (-32002, 4401)
        async with socket(rig.gateway.asgi, OWN) as ws:
            told = await ws.call("playbook/execute", {"name": "demo/it"})
            assert (told["error"]["code"], await ws.closed()) == (-32002, 4401)


@virtually
async def test_30_bad_messages_have_the_codes_of_the_contract() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize")
            assert (await ws.call("no/such"))["error"]["code"] == -32601
            ws.text(json.dumps([{"jsonrpc": "2.0", "id": 9, "method": "ping"}]))
            assert (await ws.answer(None))["error"]["code"] == -32600
            ws.told.clear()
            ws.text("{")
            assert (await ws.answer(None))["error"]["code"] == -32700
            assert (await ws.call("initialize"))["error"]["code"] == -32600
            assert ws.code is None


@virtually
async def test_30_a_message_of_2_mib_closes_with_1009() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        for is_early in (True, False):
            async with socket(rig.gateway.asgi, ann.headers) as ws:
                if not is_early:
                    await ws.call("initialize")
                ws.say("ping", {"a": "x" * (2 << 20)})
                assert await ws.closed() == 1009


@virtually
async def test_a_binary_frame_closes_with_4400() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize")
            ws.inbox.put_nowait({"type": "websocket.receive", "bytes": b"x"})
            assert await ws.closed() == 4400


@virtually
async def test_30_200_messages_per_second_close_with_4429() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize")
            for _ in range(200):
                ws.say("ping")
                await asyncio.sleep(1 / 200)
                if ws.code is not None:
                    break
            assert await ws.closed() == 4429


@virtually
async def test_more_than_64_calls_at_once_are_refused_one_by_one() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        gate = asyncio.Event()

        async def wait(*given: Any) -> object:
            del given
            await gate.wait()
            return {}

        rig.gate.calls._methods["wait"] = wait  # noqa: SLF001 - a call that takes its time
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize")
            for _ in range(65):
                ws.say("wait")
            await ws.until(lambda: any("error" in one for one in ws.told))
            gate.set()
            await ws.until(lambda: len(ws.told) == 66)
            codes = [one["error"]["code"] for one in ws.told if "error" in one]
            assert codes == [-32005]


@virtually
async def test_messages_carry_their_event_id_and_resume_by_it() -> None:
    async with gateway_rig() as rig:
        ann, hub = await rig.login(), rig.gate.hub
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            told = await ws.call("initialize", {"clientId": "client-00001"})
            assert told["result"]["clientId"] == "client-00001"
            assert await hub.send("client-00001", frames.progress("r", "1", share=0.1), "1")
            (first,) = await ws.got("playbook/progress")
        assert not await hub.send("client-00001", frames.progress("r", "1", share=0.2), "2")
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            asked = {"clientId": "client-00001", "lastEventId": first["eventId"]}
            told = await ws.call("initialize", asked)
            assert told["result"]["recovery"]["recovered"] is True
            (second,) = await ws.got("playbook/progress")
            assert second["progress"] == 0.2
            assert second["eventId"] != first["eventId"]


@virtually
async def test_a_silent_client_is_pinged_and_closed_after_300_s() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize")
            await asyncio.sleep(200)
            assert 5 <= len(ws.bodies("ping")) <= 7
            ws.text('{"jsonrpc":"2.0","method":"pong"}')
            await asyncio.sleep(200)
            assert ws.code is None
            await asyncio.sleep(110)
            assert await ws.closed() == 1001


@virtually
async def test_a_session_that_ends_closes_with_4401() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize")
            assert (await rig.caller(ann).post("/api/auth/logout")).status == 204
            await ws.got("session/closed")
            assert await ws.closed() == 4401


@virtually
async def test_one_client_in_two_sockets_closes_the_older_with_4409() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with socket(rig.gateway.asgi, ann.headers) as older:
            await older.call("initialize", {"clientId": "client-00001"})
            async with socket(rig.gateway.asgi, ann.headers) as newer:
                await newer.call("initialize", {"clientId": "client-00001"})
                assert await older.got("connection/superseded")
                assert await older.closed() == 4409
                assert await rig.gate.hub.send("client-00001", frames.progress("r", "1"), "1")
                assert await newer.got("playbook/progress")


@virtually
async def test_25_a_stalled_reader_is_dropped_and_its_messages_are_replayed() -> None:
    async with gateway_rig() as rig:
        ann, hub = await rig.login(), rig.gate.hub
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize", {"clientId": "client-00001"})
            ws.stall()
            for n in range(100):
                text = "x" * 60_000
                await hub.send("client-00001", frames.progress("r", "1", text=text), str(n))
            assert hub._streams["client-00001"].behind[1] < 1 << 22  # noqa: SLF001 - bounded
            ws.flow()
            assert await ws.closed() == 1013
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize", {"clientId": "client-00001"})
            assert len(await ws.got("playbook/progress", 100)) == 100


@virtually
async def test_25_a_reader_that_takes_nothing_for_30_s_is_cut_off() -> None:
    async with gateway_rig() as rig:
        ann, hub = await rig.login(), rig.gate.hub
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize", {"clientId": "client-00001"})
            ws.stall()
            await hub.send("client-00001", frames.progress("r", "1"), "1")
            await until(lambda: not hub.count)
            ws.flow()


@virtually
async def test_a_run_is_executed_and_its_result_comes_on_the_same_socket() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        async with socket(rig.gateway.asgi, ann.headers) as ws, rig.worker({"n": 7}):
            await ws.call("initialize", {"clientId": "client-00001"})
            made = await ws.call(
                "playbook/execute", {"name": "demo/it", "clientId": "client-00001"}
            )
            (result,) = await ws.got("playbook/result")
            assert result["requestId"] == made["result"]["requestId"]
            assert result["data"] == {"n": 7}


@virtually
async def test_a_draining_gateway_closes_with_1001_and_takes_no_new_socket() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize")
            await rig.gateway.drain(5.0)
            assert await ws.closed() == 1001
            async with socket(rig.gateway.asgi, ann.headers) as refused:
                assert refused.denied is not None
                assert refused.denied[0] == 503


async def test_a_transport_that_is_switched_off_is_not_there() -> None:
    async with gateway_rig(is_ws_on=False, is_sse_on=False) as rig:
        ann = await rig.login()
        assert (await rig.caller(ann).get("/events")).status == 404
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            assert ws.denied is not None
            assert ws.denied[0] == 404


async def test_an_upgrade_on_a_path_that_is_not_there_is_404() -> None:
    async with gateway_rig() as rig:
        for path in ("/nowhere", "/noetl/executions", "/events"):
            async with socket(rig.gateway.asgi, path=path) as ws:
                assert ws.denied is not None
                status, body = ws.denied
                assert (status, json.loads(body)["code"]) == (404, "not_found")


async def test_the_calls_of_all_sockets_of_a_session_are_counted_together() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize", {})
            with suppress(RateLimited):
                while True:
                    rig.gate.limits.take("call", ann.session_id)
            told = await ws.call("ping")
            assert told["error"]["code"] == -32005
            assert told["error"]["data"]["retryAfter"] >= 1


async def test_the_address_of_a_caller_is_known_whichever_way_his_session_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with gateway_rig() as rig:
        ann, hub, seen = await rig.login(), rig.gate.hub, []
        opened = hub.open

        async def noted(person: Any, *more: Any) -> Any:
            seen.append(person.address)
            return await opened(person, *more)

        monkeypatch.setattr(hub, "open", noted)
        async with socket(rig.gateway.asgi, OWN) as ws:
            await ws.call("initialize", {"sessionToken": ann.token})
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize", {})
        assert seen == ["127.0.0.1"] * 2
