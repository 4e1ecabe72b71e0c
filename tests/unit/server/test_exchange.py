"""What every route does alike."""

from __future__ import annotations

import asyncio
import gzip
import logging

import msgspec
import pytest
import zstandard
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from noetl.api.http import AsgiTransport
from noetl.edge.declared import Declared, Parameter
from noetl.edge.door import Door, UndeclaredRoute
from noetl.edge.moments import moment_of
from noetl.edge.problems import TITLES, answer_of
from noetl.edge.reading import boolean, json, moment, number, request_id_of
from noetl.errors import NoetlError
from noetl.server.app import Server
from noetl.server.plane import wire
from noetl.server.routes.exchange import route
from noetl.server.vitals import Vitals
from noetl.store.errors import DatabaseGone, StorageFull
from tests.unit.server.rig import rig, virtually

ABOUT = Declared(about="Is a test.")
INNER = {"authorization": "Bearer inner"}
SHUT = {"is_open": False, "internal_tokens": ("inner",)}
CODES = """
bad_json bad_ref bad_query worker_key_missing auth_required token_expired session_expired forbidden
reserved_namespace reserved_pool pool_forbidden field_not_allowed forbidden_event residency_denied
internal_token_mismatch not_found unknown_path unknown_execution unknown_command unknown_worker
unknown_subscription unknown_listener bad_method active_claim already_terminal execution_cancelled
execution_paused stale_attempt version_conflict in_use digest_mismatch revision_conflict
dedup_conflict not_running not_paused not_retryable concurrency_limit test_gate listener_taken
expired body_too_large bad_media_type headers_too_large validation_failed invalid_id unknown_field
bad_value invalid_playbook invalid_input bad_transition bad_status bad_time bad_cursor
unknown_parameter unknown_event_type no_entry_step requirement_missing not_executable
batch_size_invalid bad_position pool_invalid path_invalid plugin_invalid reserved_tool_kind
not_overridable not_compilable rate_limited quota_exceeded internal upstream_unreachable
broker_unreachable pool_saturated db_unavailable draining internal_token_unset kek_unavailable
storage_full timeout
"""


async def call(asgi, method: str, path: str, body: bytes = b"", **headers: str):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await AsgiTransport(asgi).request(method, path, body, named)
    return answer, msgspec.json.decode(answer.body) if answer.body else None


def asked(query: str) -> Request:
    return Request({"type": "http", "query_string": query.encode(), "headers": []})


def refused(work, *args) -> str:
    with pytest.raises(NoetlError) as refusal:
        work(*args)
    assert refusal.value.status == 422
    return refusal.value.code


def test_every_code_has_a_title() -> None:
    assert sorted(set(CODES.split()) - set(TITLES)) == []


@virtually
async def test_a_request_keeps_its_name_or_gets_one() -> None:
    async with rig() as r:
        given, problem = await call(r.server.asgi, "GET", "/api/executions/9", x_request_id="a.b-1")
        assert given.headers["x-request-id"] == problem["request_id"] == "a.b-1"
        for wrong in ("", "a b", "x" * 65, "a\tb", "ä"):
            made, _ = await call(r.server.asgi, "GET", "/health", x_request_id=wrong)
            assert made.headers["x-request-id"].startswith("r-")
        lost, problem = await call(r.server.asgi, "GET", "/nowhere", x_request_id="mine")
        assert lost.headers["x-request-id"] == problem["request_id"] == "mine"


