import json
from contextlib import asynccontextmanager

import msgspec
import pytest

from noetl.api.callbacks import CallbackTaken
from noetl.api.catalog import CatalogPage, CatalogQuery, Entry, Register, Registered
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
from noetl.api.events import LogBatch, LogLine, LogPage, Receipt, Report, Reported, Reports
from noetl.api.executions import (
    BatchItem,
    Control,
    Controlled,
    Events,
    Execute,
    Execution,
    ExecutionPage,
    Finalize,
    Fork,
    Rehearsed,
    Rerun,
    Started,
    StartedBatch,
    Status,
)
from noetl.api.http import AsgiTransport
from noetl.api.problems import Problem, Refused
from noetl.api.results import Stored
from noetl.api.runtime import Joined, Left, PoolHeartbeat, Pools, WorkerEntry

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
STATUS = Status(
    execution_id="1",
    status="RUNNING",
    current_step="a",
    current_steps=("a",),
    progress={"total_steps": 1},
    is_cancelled=False,
    is_terminal=False,
    error=None,
    last_seq=3,
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
    ("execution", ("1",), "GET", "/api/executions/1?include_state=true", None, EXECUTION),
    ("execution", ("../x",), "GET", "/api/executions/..%2Fx?include_state=true", None, EXECUTION),
    (
        "events",
        ("1", 7, 20),
        "GET",
        "/api/executions/1/events?after_seq=7&limit=20",
        None,
        Events(items=({"seq": 8},), last_seq=9),
    ),
    (
        "rehearse",
        (Execute(path="a"),),
        "POST",
        "/api/execute",
        {"path": "a", "dry_run": True},
        Rehearsed(valid=True, entry_step="start", workload={}),
    ),
    (
        "execute_batch",
        ([Execute(path="a"), Execute(path="b")],),
        "POST",
        "/api/execute/batch",
        {"executions": [{"path": "a"}, {"path": "b"}]},
        StartedBatch(
            count=1,
            started=1,
            duplicates=0,
            failed=0,
            results=(BatchItem(index=0, status="started", commands_generated=1),),
        ),
    ),
    (
        "pool_heartbeat",
        (PoolHeartbeat(name="w", free_slots=1, commands=(HELD,)),),
        "POST",
        "/api/worker/pool/heartbeat",
        {"name": "w", "free_slots": 1, "commands": [{"command_id": "5", "attempt": 1}]},
        Beat(lost=("5",), drain=True),
    ),
    ("pools", (), "GET", "/api/worker/pools", None, Pools(items=(), pools=())),
    (
        "catalog",
        (CatalogQuery(path_prefix="a/"),),
        "POST",
        "/api/catalog/list",
        {"path_prefix": "a/"},
        CatalogPage(entries=(), next_cursor="c"),
    ),
    ("executions", (), "GET", "/api/executions", None, ExecutionPage(items=())),
    ("status", ("1",), "GET", "/api/executions/1/status", None, STATUS),
    ("children", ("1",), "GET", "/api/executions/1/children", None, ExecutionPage(items=())),
    ("log_page", ("1",), "GET", "/api/executions/1/logs", None, LogPage(items=[])),
    ("health", (), "GET", "/api/health", None, {"status": "ok"}),
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


async def test_filters_become_the_query():
    server, client = _client(200, b'{"items":[]}')
    await client.executions(status=["RUNNING", "FAILED"], path="a/*", limit=7)
    assert server.seen[1] == "/api/executions?status=RUNNING&status=FAILED&path=a%2F%2A&limit=7"
    server, client = _client(200, b'{"items":[],"last_seq":0}')
    await client.events("1", event_type=["call.done", "command.*"], order="desc")
    assert server.seen[1] == (
        "/api/executions/1/events?after_seq=0&limit=100"
        "&event_type=call.done&event_type=command.%2A&order=desc"
    )


class Streaming:
    """A transport that has one stream to give."""

    def __init__(self, status, *chunks):
        self.status = status
        self.chunks = chunks
        self.asked = None

    async def request(self, *_args):
        raise AssertionError("a stream is not a request")

    @asynccontextmanager
    async def stream(self, path, headers):
        async def chunks():
            for chunk in self.chunks:
                yield chunk

        self.asked = (path, dict(headers))
        yield self.status, chunks()


async def test_a_stream_is_read_event_by_event_however_it_is_cut():
    text = (
        b'retry: 2000\n\nid: 7\nevent: call.done\ndata: {"seq":3}\n\n'
        b': ping\n\nevent: end\ndata: {"status":\n'
        b'data: "COMPLETED"}\n\n'
    )
    for size in (1, 7, 1000):
        transport = Streaming(200, *(text[at : at + size] for at in range(0, len(text), size)))
        stream = Client(transport).stream("1", since_event_id="6")
        assert [told async for told in stream] == [
            {"event": "call.done", "id": "7", "data": {"seq": 3}},
            {"event": "end", "id": None, "data": {"status": "COMPLETED"}},
        ]
        path, headers = transport.asked
        assert path == "/api/executions/1/events/stream?fields=lean"
        assert headers["last-event-id"] == "6"


async def test_a_stream_that_is_refused_is_a_problem():
    problem = Problem(type="t", title="t", status=404, code="unknown_execution", detail="no")
    stream = Client(Streaming(404, msgspec.json.encode(problem))).stream("1")
    with pytest.raises(Refused) as refusal:
        await anext(stream)
    assert refusal.value.code == "unknown_execution"


async def test_a_transport_without_streams_says_so():
    _, client = _client()
    with pytest.raises(TypeError, match="AsgiTransport carries no streams"):
        await anext(client.stream("1"))


async def test_a_page_of_lines_is_answered_as_its_lines():
    server, client = _client(200, b'{"items":[{"text":"hi"}],"next_cursor":null}')
    assert await client.logs("1") == [{"text": "hi"}]
    assert server.seen == ("GET", "/api/executions/1/logs", b"")


async def test_a_callback_sends_the_bytes_as_they_are():
    taken = CallbackTaken(execution_id="1", command_id="2")
    server, client = _client(200, msgspec.json.encode(taken))
    assert await client.answer("k1", b'{"approved": true}') == taken
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
        "/api/result/resolve?ref=noetl%3A%2F%2Fexecution%2F1%2Fresult%2Fa%2Fx",
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
