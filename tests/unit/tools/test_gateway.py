"""Word for the client of a run: what is sent where, and what the answers of a gateway mean."""

from __future__ import annotations

import asyncio
import json
from threading import Event

import pytest

from noetl.api.gateway import CALLBACK_HEADER, MOST_CALLBACK_BYTES
from noetl.dsl.scope import Names, Scope
from noetl.dsl.tasks.errors import RETRYABLE_KINDS
from noetl.secrets.fetch import Answer
from noetl.telemetry.redact import Redactor
from noetl.tools.base import Callback, ToolContext, run_tool
from noetl.tools.gateway import GatewayTool
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.http.fetching import Fetcher
from tests.fakes.web import Refused, Web
from tests.servers.http_stage import FakeClock

TOKEN = "callback-canary-77"  # noqa: S105 - the canary of these tests
TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
DELIVERED = {"delivered": True, "message": "delivered"}


class Desk(Web):
    """Answers as a gateway does, or as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.says = None
        self.holds: Event | None = None
        self.came = Event()

    def answer(self, asked):
        self.came.set()
        if self.holds is not None:
            self.holds.wait(30)
        if isinstance(self.says, Refused):
            raise self.says
        if self.says is not None:
            return self.says
        return {"status": "sent"} if asked.path.endswith("/progress") else DELIVERED


@pytest.fixture
def desk():
    made = Desk()
    yield made
    made.stop()


class Stage:
    """A run that answers the request `r-1`, and its tool."""

    def __init__(self, url: str, egress: Egress) -> None:
        self.tool = GatewayTool(Fetcher(Guard(egress=egress)), FakeClock())
        self.url, self.token = url, TOKEN
        self.workload = {"request_id": "r-1"}
        self.lines: list[tuple[str, str, str]] = []
        self.has_callback = True

    async def run(self, **keys):
        """The outcome of a task."""

        async def token():
            return self.token

        ctx = ToolContext(
            execution_id="1", step="tell", command_id="c", idempotency_key="k", trace=TRACE,
            scope=Scope(Names(scopes={"workload": self.workload})), redactor=Redactor((TOKEN,)),
            callback=Callback(url=self.url, token=token) if self.has_callback else None,
            on_log=lambda *line: self.lines.append(line),
        )  # fmt: skip
        return await run_tool(self.tool, {"kind": "gateway", **keys}, ctx)

    async def error(self, **keys):
        """The error of a task, without what says nothing."""
        outcome = await self.run(**keys)
        assert (outcome.status, outcome.data) == ("error", None)
        return {name: value for name, value in outcome.error.items() if value is not None}


@pytest.fixture
async def at(desk):
    made = Stage(desk.url, Egress(always=(desk.url,)))
    yield made
    await made.tool.close()


def sent(desk):
    """What the gateway was sent: where, and with which body."""
    return [(one.path, one.json) for one in desk.asked]


async def test_progress_goes_to_the_gateway_with_the_token(at, desk):
    outcome = await at.run(operation="progress", message="half way", progress=0.5)
    assert (outcome.status, outcome.data) == ("ok", {"delivered": True, "status": "sent"})
    assert sent(desk) == [
        ("/api/internal/progress",
         {"request_id": "r-1", "step": "tell", "message": "half way", "progress": 0.5}),
    ]  # fmt: skip
    headers = desk.asked[0].headers
    assert (desk.asked[0].method, headers["content-type"]) == ("POST", "application/json")
    assert (headers[CALLBACK_HEADER], headers["traceparent"]) == (TOKEN, TRACE["traceparent"])


@pytest.mark.parametrize(
    ("keys", "body"),
    [
        ({}, {}),
        ({"data": {"n": 5}}, {"data": {"n": 5}}),
        ({"status": "success", "data": [1]}, {"status": "success", "data": [1]}),
        ({"status": "Failed", "message": "no stock", "data": {"left": 0}},
         {"status": "Failed", "error": {"message": "no stock"}, "data": {"left": 0}}),
        ({"status": "CANCELLED"}, {"status": "CANCELLED"}),
        ({"status": "TIMEOUT", "message": "too slow"},
         {"status": "TIMEOUT", "error": {"message": "too slow"}}),
        ({"request_id": None, "message": None, "progress": None}, {}),
    ],
)  # fmt: skip
async def test_a_result_goes_to_whoever_waits(at, desk, keys, body):
    outcome = await at.run(operation="result", **keys)
    assert (outcome.status, outcome.data) == ("ok", {"delivered": True, "status": "delivered"})
    assert sent(desk) == [
        ("/api/internal/callback", {"request_id": "r-1", "step": "tell", **body}),
    ]
    assert at.lines == []


async def test_the_address_of_the_gateway_may_have_a_path(at, desk):
    at.url = f"{desk.url}/base/"
    await at.run(request_id="r-2")
    assert sent(desk) == [
        ("/base/api/internal/callback", {"request_id": "r-2", "step": "tell"}),
    ]


@pytest.mark.parametrize("workload", [{}, {"request_id": None}, {"request_id": ""}])
@pytest.mark.parametrize("keys", [{"operation": "progress", "progress": 1}, {"data": 1}])
async def test_without_a_request_nobody_is_told_and_nothing_fails(at, desk, workload, keys):
    at.workload, at.has_callback = workload, False
    outcome = await at.run(**keys)
    assert (outcome.status, outcome.data, desk.asked) == ("ok", {"delivered": False}, [])


@pytest.mark.parametrize(
    ("keys", "says", "data"),
    [
        ({}, {"delivered": True, "message": "queued"}, {"delivered": True, "status": "queued"}),
        ({}, {"delivered": True, "message": "duplicate"},
         {"delivered": True, "status": "duplicate"}),
        ({}, {"delivered": False, "message": "nobody waits under this id"},
         {"delivered": False, "status": "unknown_request"}),
        ({"operation": "progress"}, {"status": "ignored"},
         {"delivered": False, "status": "ignored"}),
        ({"operation": "progress"},
         Refused(404, {"type": "t", "title": "t", "status": 404, "code": "unknown_request",
                       "detail": "there is no such request"}),
         {"delivered": False, "status": "unknown_request"}),
    ],
)  # fmt: skip
async def test_what_became_of_it_is_told(at, desk, keys, says, data):
    desk.says = says
    outcome = await at.run(**keys)
    assert (outcome.status, outcome.data) == ("ok", data)


def problem(status, code, detail):
    return Refused(
        status, {"type": "t", "title": "t", "status": status, "code": code, "detail": detail}
    )


@pytest.mark.parametrize(
    ("says", "kind", "code", "message"),
    [
        (problem(403, "callback_token_wrong", "the token is not that of this request"),
         "auth", "callback_token_wrong",
         ("the gateway answered 403: the token is not that of this request. Send the"
          " `callback_token` of the workload with the `request_id` of the same workload.")),
        (problem(429, "rate_limited", "too often"), "rate_limit", "rate_limited",
         "the gateway answered 429: too often. Slow down; `Retry-After` says how long to wait."),
        (problem(503, "upstream_unavailable", "the callback cannot be kept now"),
         "server_error", "upstream_unavailable",
         ("the gateway answered 503: the callback cannot be kept now. Try again after"
          " `Retry-After`; with an `execution_id`, ask for that run first.")),
        (problem(418, "Is No Code!", "I am a teapot"), "client_error", "http_418",
         "the gateway answered 418: I am a teapot"),
        (Refused(404, {"path": "/x"}), "not_found", "http_404", "the gateway answered 404"),
        (Refused(307, {}), "client_error", "http_307", "the gateway answered 307"),
    ],
)  # fmt: skip
async def test_a_refusal_says_what_to_do(says, kind, code, message):
    desk = Desk()
    desk.says = says
    at = Stage(desk.url, Egress(mode="open"))
    try:
        assert await at.error(data=1) == {
            "kind": kind, "code": code, "message": message, "status_code": says.status,
            "retryable": kind in RETRYABLE_KINDS,
        }  # fmt: skip
    finally:
        await at.tool.close()
        desk.stop()


class Busy:
    """A gateway that asks for patience."""

    async def sent(self, _ask):
        return Answer(status=503, headers={"retry-after": "2"}, body=b"")


async def test_the_next_try_waits_as_long_as_the_gateway_asks(desk):
    at = Stage(desk.url, Egress())
    at.tool = GatewayTool(Busy(), FakeClock())
    assert await at.error() == {
        "kind": "server_error", "code": "http_503", "message": "the gateway answered 503",
        "status_code": 503, "retry_after_s": 2.0, "retryable": True,
    }  # fmt: skip


@pytest.mark.parametrize("operation", ["result", "progress"])
@pytest.mark.parametrize("says", ["<html>", {"hello": "world"}])
async def test_what_is_no_gateway_is_told(at, desk, operation, says):
    desk.says = says
    assert await at.error(operation=operation) == {
        "kind": "parse", "code": "bad_answer", "retryable": False,
        "message": "no gateway answered: mend NOETL_GATEWAY_URL of the gateway",
    }  # fmt: skip


async def test_a_run_without_the_token_of_a_request_says_how_a_child_gets_it(at, desk):
    wanted = {
        "kind": "auth", "code": "callback_token_missing", "retryable": False,
        "message": "nothing proves that this run may send word to the client of the request:"
                   " leave `request_id` out, or let the parent hand on `request_id`,"
                   " `gateway_url` and `callback_token` of its workload",
    }  # fmt: skip
    at.token = None
    assert await at.error() == wanted
    at.has_callback = False
    assert await at.error() == wanted
    assert desk.asked == []


async def test_a_status_or_a_request_that_is_none_is_refused_before_anything_is_sent(at, desk):
    error = await at.error(status="half way")
    assert (error["kind"], error["code"], error["message"]) == (
        "config", "invalid_config", "/status: is none of COMPLETED, FAILED, CANCELLED and TIMEOUT",
    )  # fmt: skip
    for progress, said in (
        (1.5, "1.5 is outside 0..1"),
        ("much", "`progress` must be a number, not text"),
    ):
        error = await at.error(operation="progress", progress=progress)
        assert (error["kind"], error["message"]) == ("config", f"/progress: {said}")
    at.workload = {"request_id": 7}
    error = await at.error()
    assert error["message"] == "/request_id: `workload.request_id` is no text"
    assert desk.asked == []


async def test_a_result_may_be_as_large_as_the_gateway_takes(at, desk):
    rest = len(json.dumps({"request_id": "r-1", "step": "tell", "data": ""}, separators=(",", ":")))
    room = MOST_CALLBACK_BYTES - rest
    assert (await at.run(data="x" * room)).status == "ok"
    assert [len(one.body) for one in desk.asked] == [MOST_CALLBACK_BYTES]
    assert await at.error(data="x" * (room + 1)) == {
        "kind": "limit", "code": "output_limit", "retryable": False,
        "message": f"the client is sent 8 MiB at most, and this is {MOST_CALLBACK_BYTES + 1}"
                   " bytes: send a reference, or end the run with the value",
    }  # fmt: skip
    assert len(desk.asked) == 1


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"operation": "progress", "status": "RUNNING", "data": 1},
         "left out, since this progress has no place for it: `status`, `data`"),
        ({"progress": 1, "message": "done", "data": 1},
         "left out, since this result has no place for it: `progress`, `message`"),
    ],
)  # fmt: skip
async def test_what_has_no_place_is_left_out_and_told(at, desk, keys, line):
    assert (await at.run(**keys)).status == "ok"
    assert at.lines == [("log", "warning", line)]
    assert desk.asked[0].json.keys() <= {"request_id", "step", "data"}


async def test_an_address_that_is_not_the_operators_is_guarded(desk):
    other = Stage(desk.url, Egress(always=("http://127.0.0.1:1",)))
    error = await other.error()
    await other.tool.close()
    assert (error["kind"], error["code"]) == ("egress", "egress_denied")
    assert desk.asked == []


async def test_a_gateway_that_is_away_is_worth_another_try(at, desk):
    desk.stop()
    error = await at.error()
    assert (error["kind"], error["code"], error["retryable"]) == (
        "connection", "CONN_REFUSED", True,
    )  # fmt: skip


async def test_the_token_is_in_no_outcome_and_no_line(at, desk):
    desk.says = problem(403, "callback_token_wrong", f"not {TOKEN}")
    outcome = await at.run(status="FAILED", progress=1, message=TOKEN)
    assert TOKEN not in f"{outcome} {at.lines}"
    assert "not ***" in outcome.error["message"]


async def test_a_task_that_is_cancelled_waits_for_nobody(at, desk):
    desk.holds = Event()
    task = asyncio.create_task(at.run(data=1))
    try:
        assert await asyncio.to_thread(desk.came.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        desk.holds.set()
