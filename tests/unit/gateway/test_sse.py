"""Server-sent events: what a client is told, in which form, and what it gets when it comes back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from noetl.gateway import frames
from tests.unit.gateway.rig import INTERNAL, gateway_rig
from tests.unit.gateway.streaming import events, until
from tests.unit.server.rig import ONE_STEP, virtually


async def test_27_the_default_frames_send_both_init_and_message_at_the_start() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with events(rig.gateway.asgi, ann.headers, client_id="client-00001") as stream:
            await stream.until(lambda: len(stream.seen) >= 3)
            retry, init, message = stream.seen[:3]
            assert 1000 <= int(retry["retry"]) <= 3000
            assert [init["event"], message["event"]] == ["init", "message"]
            assert init["data"] == message["data"]
            told = json.loads(init["data"])
            assert (told["jsonrpc"], told["id"]) == ("2.0", 1)
            assert told["result"]["clientId"] == "client-00001"
            assert told["result"]["pendingRequests"] == []
            assert told["result"]["recovery"] == {
                "requested": False,
                "recovered": False,
                "from": None,
            }
            assert stream.headers["cache-control"] == "no-store"
            assert stream.headers["x-accel-buffering"] == "no"


async def test_a_client_that_comes_back_gets_what_it_missed_once() -> None:
    async with gateway_rig() as rig:
        ann, hub = await rig.login(), rig.gate.hub
        async with events(rig.gateway.asgi, ann.headers, client_id="client-00001") as stream:
            assert await hub.send(
                "client-00001", frames.message("playbook/progress", {"n": 1}), "1"
            )
            await stream.got("playbook/progress")
            (last,) = stream.ids()
        for n in (2, 3):
            frame = frames.message("playbook/progress", {"n": n})
            assert not await hub.send("client-00001", frame, str(n))
        back = {**ann.headers, "last-event-id": last}
        async with events(rig.gateway.asgi, back, client_id="client-00001") as stream:
            assert await hub.send(
                "client-00001", frames.message("playbook/progress", {"n": 4}), "4"
            )
            assert await stream.got("playbook/progress", 3) == [{"n": 2}, {"n": 3}, {"n": 4}]
            assert stream.init["recovery"] == {"requested": True, "recovered": True, "from": last}
            assert len(set(stream.ids())) == 3


async def test_27_frames_message_feeds_a_plain_message_listener() -> None:
    async with gateway_rig() as rig:
        ann, hub = await rig.login(), rig.gate.hub
        query = {"client_id": "client-00001", "frames": "message"}
        async with events(rig.gateway.asgi, ann.headers, **query) as stream:
            assert await hub.send("client-00001", frames.progress("r", "1"), "1")
            await stream.got("playbook/progress")
            told = [one for one in stream.seen if "data" in one]
            assert not any("event" in one for one in told)
            assert ["id" in one for one in told] == [False, True]
            assert json.loads(told[0]["data"])["result"]["clientId"] == "client-00001"
        async with events(rig.gateway.asgi, ann.headers, frames="other") as refused:
            assert refused.status == 422


async def test_refusals_come_before_the_stream() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        cases: list[tuple[dict[str, str], dict[str, str], int, str]] = [
            ({}, {}, 401, "missing_token"),
            ({"authorization": "Bearer nts_x"}, {}, 401, "invalid_session"),
            ({}, {"session_token": ann.token}, 401, "query_token_disabled"),
            ({}, {"ticket": "nope"}, 401, "ticket_used"),
            (ann.headers, {"client_id": "short"}, 422, "bad_value"),
            (ann.headers, {"client_id": "with.dots.and*"}, 422, "bad_value"),
            (ann.headers, {"other": "1"}, 422, "unknown_parameter"),
        ]
        for headers, query, status, code in cases:
            async with events(rig.gateway.asgi, headers, **query) as refused:
                assert (refused.status, refused.problem["code"]) == (status, code)
                assert refused.headers["content-type"] == "application/problem+json"
        assert rig.gate.hub.count == 0


async def test_a_stream_without_a_client_id_gets_one() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with events(rig.gateway.asgi, ann.headers) as stream:
            client_id = stream.init["clientId"]
            assert len(client_id) == 36
            assert await rig.gate.hub.clients_of(session_id=ann.session_id) == [client_id]


@virtually
async def test_a_ping_comes_every_30_s_and_a_comment_every_15_s() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with events(rig.gateway.asgi, ann.headers) as stream:
            await asyncio.sleep(95)
            assert len(stream.bodies("ping")) == 3
            assert stream.body.count(b":\n\n") == 6
            pings = [one for one in stream.seen if one.get("event") == "ping"]
            assert all("id" not in one for one in pings)


@virtually
async def test_05_logout_on_one_replica_closes_the_streams_on_another_within_2_s() -> None:
    async with gateway_rig() as rig, rig.replica() as other:
        ann = await rig.login()
        async with events(other.gateway.asgi, ann.headers) as stream:
            began = rig.gate.clock.monotonic()
            assert (await rig.caller(ann).post("/api/auth/logout")).status == 204
            await stream.over()
            assert rig.gate.clock.monotonic() - began <= 2.0
            assert stream.seen[-1]["event"] == "session/closed"
            assert (await other.caller(ann).get("/api/auth/whoami")).status == 401
        async with events(other.gateway.asgi, ann.headers) as refused:
            assert refused.status == 401


@virtually
async def test_20_a_callback_to_one_replica_reaches_the_client_on_another_once() -> None:
    async with gateway_rig() as rig, rig.replica() as other:
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        async with events(other.gateway.asgi, ann.headers, client_id="client-00001") as stream:
            made = await start(rig, ann, "client-00001")
            body = {"request_id": made["requestId"], "status": "COMPLETED", "data": {"n": 1}}
            service = rig.caller(authorization=f"Bearer {INTERNAL}")
            answer = await service.post("/api/internal/callback/async", body)
            assert json.loads(answer.body) == {"status": "delivered"}
            assert await rig.step({"n": 2})
            await stream.until(
                lambda: any(
                    one["eventType"] == "playbook.completed"
                    for one in stream.bodies("playbook/state")
                )
            )
            await asyncio.sleep(20)
            (result,) = stream.bodies("playbook/result")
            assert result["data"] == {"n": 1}
            ids = stream.ids()
            assert len(ids) == len(set(ids))


@virtually
async def test_a_client_that_was_offline_finds_its_result_and_what_is_pending() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        async with events(rig.gateway.asgi, ann.headers, client_id="client-00001") as stream:
            made = await start(rig, ann, "client-00001")
            await stream.got("playbook/state")
            last = stream.ids()[-1]
        back = {**ann.headers, "last-event-id": last}
        async with events(rig.gateway.asgi, back, client_id="client-00001") as stream:
            (pending,) = stream.init["pendingRequests"]
            assert pending["requestId"] == made["requestId"]
            assert pending["playbookPath"] == "demo/it"
            last = (stream.ids() or [last])[-1]
        assert await rig.step({"n": 1})
        await asyncio.sleep(10)
        async with events(
            rig.gateway.asgi, ann.headers, client_id="client-00001", lastEventId=last
        ) as stream:
            (result,) = await stream.got("playbook/result")
            assert (result["requestId"], result["data"]) == (made["requestId"], {"n": 1})
            assert stream.init["pendingRequests"] == []


@virtually
async def test_a_lost_history_is_told_and_every_result_comes_again() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        async with events(rig.gateway.asgi, ann.headers, client_id="client-00001") as stream:
            made = await start(rig, ann, "client-00001")
            assert await rig.step({"n": 1})
            await stream.got("playbook/result")
            last = stream.ids()[-1]
        await rig.bus.clients.forget("client-00001")
        back = {**ann.headers, "last-event-id": f"other-{last.rpartition('-')[2]}"}
        async with events(rig.gateway.asgi, back, client_id="client-00001") as stream:
            assert stream.init["recovery"]["recovered"] is False
            (result,) = await stream.got("playbook/result")
            assert result["requestId"] == made["requestId"]


@virtually
async def test_after_a_lost_history_what_went_to_the_whole_session_comes_again_as_well() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        async with events(rig.gateway.asgi, ann.headers, client_id="client-00001") as stream:
            made = await start(rig, ann, None)
            assert await rig.step({"n": 1})
            await stream.got("playbook/result")
            last = stream.ids()[-1]
        await rig.bus.clients.forget("client-00001")
        back = {**ann.headers, "last-event-id": f"other-{last.rpartition('-')[2]}"}
        async with events(rig.gateway.asgi, back, client_id="client-00001") as stream:
            (result,) = await stream.got("playbook/result")
            assert result["requestId"] == made["requestId"]
        async with events(rig.gateway.asgi, ann.headers, client_id="client-00002") as stream:
            rig.gate.hub.close_session(ann.session_id, "test")
            await stream.over()
            assert stream.bodies("playbook/result") == []


@virtually
async def test_25_a_stalled_reader_is_dropped_and_its_messages_are_replayed_on_return() -> None:
    async with gateway_rig() as rig:
        ann, hub = await rig.login(), rig.gate.hub
        async with events(rig.gateway.asgi, ann.headers, client_id="client-00001") as stream:
            stream.stall()
            for n in range(100):
                frame = frames.progress("r", "1", text="x" * 60_000)
                await hub.send("client-00001", frame, str(n))
            stream.flow()
            await stream.over()
            assert stream.seen[-1]["event"] == "gateway/error"
            last = (stream.ids() or [""])[-1]
            before = len(stream.bodies("playbook/progress"))
        back = {**ann.headers, **({"last-event-id": last} if last else {})}
        async with events(rig.gateway.asgi, back, client_id="client-00001") as stream:
            assert len(await stream.got("playbook/progress", 100 - before)) == 100 - before


@virtually
async def test_25_a_reader_that_takes_nothing_for_30_s_is_cut_off() -> None:
    async with gateway_rig() as rig:
        ann, hub = await rig.login(), rig.gate.hub
        async with events(rig.gateway.asgi, ann.headers, client_id="client-00001") as stream:
            stream.stall()
            await hub.send("client-00001", frames.progress("r", "1"), "1")
            await until(lambda: not hub.count)


@virtually
async def test_a_client_that_vanishes_is_noticed_and_remembered() -> None:
    async with gateway_rig() as rig:
        ann, hub = await rig.login(), rig.gate.hub
        async with events(rig.gateway.asgi, ann.headers, client_id="client-00001"):
            assert hub.count == 1
            assert rig.gate.metrics.connections.value("sse") == 1.0
        assert hub.count == 0
        assert rig.gate.metrics.connections.value("sse") == 0.0
        known = await hub.presence.of("client-00001")
        assert known is not None
        assert (known.replica, known.user_id) == ("", ann.user_id)


@virtually
async def test_a_draining_gateway_says_when_to_come_back() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        async with events(rig.gateway.asgi, ann.headers) as stream:
            await rig.gateway.drain(5.0)
            await stream.over()
            assert [one["event"] for one in stream.seen if "event" in one][-1] == "server/draining"
            (told,) = stream.bodies("server/draining")
            assert told["reason"] == "draining"
            assert 1000 <= int(stream.seen[-1]["retry"]) <= 15_000
            assert told["retry"] == int(stream.seen[-1]["retry"])
            async with events(rig.gateway.asgi, ann.headers) as refused:
                assert refused.status == 503


async def test_a_client_connects_at_most_10_times_a_minute() -> None:
    async with gateway_rig() as rig:
        ann = await rig.login()
        statuses = []
        for _ in range(11):
            async with events(rig.gateway.asgi, ann.headers, client_id="client-00001") as stream:
                statuses.append(stream.status)
        assert statuses == [200] * 10 + [429]
        assert "retry-after" in stream.headers


async def start(rig: Any, who: Any, client_id: str | None) -> dict[str, Any]:
    """Start a run for a client."""
    params = {"name": "demo/it", "clientId": client_id}
    body = {"jsonrpc": "2.0", "id": 1, "method": "playbook/execute", "params": params}
    return json.loads((await rig.caller(who).post("/rpc", body)).body)["result"]