@virtually
async def test_a_query_has_the_names_that_its_route_declares_and_no_others() -> None:
    async def answer(_plane: object, _request: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    query = (Parameter("a", "One."), Parameter("b", "Many.", is_repeated=True))
    async with rig() as r:
        door = Door(
            [route(r.plane, "GET", "/it", answer, "public", Declared(about="Is.", query=query))]
        )
        found = []
        for text in ("", "a=1&b=2&b=3", "c=1", "a=1&a=2"):
            told = await AsgiTransport(door).request("GET", f"/it?{text}")
            found.append(msgspec.json.decode(told.body)["code"] if told.status != 200 else "ok")
        assert found == ["ok", "ok", "unknown_parameter", "bad_value"]


@virtually
async def test_a_route_without_a_permission_stops_the_start() -> None:
    async def answer(_: Request) -> PlainTextResponse:
        return PlainTextResponse("secrets")

    async with rig() as r:
        plane = wire(r.plane.parts)
        with pytest.raises(UndeclaredRoute, match="GET,HEAD /api/leak declares no permission"):
            Server(plane, Vitals(plane.parts.clock), [Route("/api/leak", answer, methods=["GET"])])
        with pytest.raises(ValueError, match="'leak:read', which is no permission"):
            route(plane, "GET", "/api/leak", answer, "leak:read", ABOUT)


@virtually
async def test_every_route_of_the_server_declares_a_permission() -> None:
    async with rig() as r:
        assert all(found.permission for found in r.server.asgi.routes)


@virtually
async def test_paths_are_exact() -> None:
    async with rig() as r:
        for path in (
            "//health",
            "/health/",
            "/Health",
            "/api//health",
            "/%2fhealth",
            "/x/../health",
        ):
            answer, problem = await call(r.server.asgi, "GET", path)
            assert (path, answer.status, problem["code"]) == (path, 404, "not_found")


@virtually
async def test_bodies_may_be_packed_and_must_be_json() -> None:
    async with rig() as r:
        asgi = r.server.asgi
        packed = gzip.compress(b'{"path":"nowhere"}')
        _, problem = await call(asgi, "POST", "/api/execute", packed, content_encoding="gzip")
        assert problem["code"] == "unknown_path"
        frame = zstandard.compress(b'{"path":"nowhere"}')
        _, problem = await call(asgi, "POST", "/api/execute", frame, content_encoding="ZSTD")
        assert problem["code"] == "unknown_path"
        found = []
        for body, headers in (
            (packed, {"content_encoding": "br"}),
            (packed, {"content_encoding": "zstd"}),
            (zstandard.compress(b" " * 100_000), {"content_encoding": "zstd"}),
            (gzip.compress(b" " * 100_000), {"content_encoding": "gzip"}),
            (b"{}", {"content_type": "application/x-www-form-urlencoded"}),
            (b'{"path":"a","path":"b"}', {"content_type": "application/json; charset=utf-8"}),
            (b'{"payload":{"a":NaN},"path":"a"}', {}),
            (b'{"payload":{"a":"\\u0000"},"path":"a"}', {}),
            (b'{"path":"a","payload":{"a":' + b"[" * 65 + b"]" * 65 + b"}}", {}),
            (b"\xff", {}),
        ):
            answer, problem = await call(asgi, "POST", "/api/execute", body, **headers)
            found.append(
                (answer.status, problem["code"], problem.get("errors", [{}])[0].get("pointer"))
            )
        assert found == [
            (415, "bad_media_type", None), (400, "bad_json", None),
            (413, "body_too_large", None), (413, "body_too_large", None),
            (415, "bad_media_type", None), (422, "bad_value", "/path"), (422, "bad_value", ""),
            (422, "bad_value", "/payload/a"), (422, "bad_value", ""), (400, "bad_json", None),
        ]  # fmt: skip


def test_values_of_the_query_are_read_or_refused() -> None:
    assert number(asked("limit=7"), "limit", 50, 200, 1) == 7
    assert number(asked(""), "limit", 50, 200, 1) == 50
    for wrong in ("0", "201", "-1", "x", "1_0", "1.0", "", "9" * 5000):
        assert refused(number, asked(f"limit={wrong}"), "limit", 50, 200, 1) == "validation_failed"
    assert boolean(asked("a=true"), "a")
    assert not boolean(asked("a=0"), "a", default=True)
    assert boolean(asked(""), "a", default=True)
    assert refused(boolean, asked("a=yes"), "a") == "validation_failed"


def test_times_come_in_many_forms_and_go_out_in_one() -> None:
    noon = "2026-01-31T12:00:00.000000Z"
    for text in (
        "2026-01-31T12:00:00Z", "2026-01-31t12:00:00z", "2026-01-31T14:00:00+02:00",
        "2026-01-31T12:00:00", "2026-01-31 12:00:00", "2026-01-31T14:00:00 02:00",
        "2026-01-31T12:00",
    ):  # fmt: skip
        assert moment_of(text, "since") == noon
    assert moment(asked("since=2026-01-31T12:00:00Z"), "since") == noon
    assert moment(asked(""), "since") is None
    for wrong in (
        "",
        "now",
        "2026-01-31",
        "2026-13-01T00:00:00Z",
        "1769860800",
        "2026-W05-6T12:00:00",
    ):
        assert refused(moment_of, wrong, "since") == "bad_time"


@virtually
async def test_a_body_that_stops_coming_is_not_waited_for() -> None:
    async with rig(**SHUT) as r:
        began = asyncio.get_running_loop().time()
        status, body = await raw(r.server.asgi, "POST", "/api/execute", [b'{"pa', b'th":'])
        assert (status, body["code"]) == (408, "timeout")
        assert asyncio.get_running_loop().time() - began == pytest.approx(10.0)


@virtually
async def test_a_body_that_trickles_has_a_minute() -> None:
    async with rig(**SHUT) as r:
        began = asyncio.get_running_loop().time()
        status, body = await raw(r.server.asgi, "POST", "/api/execute", [b" "] * 100, pause_s=9)
        assert (status, body["code"]) == (408, "timeout")
        assert asyncio.get_running_loop().time() - began == pytest.approx(60.0)


@virtually
async def test_a_caller_that_leaves_within_its_body_is_no_fault() -> None:
    async with rig() as r:
        sent: list[dict] = []

        async def receive():
            return {"type": "http.disconnect"}

        async def send(message) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": "/api/execute", "query_string": b"",
            "headers": [], "client": None,
        }  # fmt: skip
        await r.server.asgi(scope, receive, send)
        assert sent[0]["status"] == 499


