"""Asking for requests: by their owner, by others, for a while, and for what is large."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256

import msgspec
import pytest

from noetl.api.commands import Claim
from noetl.api.events import Reports
from noetl.edge.errors import NotFound
from noetl.gateway.errors import UnknownRequest
from noetl.gateway.person import Person
from noetl.local.virtual import run_virtually
from tests.unit.gateway.requests.desk import ANN, BOB, CLIENT, desk
from tests.unit.server.rig import virtually

CLAIM = Claim(worker_id="w", pool="shared", free_slots=1)
LARGE = {"text": "ä" * 400_000}


async def whole(parts: object) -> bytes:
    return b"".join([part async for part in parts])  # type: ignore[attr-defined] # bytes as they come


@pytest.mark.parametrize(("barred", "late_s"), [((), 0.1), (("watch",), 1.0)])
def test_a_request_is_waited_for_here_and_at_another_gateway(
    barred: tuple[str, ...], late_s: float
) -> None:
    run_virtually(_waited_for(barred, late_s))


async def _waited_for(barred: tuple[str, ...], late_s: float) -> None:
    async with desk() as d:
        other = d.replica()
        other.keys.barred.update(barred)
        started = await d.start()
        token = await d.token(started.request_id)
        waiting = [
            asyncio.create_task(each.requests.document(ANN, started.request_id, 30.0))
            for each in (d, other)
        ]
        await asyncio.sleep(3)
        began = d.clock.monotonic()
        await d.call_back(started.request_id, data=1, token=token)
        for task in waiting:
            assert (await task).state == "completed"
        assert d.clock.monotonic() - began < late_s
        open_one = await d.start()
        told = await d.requests.document(ANN, open_one.request_id, 2.0)
        assert told.state == "running"
        assert (await d.requests.ended(open_one.request_id, 0.5)).state == "running"


@virtually
async def test_foreign_requests_are_not_there() -> None:
    async with desk() as d:
        started = await d.start()
        same = await d.requests.document(BOB, started.request_id)
        assert same.request_id == started.request_id, "a developer may read every run"
        nobody = Person(user_id="5", subject="x", roles=(), session_id="s")
        elsewhere = Person(user_id="7", subject="ann", roles=("developer",), tenant="other")
        for person in (nobody, elsewhere):
            with pytest.raises(UnknownRequest):
                await d.requests.document(person, started.request_id)
            with pytest.raises(UnknownRequest):
                await d.requests.of_execution(person, started.execution_id)
            with pytest.raises(UnknownRequest):
                await d.requests.cancel(person, request_id=started.request_id)
        found = await d.requests.of_execution(ANN, started.execution_id)
        assert found.request_id == started.request_id
        for name in ("", "../x", "a.b", "x" * 200, "*"):
            with pytest.raises(UnknownRequest):
                await d.requests.document(ANN, name)


@virtually
async def test_the_newest_requests_of_somebody_are_listed() -> None:
    async with desk() as d:
        made = []
        for _ in range(3):
            made.append((await d.start()).request_id)
            await asyncio.sleep(1)
        assert [each.request_id for each in await d.requests.listed(ANN, 2)] == made[:0:-1]
        assert await d.requests.listed(BOB, 10) == []


@virtually
async def test_26_a_large_callback_is_named_on_the_stream_and_read_as_a_whole() -> None:
    async with desk() as d:
        started = await d.start()
        await d.call_back(started.request_id, data=LARGE)
        (result,) = await d.results()
        data = msgspec.json.encode(LARGE)
        assert result["data"] is None
        assert result["dataRef"]["bytes"] == len(data)
        assert result["dataRef"]["sha256"] == sha256(data).hexdigest()
        assert result["dataRef"]["ref"].startswith("noetl://")
        for _ in range(2):
            body, media_type = await d.requests.result(ANN, started.request_id)
            assert (await whole(body), media_type) == (data, "application/json")
            kept = await d.requests.document(ANN, started.request_id)
            assert kept.result_ref is not None
            assert kept.result_ref.sha256 == result["dataRef"]["sha256"]
            d.wipe()
            d.requests.parts.records._known.clear()  # noqa: SLF001 - as a new gateway


@virtually
async def test_26_a_large_result_of_a_run_is_named_and_a_middling_one_is_told() -> None:
    async with desk() as d:
        for size, is_large in ((100_000, False), (500_000, True)):
            started = await d.start()
            value = {"text": "x" * size}
            data = json.dumps(value).encode()
            (command,) = (await d.system.claim(CLAIM)).claimed
            stored = await d.system.put_result(started.execution_id, "start", data)
            reports = tuple(
                d.server.event(command, name, **payload)
                for name, payload in (
                    ("command.started", {}),
                    ("call.done", {"reference": stored}),
                )
            )
            await d.system.report(Reports(worker_id="w", pool="shared", events=reports))
            await d.published()
            await d.heard()
            result = (await d.results())[-1]
            assert ("dataRef" in result) is is_large
            if is_large:
                assert result["dataRef"]["bytes"] == len(data)
            else:
                assert result["data"] == value
            body, _ = await d.requests.result(ANN, started.request_id)
            assert json.loads(await whole(body)) == value


@virtually
async def test_a_request_without_a_value_has_no_result() -> None:
    async with desk() as d:
        started = await d.start()
        with pytest.raises(NotFound):
            await d.requests.result(ANN, started.request_id)
        await d.step(error="no")
        await d.heard()
        with pytest.raises(NotFound):
            await d.requests.result(ANN, started.request_id)
        small = await d.start()
        await d.call_back(small.request_id, data={"a": 1})
        body, _ = await d.requests.result(ANN, small.request_id)
        assert await whole(body) == b'{"a":1}'


@virtually
async def test_what_a_client_has_acknowledged_is_not_sent_again() -> None:
    async with desk() as d:
        first, second, third = [await d.start() for _ in range(3)]
        for each in (first, second):
            await d.call_back(each.request_id, data=1)
        await d.requests.acknowledged(CLIENT, first.request_id)
        await d.requests.acknowledged(CLIENT, first.request_id)
        assert [each.request_id async for each in d.requests.undelivered(ANN, CLIENT)] == [
            second.request_id
        ]
        assert await d.requests.pending(ANN, CLIENT) == [
            {
                "requestId": third.request_id,
                "executionId": third.execution_id,
                "playbookPath": "demo/it",
                "deadline": (await d.requests.document(ANN, third.request_id)).deadline,
            }
        ]
