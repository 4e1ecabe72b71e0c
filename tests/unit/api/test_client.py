import json

import msgspec
import pytest

from noetl.api.catalog import Entry, Register, Registered
from noetl.api.client import Client
from noetl.api.commands import (
    Beat,
    Claim,
    Claimed,
    Command,
    CommandContext,
    Heartbeat,
    Held,
    Release,
    Skipped,
)
from noetl.api.events import LogBatch, LogLine, Receipt, Report, Reported, Reports
from noetl.api.executions import (
    Control,
    Controlled,
    Events,
    Execute,
    Execution,
    Finalize,
    Fork,
    Rerun,
    Started,
)
from noetl.api.http import AsgiTransport
from noetl.api.problems import Problem, Refused
from noetl.api.results import Stored
from noetl.api.runtime import Joined, Left, WorkerEntry

STARTED = Started(
    execution_id="1", status="started", commands_generated=1, catalog_id="2", path="a", version=1
)
COMMAND = Command(
    execution_id="1",
    event_id="5",
    command_id="5",
    command_key="a#1",
    node_id="a",
    node_name="a",
    action="python",
    attempt=1,
    max_attempts=3,
    lease_seconds=15.0,
    lease_until="2026-01-01T00:00:15.000000Z",
    pool="shared",
    priority=5,
    idempotency_key="1/a/-/1",
    catalog_id="2",
    path="a",
    version=1,
    context=CommandContext(tool={"kind": "python"}, bindings={}, refs={}),
)
ENTRY = Entry(
    catalog_id="2",
    path="a",
    kind="playbook",
    version=1,
    content="x",
    digest="d",
    created_at="2026-01-01T00:00:00.000000Z",
)
EXECUTION = Execution(
    execution_id="1",
    status="RUNNING",
    catalog_id="2",
    path="a",
    version=1,
    pool="shared",
    started_at="2026-01-01T00:00:00.000000Z",
    updated_at="2026-01-01T00:00:00.000000Z",
)
CONTROLLED = Controlled(execution_id="1", status="CANCELLED")
REGISTERED = Registered(
    path="a", version=1, catalog_id="2", kind="playbook", digest="d", changed=True
)
HELD = Held(command_id="5", attempt=1)
REPORT = Report(
    execution_id="1", event_id="9", event_type="call.done", step="a", command_id="5", attempt=1
)
LINE = LogLine(execution_id="1", command_id="5", attempt=1, n=0, ts="t", text="hi")
CONTROL = Control(reason="why not")


class Server:
    """Keeps the last request and gives the answer that a test wants."""

    def __init__(self, status=200, body=b""):
        self.status = status
        self.body = body
        self.seen = None

    async def __call__(self, scope, receive, send):
        body = (await receive())["body"]
        path = scope["raw_path"].decode()
        if scope["query_string"]:
            path += "?" + scope["query_string"].decode()
        self.seen = (scope["method"], path, body)
        self.media_type = dict(scope["headers"])[b"content-type"].decode()
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": self.body})


def _client(status=200, body=b""):
    server = Server(status, body)
    return server, Client(AsgiTransport(server))


CALLS = [
    ("execute", (Execute(path="a"),), "POST", "/api/execute", {"path": "a"}, STARTED),
    (
        "report",
        (Reports(worker_id="w", pool="p", events=(REPORT,), free_slots=1),),
        "POST",
        "/api/events/batch",
        {
            "worker_id": "w",
            "pool": "p",
            "free_slots": 1,
            "events": [
                {
                    "execution_id": "1",
                    "event_id": "9",
                    "event_type": "call.done",
                    "step": "a",
                    "command_id": "5",
                    "attempt": 1,
                }
            ],
        },
        Reported(
            event_ids=("9",),
            results=(Receipt(event_id="9", outcome="stored", seq=4),),
            claimed=(COMMAND,),
        ),
    ),
    (
        "claim",
        (Claim(worker_id="w", pool="p", free_slots=2, wait_seconds=20.0),),
        "POST",
        "/api/commands/claim",
        {"worker_id": "w", "pool": "p", "free_slots": 2, "wait_seconds": 20.0},
        Claimed(claimed=(COMMAND,), skipped=(Skipped(event_id="6", code="active_claim"),)),
    ),
    (
        "claim_one",
        ("5", "w"),
        "POST",
        "/api/commands/5/claim",
        {"worker_id": "w"},
        COMMAND,
    ),
    (
        "heartbeat",
        (Heartbeat(worker_id="w", commands=(HELD,)),),
        "POST",
        "/api/commands/heartbeat",
        {"worker_id": "w", "commands": [{"command_id": "5", "attempt": 1}]},
        Beat(extended=("5",)),
    ),
    (
        "register_worker",
        (WorkerEntry(name="w", labels={"pool_name": "p"}, capacity=2),),
        "POST",
        "/api/worker/pool/register",
        {"name": "w", "labels": {"pool_name": "p"}, "capacity": 2},
        Joined(name="w", lease_seconds=15.0),
    ),
    (
        "register",
        (Register(content="x"),),
        "POST",
        "/api/catalog/register",
        {"content": "x"},
        REGISTERED,
    ),
    ("entry", ("2",), "GET", "/api/catalog/resource?catalog_id=2", None, ENTRY),
    ("resolve", ("a/b",), "GET", "/api/catalog/resource?path=a%2Fb", None, ENTRY),
    ("resolve", ("a", 3), "GET", "/api/catalog/resource?path=a&version=3", None, ENTRY),
    ("execution", ("1",), "GET", "/api/executions/1", None, EXECUTION),
    ("execution", ("../x",), "GET", "/api/executions/..%2Fx", None, EXECUTION),
    (
        "events",
        ("1", 7, 20),
        "GET",
        "/api/executions/1/events?after=7&limit=20",
        None,
        Events(items=({"seq": 8},), last_seq=9),
    ),
    ("why", ("1",), "GET", "/api/executions/1/why", None, {"status": "RUNNING"}),
    (
        "step_result",
        ("1", "a b"),
        "GET",
        "/api/executions/1/steps/a%20b/result",
        None,
        {"rows": [1, None]},
    ),
    (
        "cancel",
        ("1", CONTROL),
        "POST",
        "/api/executions/1/cancel",
        {"reason": "why not"},
        CONTROLLED,
    ),
    (
        "pause",
        ("1", CONTROL),
        "POST",
        "/api/executions/1/pause",
        {"reason": "why not"},
        CONTROLLED,
    ),
    (
        "resume",
        ("1", CONTROL),
        "POST",
        "/api/executions/1/resume",
        {"reason": "why not"},
        CONTROLLED,
    ),
    (
        "finalize",
        ("1", Finalize(status="FAILED")),
        "POST",
        "/api/executions/1/finalize",
        {"status": "FAILED"},
        CONTROLLED,
    ),
    ("rerun", ("1", Rerun()), "POST", "/api/executions/1/rerun", {}, STARTED),
    (
        "fork",
        ("1", Fork(from_step="a")),
        "POST",
        "/api/executions/1/fork",
        {"from_step": "a"},
        STARTED,
    ),
]