async def raw(asgi, method: str, path: str, parts: list[bytes], pause_s: float = 0):
    """A request whose body comes in parts and never ends."""
    scope = {
        "type": "http", "method": method, "path": path, "query_string": b"", "root_path": "",
        "headers": [(b"authorization", b"Bearer inner")], "client": ("1.2.3.4", 5),
    }  # fmt: skip
    sent: list[dict] = []
    left = list(parts)

    async def receive():
        if not left:
            await asyncio.Event().wait()
        await asyncio.sleep(pause_s)
        return {"type": "http.request", "body": left.pop(0), "more_body": True}

    async def send(message) -> None:
        sent.append(message)

    await asgi(scope, receive, send)
    return sent[0]["status"], msgspec.json.decode(sent[1]["body"])


@virtually
async def test_what_fails_by_itself_tells_nothing_of_itself() -> None:
    async with rig() as r:
        lines: list[logging.LogRecord] = []
        handler = logging.Handler()
        handler.emit = lines.append
        logging.getLogger("noetl.server.routes.exchange").addHandler(handler)

        async def broken(plane, request):
            del plane, request
            raise RuntimeError("select secret from noetl.credential")

        async def away(plane, request):
            del plane
            raise DatabaseGone(f"{request_id_of(request)} has no database")

        async def full(plane, request):
            del plane, request
            raise StorageFull("no space")

        door = Door([
            route(r.plane, "GET", "/broken", broken, "public", ABOUT),
            route(r.plane, "POST", "/away", away, "public", ABOUT),
            route(r.plane, "POST", "/full/{name}", full, "public", ABOUT),
        ])  # fmt: skip
        answer, problem = await call(door, "GET", "/broken", x_request_id="r1")
        logging.getLogger("noetl.server.routes.exchange").removeHandler(handler)
        assert (answer.status, problem["code"], problem["request_id"]) == (500, "internal", "r1")
        assert b"select" not in answer.body
        assert lines[0].exc_info is not None
        assert lines[0].request_id == "r1"
        answer, problem = await call(door, "POST", "/away", x_request_id="r2")
        assert (answer.status, problem["code"]) == (503, "db_unavailable")
        assert (answer.headers["retry-after"], problem["retry_after"]) == ("1", 1.0)
        answer, problem = await call(door, "POST", "/full/x")
        assert (answer.status, problem["code"], answer.headers["retry-after"]) == (
            507, "storage_full", "5",
        )  # fmt: skip
        assert r.plane.metrics.write_requests.value("/full/{name}", "5xx") == 1


def test_who_is_to_come_back_is_told_when() -> None:
    class Later(NoetlError):
        code = "quota_exceeded"
        status = 429

    assert answer_of(Later("enough")).headers["retry-after"] == "1"


@virtually
async def test_a_server_that_stops_finishes_and_takes_on_nothing() -> None:
    async with rig() as r:
        inside, leave = asyncio.Event(), asyncio.Event()

        async def slow(plane, request):
            del plane, request
            inside.set()
            await leave.wait()
            return json({})

        door = Door([route(r.plane, "POST", "/slow", slow, "public", ABOUT)])
        going = asyncio.create_task(call(door, "POST", "/slow"))
        parked = asyncio.create_task(r.claim(wait_seconds=20.0))
        await inside.wait()
        draining = asyncio.create_task(r.server.drain(25))
        await asyncio.sleep(1)
        answer, problem = await call(r.server.asgi, "POST", "/api/execute", b"{}")
        assert (answer.status, problem["code"], answer.headers["retry-after"]) == (
            503, "draining", "1",
        )  # fmt: skip
        answer, problem = await call(r.server.asgi, "GET", "/ready")
        assert (answer.status, problem["failing"]) == (503, ["draining"])
        assert (await call(r.server.asgi, "GET", "/health"))[0].status == 200
        assert not draining.done()
        leave.set()
        assert await draining
        await r.server.stop()
        assert await parked == []
        assert (await going)[0].status == 200


@virtually
async def test_a_request_that_never_ends_does_not_hold_the_server() -> None:
    async with rig() as r:

        async def stuck(plane, request):
            del plane, request
            await asyncio.Event().wait()

        door = Door([route(r.plane, "POST", "/stuck", stuck, "public", ABOUT)])
        going = asyncio.create_task(call(door, "POST", "/stuck"))
        await asyncio.sleep(0)
        assert not await r.server.drain(25)
        going.cancel()
