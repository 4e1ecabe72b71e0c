"""Callbacks: who may call, what is taken, and that nothing is acknowledged that is not kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noetl.api.gateway import Callback, Progress
from noetl.gateway.errors import (
    BadStatus,
    CallbackTokenMissing,
    CallbackTokenWrong,
    ExecutionMismatch,
    UnknownRequest,
    UpstreamUnavailable,
)
from noetl.gateway.requests.outcomes import of_callback
from tests.unit.gateway.requests.desk import ANN, BOB, CLIENT, Desk, desk
from tests.unit.server.rig import virtually

KNOWN = "3f0c5f1e-0000-4000-8000-000000000000"


@virtually
async def test_15_a_callback_with_only_id_status_and_data_is_the_result() -> None:
    async with desk() as d:
        started = await d.start()
        told = await d.call_back(started.request_id, status="COMPLETED", data={"textOutput": "hi"})
        assert told == "delivered"
        (result,) = await d.results()
        assert result["data"] == {"textOutput": "hi"}
        assert await d.step({"other": 1})
        await d.heard()
        assert len(await d.results()) == 1, "a finished request gets only states"
        last = (await d.messages())[-1]
        assert (last["method"], last["params"]["status"]) == ("playbook/state", "COMPLETED")
        kept = await d.requests.document(ANN, started.request_id)
        assert kept.result == {"textOutput": "hi"}


@virtually
async def test_16_a_callback_before_the_answer_of_execute_finds_its_request() -> None:
    async with desk() as d:
        seen: list[str] = []
        execute = d.way._way.request  # noqa: SLF001 - between the server and its answer

        async def hasty(method: str, path: str, body: bytes, headers: Any) -> Any:
            answer = await execute(method, path, body, headers)
            if path == "/api/execute" and b'"dry_run"' not in body:
                d.way._way.request = execute  # noqa: SLF001 - once
                (name,) = [key for op, key in d.keys.used if op == "create" and key[:2] == "r."]
                seen.append(await d.call_back(name[2:], data=5))
            return answer

        d.way._way.request = hasty  # noqa: SLF001 - as above
        started = await d.start()
        assert seen == ["delivered"]
        kept = await d.requests.document(ANN, started.request_id)
        assert (kept.state, kept.result) == ("completed", 5)


@virtually
async def test_17_callbacks_are_refused_by_their_codes() -> None:
    async with desk() as d:
        started = await d.start()
        token, take = await d.token(started.request_id), d.requests.callback
        body = Callback(request_id=started.request_id, data=1)
        with pytest.raises(CallbackTokenMissing):
            await take(body)
        with pytest.raises(CallbackTokenWrong):
            await take(body, "wrong")
        with pytest.raises(ExecutionMismatch):
            await take(Callback(request_id=started.request_id, execution_id="12345"), token)
        with pytest.raises(UnknownRequest):
            await take(Callback(request_id=KNOWN), token)
        with pytest.raises(BadStatus):
            await take(Callback(request_id=started.request_id, status="weird"), token)
        assert await d.results() == []
        other = await d.start()
        with pytest.raises(CallbackTokenWrong):
            await take(body, await d.token(other.request_id))
        same = Callback(request_id=started.request_id, execution_id=int(started.execution_id))
        assert await take(same, token) == "delivered"
        assert await take(body, token) == "duplicate"
        assert len(await d.results()) == 1


@virtually
async def test_a_token_in_the_body_or_the_service_bearer_opens_too() -> None:
    async with desk() as d:
        first, second = await d.start(), await d.start()
        token = await d.token(first.request_id)
        body = Callback(request_id=first.request_id, callback_token=token)
        assert await d.requests.callback(body) == "delivered"
        body = Callback(request_id=second.request_id)
        assert await d.requests.callback(body, is_service=True) == "delivered"


@virtually
async def test_without_the_need_of_a_token_a_wrong_one_is_still_refused() -> None:
    async with desk(needs_token=False) as d:
        started = await d.start()
        with pytest.raises(CallbackTokenWrong):
            await d.requests.callback(Callback(request_id=started.request_id), "wrong")
        assert await d.requests.callback(Callback(request_id=started.request_id)) == "delivered"


@virtually
async def test_18_an_offline_client_is_told_on_return_and_the_result_stays() -> None:
    async with desk() as d:
        started = await d.start()
        stream = d.hub._streams[CLIENT]  # noqa: SLF001 - its connection
        await d.hub.close(stream)
        assert await d.call_back(started.request_id, data=9) == "queued"
        again = await d.client()
        assert len(await d.results()) == 1
        await d.hub.close(again)
        await asyncio.sleep(2 * 3600)
        assert d.bus.requests._found(f"r.{started.request_id}") is None  # noqa: SLF001 - forgotten
        kept = await d.requests.document(ANN, started.request_id)
        assert (kept.state, kept.result) == ("completed", 9)


@virtually
async def test_18_after_the_time_to_live_the_document_is_that_of_the_execution() -> None:
    async with desk() as d:
        started = await d.start()
        await d.step({"n": 4})
        await d.heard()
        await asyncio.sleep(2 * 3600)
        kept = await d.requests.document(ANN, started.request_id)
        assert (kept.state, kept.result, kept.playbook_path) == ("completed", {"n": 4}, "demo/it")
        with pytest.raises(UnknownRequest):
            await d.requests.document(ANN, KNOWN)


async def _down(d: Desk, part: str, *, is_done: bool = False) -> None:
    if part == "server" and is_done:
        (request_id,) = [key[2:] for name, key in d.keys.used if name == "create"]
        d.way.lost.add(f"/api/internal/requests/{request_id}/result")
    elif part == "server":
        d.way.is_barred = True
    else:
        (d.keys.deaf if is_done else d.keys.barred).add(part)


@pytest.mark.parametrize("what", ["undone", "done"])
@pytest.mark.parametrize("part", ["server", "get", "update", "delete"])
def test_what_fails_on_the_way_is_not_acknowledged_and_told_once_in_the_end(
    part: str, what: str
) -> None:
    @virtually
    async def run() -> None:
        async with desk() as d:
            started = await d.start()
            token = await d.token(started.request_id)
            await _down(d, part, is_done=what == "done")
            with pytest.raises(UpstreamUnavailable) as caught:
                await d.call_back(started.request_id, data=1, token=token)
            assert caught.value.retry_after
            d.way.is_barred = False
            d.way.lost.clear()
            d.keys.barred.clear()
            d.keys.deaf.clear()
            told = await d.call_back(started.request_id, data=1, token=token)
            assert told in {"delivered", "duplicate"}
            for _ in range(3):
                await asyncio.sleep(6)
                await d.requests.sweeping.sweep()
            assert [each["data"] for each in await d.results()] == [1]
            assert await d.requests.parts.records.opened() == []

    run()


@virtually
async def test_a_lost_answer_of_the_server_is_not_a_second_result() -> None:
    async with desk() as d:
        started = await d.start()
        token = await d.token(started.request_id)
        path = f"/api/internal/requests/{started.request_id}/result"
        d.way.lost.add(path)
        with pytest.raises(UpstreamUnavailable):
            await d.call_back(started.request_id, data=1, token=token)
        d.way.lost.clear()
        told = await d.call_back(started.request_id, data=2, token=token)
        assert told == "delivered"
        assert [each["data"] for each in await d.results()] == [1], "what was kept first counts"


@virtually
async def test_a_callback_of_an_unknown_id_is_asked_from_the_server_first() -> None:
    async with desk() as d:
        started = await d.start()
        token = await d.token(started.request_id)
        d.wipe()
        assert await d.call_back(started.request_id, data=3, token=token) in {"delivered", "queued"}
        assert [each["data"] for each in await d.results()] == [3]
        d.wipe()
        d.way.is_barred = True
        with pytest.raises(UpstreamUnavailable):
            await d.requests.callback(Callback(request_id=KNOWN), "x")


@pytest.mark.parametrize(
    ("status", "state", "code"),
    [
        ("completed", "completed", None), ("Success", "completed", None),
        ("SUCCEEDED", "completed", None), ("ok", "completed", None), ("done", "completed", None),
        ("failed", "failed", -32000), ("ERROR", "failed", -32000), ("failure", "failed", -32000),
        ("cancelled", "cancelled", -32004), ("canceled", "cancelled", -32004),
        ("timeout", "failed", -32001),
    ],
)  # fmt: skip
def test_words_of_a_status(status: str, state: str, code: int | None) -> None:
    made = of_callback(status, None, None, "1")
    assert (made.state, made.error.code if made.error else None) == (state, code)


def test_an_error_object_means_failed() -> None:
    error = {"code": -32050, "message": "no", "data": {"step": "a"}}
    made = of_callback("COMPLETED", None, error, "1")
    assert made.state == "failed"
    assert made.error is not None
    assert (made.error.code, made.error.message) == (-32050, "no")
    assert made.error.data == {"executionId": "1", "step": "a"}


@virtually
async def test_progress_is_told_ten_times_a_second_and_the_newest_last() -> None:
    async with desk() as d:
        started = await d.start()
        token = await d.token(started.request_id)
        for part in range(101):
            body = Progress(request_id=started.request_id, message=f"{part}", progress=part / 100)
            assert await d.requests.progress(body, token) == "sent"
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        told = [each["params"] for each in await d.messages()]
        progress = [each["progress"] for each in told if "progress" in each]
        assert len(progress) <= 12
        assert progress == sorted(progress)
        assert progress[-1] == 1.0
        await d.call_back(started.request_id, data=1, token=token)
        body = Progress(request_id=started.request_id, message="late")
        assert await d.requests.progress(body, token) == "ignored"


@virtually
async def test_progress_that_waits_is_not_told_after_the_result() -> None:
    async with desk() as d:
        started = await d.start()
        token = await d.token(started.request_id)
        for part in (0.1, 0.2):
            body = Progress(request_id=started.request_id, progress=part)
            await d.requests.progress(body, token)
        await d.call_back(started.request_id, data=1, token=token)
        await asyncio.sleep(1)
        assert (await d.messages())[-1]["method"] == "playbook/result"


@virtually
async def test_deliveries_reach_whom_they_name() -> None:
    async with desk() as d:
        streams = [
            await d.client(ANN, "second-of-ann"),
            await d.client(BOB, "client-of-bob"),
        ]
        expected = {
            "client": {CLIENT},
            "session": {CLIENT, "second-of-ann"},
            "user": {CLIENT, "second-of-ann"},
            "none": set(),
        }
        for delivery, wanted in expected.items():
            started = await d.start(delivery=delivery)
            await d.call_back(started.request_id, data=delivery)
            got = {
                name
                for name in (CLIENT, "second-of-ann", "client-of-bob")
                if started.request_id in {each["requestId"] for each in await d.results(name)}
            }
            assert got == wanted, delivery
        for stream in streams:
            await d.hub.close(stream)
