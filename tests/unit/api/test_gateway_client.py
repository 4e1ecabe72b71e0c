"""The Python client of the gateway, on a gateway that says what a test wants."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from noetl.api.gateway import Failure
from noetl.api.gateway_client import GatewayClient, RequestFailed
from noetl.api.http import NO_HEADERS, Answer, NoAnswer
from noetl.api.problems import Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

ACCEPTED = {"requestId": "r1", "executionId": "9007199254740993", "status": "PENDING"}
UNKNOWN = {"code": "unknown_request", "status": 404, "detail": "gone", "type": "t", "title": "t"}
EXPIRED = {"code": "invalid_session", "status": 401, "detail": "over", "type": "t", "title": "t"}


class Stage:
    """A gateway: streams that a test writes, and answers that it has ready."""

    def __init__(self) -> None:
        self.streams: list[asyncio.Queue[bytes | None]] = []
        self.opened: list[tuple[str, dict[str, str]]] = []
        self.asked: list[tuple[str, str, Any]] = []
        self.answers: dict[str, Answer] = {"/rpc": _json({"id": 1, "result": ACCEPTED})}
        self.refusal: Answer | None = None
        self.cuts = 0
        """How many answers are lost from now on."""
        self.tokens: tuple[str, ...] = ()
        """Who is let in; everybody when there is none."""
        self.bearers: list[str] = []
        self.recovered = False
        self.epoch = "e1"
        self.connected = asyncio.Event()

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> Answer:
        self.bearers.append(headers.get("authorization", ""))
        self.asked.append((method, path, json.loads(body) if body else None))
        if self.tokens and self.bearers[-1].removeprefix("Bearer ") not in self.tokens:
            return _json(EXPIRED, 401)
        if self.cuts:
            self.cuts -= 1
            raise NoAnswer("the connection was lost")
        return self.answers[path.partition("?")[0]]

    def called(self, method: str) -> list[dict[str, Any]]:
        """The parameters of every call of a method."""
        bodies = [body for _, path, body in self.asked if path == "/rpc"]
        return [body["params"] for body in bodies if body["method"] == method]

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str] = NO_HEADERS
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        self.opened.append((path, dict(headers)))
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if self.tokens and bearer not in self.tokens:
            yield 401, _parts(json.dumps(EXPIRED).encode())
            return
        if self.refusal is not None:
            yield self.refusal.status, _parts(self.refusal.body)
            return
        mine: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.streams.append(mine)
        self.greet()
        self.connected.set()
        yield 200, self._heard(mine)

    async def _heard(self, mine: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
        while (part := await mine.get()) is not None:
            yield part
            mine.task_done()
        raise NoAnswer("the connection was lost")

    def greet(self) -> None:
        init = {
            "clientId": "client-1",
            "epoch": self.epoch,
            "recovery": {"requested": True, "recovered": self.recovered, "from": None},
            "pendingRequests": [],
            "capabilities": {},
        }
        self.write({"jsonrpc": "2.0", "id": 1, "result": init})

    def write(self, frame: dict[str, Any], event_id: str = "") -> None:
        head = f"id: {event_id}\n" if event_id else ""
        self.streams[-1].put_nowait(f"{head}data: {json.dumps(frame)}\n\n".encode())

    def say(self, method: str, event_id: str = "", **params: Any) -> None:
        told = {"requestId": "r1", "executionId": "9007199254740993", **params}
        self.write({"jsonrpc": "2.0", "method": method, "params": told}, event_id)

    def cut(self) -> None:
        self.connected.clear()
        self.streams[-1].put_nowait(None)


def _json(value: Any, status: int = 200) -> Answer:
    return Answer(status, {}, json.dumps(value).encode())


async def _parts(body: bytes) -> AsyncIterator[bytes]:
    yield body


@pytest.fixture
async def stage() -> Stage:
    return Stage()


async def test_a_result_comes_with_progress_before_it(stage: Stage) -> None:
    heard: list[float | None] = []
    async with GatewayClient(stage) as gateway:
        running = await gateway.execute_playbook(
            "a/b", {"x": 1}, on_progress=lambda told: heard.append(told.progress), timeout_secs=9
        )
        stage.say("playbook/progress", "e1-1", progress=0.5)
        stage.say("playbook/result", "e1-2", status="COMPLETED", data={"answer": 42})
        assert await running.result(5) == {"answer": 42}
        assert (running.request_id, running.execution_id) == ("r1", "9007199254740993")
    assert heard == [0.5]
    (wish,) = stage.called("playbook/execute")
    assert wish == {
        "name": "a/b",
        "variables": {"x": 1},
        "clientId": "client-1",
        "timeoutSecs": 9,
        "idempotencyKey": wish["idempotencyKey"],
    }
    assert UUID(wish["idempotencyKey"]).version == 4
    assert stage.called("ack") == [{"clientId": "client-1", "eventId": "e1-2"}]


async def test_a_start_whose_answer_is_lost_is_sent_again_under_its_key(stage: Stage) -> None:
    async with GatewayClient(stage) as gateway:
        stage.cuts = 2
        running = await gateway.execute_playbook("a/b", {"x": 1})
        stage.say("playbook/result", "e1-1", status="COMPLETED", data="once")
        assert await running.result(5) == "once"
    first, *others = stage.called("playbook/execute")
    assert others == [first, first]
    assert UUID(first["idempotencyKey"]).version == 4


async def test_a_key_of_the_caller_is_kept(stage: Stage) -> None:
    async with GatewayClient(stage) as gateway:
        stage.cuts = 1
        await gateway.execute_playbook("a/b", idempotency_key="mine")
    keys = [wish["idempotencyKey"] for wish in stage.called("playbook/execute")]
    assert keys == ["mine", "mine"]


async def test_a_server_that_is_away_is_waited_for(stage: Stage) -> None:
    away = {"code": -32007, "message": "the server cannot be asked now"}
    stage.answers["/rpc"] = _json({"id": 1, "error": away})
    async with GatewayClient(stage) as gateway:
        with pytest.raises(RequestFailed, match="cannot be asked"):
            await gateway.execute_playbook("a/b", start_s=0)
        stage.answers["/rpc"] = _json({"status": 503, "code": "x", "type": "t", "title": "t"}, 503)
        with pytest.raises(Refused):
            await gateway.execute_playbook("a/b", start_s=0)
        stage.cuts = 1
        with pytest.raises(NoAnswer, match="lost"):
            await gateway.execute_playbook("a/b", start_s=0)
    assert len(stage.called("playbook/execute")) == 3


async def test_an_acknowledgement_that_is_lost_disturbs_nobody(stage: Stage) -> None:
    async with GatewayClient(stage) as gateway:
        running = await gateway.execute_playbook("a/b")
        stage.cuts = 1
        stage.say("playbook/result", "e1-1", status="COMPLETED", data="once")
        assert await running.result(5) == "once"
    assert stage.called("ack") == [{"clientId": "client-1", "eventId": "e1-1"}]


async def test_a_refused_token_is_asked_for_again_once(stage: Stage) -> None:
    stage.recovered = True
    stage.tokens = ("first",)
    given = iter(("first", "second", "third"))

    async def newest() -> str:
        return next(given)

    async with GatewayClient(stage, token=newest) as gateway:
        running = await gateway.execute_playbook("a/b")
        stage.tokens = ("second",)
        stage.cut()
        await asyncio.wait_for(stage.connected.wait(), 10)
        stage.say("playbook/result", "e1-1", status="COMPLETED", data="after")
        assert await running.result(5) == "after"
        stage.tokens = ("none of them",)
        with pytest.raises(Refused, match="over"):
            await gateway.request("r1")
    assert stage.bearers[-2:] == ["Bearer second", "Bearer third"]


async def test_a_token_may_be_given_without_waiting_for_it(stage: Stage) -> None:
    async with GatewayClient(stage, token=lambda: "plain") as gateway:
        await gateway.execute_playbook("a/b")
    assert stage.bearers == ["Bearer plain"]


async def test_a_result_may_come_before_the_answer_that_names_it(stage: Stage) -> None:
    async with GatewayClient(stage) as gateway:
        stage.say("playbook/result", "e1-1", status="COMPLETED", data="early")
        stage.say("playbook/result", "e1-2", status="COMPLETED", data="again")
        stage.say("playbook/progress", "e1-3")
        await asyncio.wait_for(stage.streams[-1].join(), 5)
        running = await gateway.execute_playbook("a/b")
        assert await running.result(5) == "early"


async def test_a_failure_is_raised_with_its_code(stage: Stage) -> None:
    async with GatewayClient(stage) as gateway:
        running = await gateway.execute_playbook("a/b")
        error = {"code": -32000, "message": "it failed", "data": {"step": "load"}}
        stage.say("playbook/result", "e1-1", status="FAILED", error=error)
        with pytest.raises(RequestFailed, match="it failed") as caught:
            await running.result(5)
    assert caught.value.failure == Failure(code=-32000, message="it failed", data={"step": "load"})
    assert caught.value.request_id == "r1"


async def test_a_refused_start_is_raised_with_its_code(stage: Stage) -> None:
    stage.answers["/rpc"] = _json({"id": 1, "error": {"code": -32003, "message": "no"}}, 403)
    async with GatewayClient(stage) as gateway:
        with pytest.raises(RequestFailed, match="no") as caught:
            await gateway.execute_playbook("a/b")
    assert caught.value.failure.code == -32003


async def test_a_large_value_is_fetched(stage: Stage) -> None:
    stage.answers["/api/requests/r1/result"] = _json({"large": "x" * 1000})
    async with GatewayClient(stage) as gateway:
        running = await gateway.execute_playbook("a/b")
        ref = {"ref": "noetl://x", "bytes": 1000, "sha256": "0"}
        stage.say("playbook/result", "e1-1", status="COMPLETED", data=None, dataRef=ref)
        assert await running.result(5) == {"large": "x" * 1000}


async def test_a_lost_stream_goes_on_where_it_stopped(stage: Stage) -> None:
    stage.recovered = True
    async with GatewayClient(stage) as gateway:
        running = await gateway.execute_playbook("a/b")
        stage.say("playbook/progress", "e1-7", progress=0.1)
        stage.cut()
        await asyncio.wait_for(stage.connected.wait(), 10)
        stage.say("playbook/result", "e1-8", status="COMPLETED", data="after")
        assert await running.result(5) == "after"
    first, second = stage.opened
    assert first == ("/events?frames=message", {"accept": "text/event-stream"})
    assert second[0] == "/events?frames=message&client_id=client-1"
    assert second[1]["last-event-id"] == "e1-7"


async def test_open_requests_are_asked_for_when_the_history_is_lost(stage: Stage) -> None:
    stage.answers["/api/requests/r1"] = _json(
        {
            "requestId": "r1",
            "executionId": "1",
            "playbookPath": "a/b",
            "state": "completed",
            "createdAt": "t",
            "deadline": "t",
            "result": "kept",
        }
    )
    async with GatewayClient(stage) as gateway:
        running = await gateway.execute_playbook("a/b")
        stage.cut()
        assert await running.result(10) == "kept"


async def test_a_request_that_nobody_knows_has_failed(stage: Stage) -> None:
    stage.answers["/api/requests/r1"] = _json(UNKNOWN, 404)
    async with GatewayClient(stage) as gateway:
        running = await gateway.execute_playbook("a/b")
        stage.cut()
        with pytest.raises(RequestFailed, match="gone") as caught:
            await running.result(10)
    assert caught.value.failure.code == -32008


async def test_an_expired_session_ends_everything(stage: Stage) -> None:
    async with GatewayClient(stage) as gateway:
        running = await gateway.execute_playbook("a/b")
        stage.refusal = _json(EXPIRED, 401)
        stage.cut()
        with pytest.raises(Refused, match="over"):
            await running.result(10)
        with pytest.raises(Refused, match="over"):
            await gateway.connect()


async def test_a_time_out_leaves_the_run_alone(stage: Stage) -> None:
    async with GatewayClient(stage) as gateway:
        running = await gateway.execute_playbook("a/b")
        with pytest.raises(TimeoutError):
            await running.result(0.01)
        stage.say("playbook/result", "e1-1", status="COMPLETED", data="late")
        assert await running.result(5) == "late"
    assert [body["method"] for _, _, body in stage.asked] == ["playbook/execute", "ack"]


async def test_a_superseded_client_takes_another_name(stage: Stage) -> None:
    async with GatewayClient(stage) as gateway:
        stage.say("playbook/progress", "e1-7", progress=0.1)
        stage.say("connection/superseded", reason="another one")
        stage.cut()
        await asyncio.wait_for(stage.connected.wait(), 10)
        await gateway.connect()
    assert stage.opened[1] == ("/events?frames=message", {"accept": "text/event-stream"})


async def test_whoever_waits_is_told_when_the_client_is_closed(stage: Stage) -> None:
    async with GatewayClient(stage) as gateway:
        running = await gateway.execute_playbook("a/b")
        await gateway.cancel("r1", "enough")
    with pytest.raises(NoAnswer, match="closed"):
        await running.result(5)
    assert stage.asked[-1][2]["params"] == {"requestId": "r1", "reason": "enough"}