@pytest.mark.parametrize(
    ("name", "args", "method", "path", "sent", "answer"), CALLS, ids=[c[0] for c in CALLS]
)
async def test_a_method_is_one_route_typed_in_and_out(*, name, args, method, path, sent, answer):  # noqa: PLR0913 - one column each
    server, client = _client(200, msgspec.json.encode(answer))
    assert await getattr(client, name)(*args) == answer
    assert server.seen[:2] == (method, path)
    assert (json.loads(server.seen[2]) if server.seen[2] else None) == sent


@pytest.mark.parametrize(
    ("name", "body", "path"),
    [
        ("release", Release(worker_id="w", commands=(HELD,)), "/api/commands/release"),
        ("log", LogBatch(entries=(LINE,)), "/api/logs/batch"),
        ("leave", Left(name="w"), "/api/worker/pool/deregister"),
    ],
)
async def test_a_call_without_a_result_ignores_the_body_of_its_answer(name, body, path):
    server, client = _client(200, b"")
    assert await getattr(client, name)(body) is None
    assert server.seen == ("POST", path, msgspec.json.encode(body))


async def test_a_page_of_lines_is_answered_as_its_lines():
    server, client = _client(200, b'{"items":[{"text":"hi"}],"next_cursor":null}')
    assert await client.logs("1") == [{"text": "hi"}]
    assert server.seen == ("GET", "/api/executions/1/logs", b"")


async def test_a_callback_sends_the_bytes_as_they_are():
    server, client = _client(200, b'{"status":"accepted"}')
    assert await client.answer("k1", b'{"approved": true}') == {"status": "accepted"}
    assert server.seen == ("POST", "/api/callbacks/k1", b'{"approved": true}')


async def test_a_result_is_put_as_bytes_and_its_reference_comes_back():
    stored = Stored(reference={"ref": "noetl://execution/1/result/a/x"})
    server, client = _client(201, msgspec.json.encode(stored))
    reference = await client.put_result("1", "a b", b"a,b\n", "text/csv")
    assert reference == {"ref": "noetl://execution/1/result/a/x"}
    assert server.seen == ("PUT", "/api/result/1?step=a+b", b"a,b\n")
    assert server.media_type == "text/csv"


async def test_a_result_is_got_as_bytes():
    server, client = _client(200, b"\x00\xff")
    assert await client.get_result("noetl://execution/1/result/a/x") == b"\x00\xff"
    assert server.seen == (
        "GET",
        "/api/result?ref=noetl%3A%2F%2Fexecution%2F1%2Fresult%2Fa%2Fx",
        b"",
    )


async def test_a_problem_is_raised_with_all_it_says():
    problem = Problem(
        type="https://noetl.dev/e/active_claim",
        title="Command is claimed",
        status=409,
        code="active_claim",
        detail="worker w-7 holds it",
        hint="retry after the lease",
        retry_after=7.0,
    )
    _, client = _client(409, msgspec.json.encode(problem))
    with pytest.raises(Refused) as caught:
        await client.claim_one("5", "w")
    assert caught.value.problem == problem
    assert (caught.value.code, str(caught.value), caught.value.hint) == (
        "active_claim",
        "worker w-7 holds it",
        "retry after the lease",
    )


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (502, b"<html>Bad gateway</html>"),
        (500, b""),
        (404, b'{"detail":"Not Found"}'),
        (500, b"\xff\xfe"),
        (302, b""),
        (200, b"<html>hello</html>"),
        (200, b'{"execution_id":1}'),
        (200, b"\xff"),
    ],
)
async def test_an_answer_that_is_not_ours_is_a_bad_answer(status, body):
    _, client = _client(status, body)
    with pytest.raises(Refused) as caught:
        await client.execute(Execute(path="a"))
    assert (caught.value.code, caught.value.problem.status) == ("bad_answer", status)


async def test_a_bad_answer_shows_no_more_than_its_beginning():
    _, client = _client(502, b"x" * 10_000)
    with pytest.raises(Refused) as caught:
        await client.why("1")
    assert caught.value.problem.detail == "status 502: " + "x" * 200
