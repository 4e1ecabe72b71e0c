"""Calls that are passed on: which ones, with which headers, and what becomes of failures."""

import asyncio
import gzip
import json
from contextlib import asynccontextmanager

import pytest
from starlette.requests import Request

from noetl.api.http import AsgiTransport, Asked, Late, NoAnswer
from noetl.api.sse import parsed
from noetl.clock import SystemClock
from noetl.edge.door import BODY
from noetl.edge.errors import NotFound, RateLimited, TooLarge, Unacceptable
from noetl.edge.reading import REQUEST_ID
from noetl.gateway.errors import BadPath, ShardMapMismatch, UpstreamTimeout, UpstreamUnreachable
from noetl.gateway.limits import Limits
from noetl.gateway.metrics import GatewayMetrics
from noetl.gateway.proxy import Proxy
from noetl.gateway.shards import Shards
from noetl.gateway.upstream import Upstream
from tests.unit.gateway.desk import Clock
from tests.unit.gateway.rig import ADMIN, INTERNAL, gateway_rig
from tests.unit.server.rig import ONE_STEP

OK = (200, [], b"{}")


class Upstairs:
    """An app in the place of the server: notes calls to some paths, and answers as it is told."""

    def __init__(self, app):
        self.app = app
        self.seen = []
        self.bodies = []
        self.answers = {}

    async def __call__(self, scope, receive, send):
        name = scope["path"]
        if name.startswith("/api/auth/"):
            await self.app(scope, receive, send)
            return
        self.seen.append((scope["method"], scope["raw_path"].decode(), scope["headers"]))
        if name not in self.answers:
            await self.app(scope, receive, send)
            return
        told = self.answers[name]
        if callable(told):
            await told(scope, receive, send)
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        self.bodies.append(body)
        status, headers, answer = told
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    @property
    def last(self):
        """The headers of the last call, by name."""
        return {name.decode(): value.decode() for name, value in self.seen[-1][2]}


@asynccontextmanager
async def passing(**settings):
    """A rig whose server is looked at, somebody who is signed in, and his caller."""
    upstairs = Upstairs(None)
    async with gateway_rig(upstream_app=upstairs, **settings) as rig:
        upstairs.app = rig.server.server.asgi
        who = await rig.login("ann")
        upstairs.seen.clear()
        yield rig, upstairs, rig.caller(who), who


def problem(answer):
    return answer.status, json.loads(answer.body)["code"]


TRICKS = {
    "/noetl/internal/x": (404, "not_found"),
    "/noetl/%69nternal/x": (404, "not_found"),
    "/noetl/%2e%2e/x": (400, "bad_path"),
    "/noetl//x": (400, "bad_path"),
    "/noetl/a%252fb": (400, "bad_path"),
    "/noetl/a%2f..%2finternal": (400, "bad_path"),
    "/noetl/a;b": (400, "bad_path"),
    "/noetl/": (404, "not_found"),
}


@pytest.mark.parametrize("path", TRICKS)
async def test_a_trick_never_reaches_the_server(path):
    async with passing() as (_, upstairs, caller, _who):
        assert problem(await caller.get(path)) == TRICKS[path]
        assert problem(await caller.post(path, {})) == TRICKS[path]
        assert upstairs.seen == []


async def test_other_methods_are_refused():
    async with passing() as (_, upstairs, caller, _who):
        for method in ("HEAD", "OPTIONS", "TRACE", "PROPFIND"):
            answer = await caller.ask(method, "/noetl/executions")
            assert answer.status == 405
            assert "GET" in answer.headers["allow"]
        assert upstairs.seen == []


async def test_nobody_passes_without_a_session():
    async with passing() as (rig, upstairs, _caller, _who):
        assert problem(await rig.caller().get("/noetl/executions")) == (401, "missing_token")
        assert upstairs.seen == []


async def test_forged_headers_have_no_effect_and_the_server_sees_the_true_user():
    async with passing() as (rig, upstairs, caller, who):
        admin = rig.gate.upstream.headers_for(ADMIN)["x-noetl-identity"]
        answer = await caller.get(
            "/noetl/auth2whoami",
            {
                "X-NoETL-Identity": admin, "x-user-id": "1", "x-user-roles": "admin",
                "X-Session-Token": who.token, "X-Session-Id": "1", "X-Forwarded-For": "9.9.9.9",
                "X-Forwarded-Host": "evil", "Forwarded": "for=9.9.9.9", "Cookie": "a=b",
                "Connection": "close, x-hop", "X-Hop": "1", "TE": "trailers", "Upgrade": "h2c",
                "Proxy-Authorization": "x", "Accept-Encoding": "zstd", "X-Kept": "yes",
                "X-Request-Id": "mine-1",
            },
        )  # fmt: skip
        assert (answer.status, answer.headers["x-request-id"]) == (404, "mine-1")
        sent = upstairs.last
        assert sent.pop("x-noetl-identity") not in {admin, ""}
        assert sent == {
            "authorization": "Bearer internal-token-of-the-rig",
            "accept-encoding": "zstd", "x-kept": "yes", "x-request-id": "mine-1",
            "content-length": "0",
        }  # fmt: skip


async def test_the_server_sees_the_true_user():
    async with passing() as (rig, _upstairs, caller, who):
        forged = rig.gate.upstream.headers_for(ADMIN)["x-noetl-identity"]
        answer = await caller.get("/noetl/auth/whoami", {"X-NoETL-Identity": forged})
        told = json.loads(answer.body)
        assert (told["account_id"], told["roles"]) == (who.user_id, ["developer"])


async def test_status_headers_and_body_come_back_unchanged():
    async with passing() as (_, upstairs, caller, _who):
        body = gzip.compress(b"packed")
        upstairs.answers["/api/thing"] = (
            206,
            [
                (b"content-type", b"text/csv"), (b"etag", b'"7"'), (b"cache-control", b"private"),
                (b"retry-after", b"7"), (b"content-disposition", b"attachment; filename=x.csv"),
                (b"content-encoding", b"gzip"), (b"location", b"/api/executions/7?a=/api/b"),
                (b"connection", b"close, x-hop"), (b"x-hop", b"1"), (b"keep-alive", b"5"),
                (b"set-cookie", b"a=b"), (b"access-control-allow-origin", b"*"),
                (b"x-request-id", b"theirs"), (b"server", b"x"), (b"date", b"y"),
            ],
            body,
        )  # fmt: skip
        answer = await caller.get("/noetl/thing", {"x-request-id": "mine"})
        assert (answer.status, answer.body) == (206, body)
        assert answer.headers == {
            "content-type": "text/csv", "etag": '"7"', "cache-control": "private",
            "retry-after": "7", "content-disposition": "attachment; filename=x.csv",
            "content-encoding": "gzip", "location": "/noetl/executions/7?a=/api/b",
            "content-length": str(len(body)), "x-request-id": "mine",
            "content-security-policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
            "x-content-type-options": "nosniff",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (b"http://10.0.0.1:8082/api/x", b"/noetl/x"),
        (b"/api", b"/noetl/"),
        (b"/apis/x", b"/apis/x"),
        (b"https://elsewhere.example/y", b"https://elsewhere.example/y"),
    ],
)
async def test_a_location_is_rewritten(given, shown):
    async with passing() as (_, upstairs, caller, _who):
        upstairs.answers["/api/x"] = (302, [(b"location", given)], b"")
        answer = await caller.get("/noetl/x")
        assert answer.headers["location"].encode() == shown


@pytest.mark.parametrize("kind", ["text/html", "Text/HTML", "image/svg+xml", "text/javascript"])
async def test_nothing_that_is_stored_runs_in_the_origin_of_the_session(kind):
    async with passing() as (rig, _, caller, _who):
        await rig.playbook(ONE_STEP)
        begun = await caller.post("/noetl/execute", {"path": "demo/it"})
        run = json.loads(begun.body)["execution_id"]
        put = f"/noetl/result/{run}?name=page"
        kept = await caller.ask("PUT", put, b"<script>alert(1)</script>", {"content-type": kind})
        ref = json.loads(kept.body)["ref"]
        answer = await caller.get(f"/noetl/result/resolve?ref={ref}")
    assert (answer.status, answer.body) == (200, b"<script>alert(1)</script>")
    rules = answer.headers["content-security-policy"].split("; ")
    assert {"sandbox", "default-src 'none'"} <= set(rules)
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("query", ["a b", "q=\u20ac", "q=\u00e9", "a\r\nx: y", "\x7f"])
async def test_a_query_that_is_not_quoted_is_refused(query):
    way = Way()
    with pytest.raises(BadPath):
        await proxy_to(way).ask(ADMIN, "GET", "executions", query)
    assert way.calls == []


async def test_queries_and_bodies_are_passed_on_as_they_are():
    async with passing() as (_, upstairs, caller, _who):
        seen = {}

        async def told(scope, receive, send):
            seen.update(query=scope["query_string"], body=(await receive())["body"])
            await send({"type": "http.response.start", "status": 204, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        upstairs.answers["/api/x"] = told
        answer = await caller.ask("PATCH", "/noetl/x?a=%2F&a=b&ticket=t", b"\x00\xff")
        assert (answer.status, answer.body) == (204, b"")
        assert seen == {"query": b"a=%2F&a=b&ticket=t", "body": b"\x00\xff"}


@pytest.mark.parametrize(
    ("path", "most"), [("x", 10 << 20), ("plugins/a", 16 << 20), ("result/7", 64 << 20)]
)
async def test_a_body_over_its_limit_is_413_and_counted_while_it_comes(path, most):
    async with passing() as (rig, upstairs, _caller, who):
        upstairs.answers[f"/api/{path}"] = OK
        part = bytes(1 << 20)

        async def body():
            for _ in range((most >> 20) + 1):
                yield part

        transport = AsgiTransport(rig.gateway.asgi)
        headers = [(b"authorization", f"Bearer {who.token}".encode())]
        asked = Asked(method="PUT", path=f"/noetl/{path}", headers=headers, body=body())
        exchange = await transport.exchange(asked, 30)
        assert exchange.status == 413
        await exchange.close()
        told = Asked(
            method="PUT", path=f"/noetl/{path}", headers=headers, body=body(), size=most + 1
        )
        upstairs.seen.clear()
        exchange = await transport.exchange(told, 30)
        assert (exchange.status, upstairs.seen) == (413, [])
        await exchange.close()


async def test_a_body_comes_to_the_server_in_parts():
    async with passing() as (rig, upstairs, _caller, who):
        steps = [asyncio.Event(), asyncio.Event()]

        async def slowly(_scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for step in steps:
                message = await receive()
                assert message["body"]
                step.set()
                await send({"type": "http.response.body", "body": b"seen ", "more_body": True})
            await send({"type": "http.response.body", "body": b"end"})

        async def body():
            yield b"one"
            await steps[0].wait()
            yield b"two"
            await steps[1].wait()

        upstairs.answers["/api/x"] = slowly
        asked = Asked(
            method="POST",
            path="/noetl/x",
            headers=[(b"authorization", f"Bearer {who.token}".encode())],
            body=body(),
        )
        async with asyncio.timeout(20):
            exchange = await AsgiTransport(rig.gateway.asgi).exchange(asked)
            assert b"".join([p async for p in exchange.parts()]) == b"seen seen end"
            await exchange.close()


class Way:
    """A way to a server that fails so often, and notes what went along it."""

    def __init__(self, *faults):
        self.faults, self.calls = list(faults), []

    async def request(self, *_):
        raise AssertionError

    async def exchange(self, asked, timeout_s=None):
        self.calls.append((asked.method, asked.path, timeout_s))
        if self.faults:
            raise self.faults.pop(0)

        async def app(_scope, _receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})

        return await AsgiTransport(app).exchange(asked, timeout_s)


def proxy_to(*ways, shards=None):
    """A proxy on these ways: the first for everything, then one per shard."""
    known = shards or Shards(tuple("x" for _ in ways[1:]))
    upstream = Upstream(ways, INTERNAL, SystemClock(), known)
    metrics = GatewayMetrics()
    return Proxy(
        upstream=upstream,
        shards=known,
        limits=Limits(Clock(), metrics),
        metrics=metrics,
        clock=SystemClock(),
        closing=asyncio.Event(),
        timeout_s=7.0,
    )


def request_of(method, path, body=b"", **headers):
    """A request as the door gives it on."""
    wire = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(
        {"type": "http", "method": method, "path": path, "raw_path": path.encode(),
         "query_string": b"", "headers": wire, BODY: body, REQUEST_ID: "r"},
        receive,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "faults", "found", "calls"),
    [
        ("GET", [NoAnswer("refused")], None, 2),
        ("GET", [NoAnswer("refused")] * 2, UpstreamUnreachable, 2),
        ("POST", [NoAnswer("refused")], UpstreamUnreachable, 1),
        ("DELETE", [NoAnswer("refused")], UpstreamUnreachable, 1),
        ("GET", [Late("slow")], UpstreamTimeout, 1),
        ("POST", [Late("slow")], UpstreamTimeout, 1),
    ],
    ids=str,
)
async def test_only_a_get_is_tried_again_and_only_once(method, faults, found, calls):
    way = Way(*faults)
    asking = proxy_to(way).answer(ADMIN, request_of(method, "/noetl/x"))
    if found is None:
        assert (await asking).status_code == 200
    else:
        with pytest.raises(found):
            await asking
    assert way.calls == [(method, "/api/x", 7.0)] * calls


def events(*ids):
    return json.dumps({"events": [{"execution_id": one, "x": 1} for one in ids]}).encode()


WHERE = [
    ("executions/1", b"", {}, 2),
    ("executions/325/events", b"", {}, 1),
    ("vars/42", b"", {}, 2),
    ("result/325", b"", {}, 1),
    ("executions", b"", {}, 0),
    ("executions/abc", b"", {}, 0),
    ("catalog/1", b"", {}, 0),
    ("catalog", b"", {"x_execution_id": "1"}, 2),
    ("executions/325", b"", {"x_execution_id": "1"}, 1),
    ("catalog", b"", {"x_execution_id": "abc"}, 0),
    ("events", b'{"execution_id": "1"}', {}, 2),
    ("events", b'{"execution_id": 325}', {"x_execution_id": "1"}, 1),
    ("events/batch", events("1", 1, "1"), {}, 2),
    ("events/batch", events(), {"x_execution_id": "1"}, 2),
    ("events/batch", b"not JSON", {}, 0),
    ("events/batch", gzip.compress(events("325")), {"content_encoding": "gzip"}, 1),
]


@pytest.mark.parametrize(
    ("path", "body", "headers", "way"), WHERE, ids=[f"{n}-{w[0]}" for n, w in enumerate(WHERE)]
)
async def test_a_call_goes_to_the_server_of_its_run(path, body, headers, way):
    ways = [Way(), Way(), Way()]
    method = "POST" if body else "GET"
    await proxy_to(*ways).answer(ADMIN, request_of(method, f"/noetl/{path}", body, **headers))
    assert [len(one.calls) for one in ways] == [int(n == way) for n in range(3)]


async def test_the_events_of_one_batch_must_be_of_one_run():
    way = Way()
    for body in (events("1", "2"), b'{"execution_id": "1", "events": [{"execution_id": "2"}]}'):
        with pytest.raises(Unacceptable) as caught:
            await proxy_to(way).answer(ADMIN, request_of("POST", "/noetl/events/batch", body))
        assert (caught.value.status, way.calls) == (422, [])


async def test_calls_about_runs_are_refused_while_the_maps_differ():
    shards, way = Shards(("a", "b")), Way()
    shards.state = "mismatch"
    proxy = proxy_to(way, Way(), Way(), shards=shards)
    with pytest.raises(ShardMapMismatch):
        await proxy.answer(ADMIN, request_of("GET", "/noetl/executions/1"))
    await proxy.answer(ADMIN, request_of("GET", "/noetl/catalog"))
    assert way.calls == [("GET", "/api/catalog", 7.0)]


async def test_a_whole_call_obeys_the_same_rules():
    ways = [Way(), Way(), Way()]
    proxy = proxy_to(*ways)
    status, _, body = await proxy.ask(ADMIN, "GET", "executions/1", "a=b")
    assert (status, body, ways[2].calls) == (200, b"{}", [("GET", "/api/executions/1?a=b", 7.0)])
    with pytest.raises(BadPath):
        await proxy.ask(ADMIN, "GET", "a/../internal")
    with pytest.raises(NotFound):
        await proxy.ask(ADMIN, "GET", "internal/x")
    with pytest.raises(Unacceptable):
        await proxy.ask(ADMIN, "TRACE", "x")
    with pytest.raises(TooLarge):
        await proxy.ask(ADMIN, "GET", "x", most=1)


VECTORS = {
    "1": (1, 1, 5, 5), "42": (1, 3, 3, 3), "325": (0, 0, 4, 4),
    "320816801799737344": (0, 2, 6, 14), "9223372036854775807": (0, 0, 4, 12),
    "-1": (1, 1, 1, 9),
}  # fmt: skip


async def test_the_preview_vectors_hold_and_others_get_400():
    async with gateway_rig() as rig:
        caller = rig.caller()
        for execution_id, indexes in VECTORS.items():
            for count, index in zip((2, 4, 8, 16), indexes, strict=True):
                asked = f"?execution_id={execution_id}&shard_count={count}"
                answer = await caller.get(f"/sharding/preview{asked}")
                assert json.loads(answer.body) == {
                    "execution_id": execution_id, "shard_count": count, "shard_index": index,
                    "source": "noetl-gateway", "hash_function": "xxh64-le-i64", "seed": 0,
                }  # fmt: skip
        for asked in ("execution_id=abc", "execution_id=1&shard_count=0", "shard_count=2",
                      "execution_id=1&shard_count=1025", "execution_id=9223372036854775808",
                      "execution_id=1&shard_count=x"):  # fmt: skip
            assert problem(await caller.get(f"/sharding/preview?{asked}")) == (400, "bad_query")


async def test_a_server_with_another_count_makes_the_gateway_not_ready():
    async with gateway_rig(shards=Shards(("a", "b"))) as rig:
        who = await rig.login()
        assert await rig.gate.shards.compare(rig.system.shard_info) == "mismatch"
        ready = await rig.caller().get("/ready")
        assert (ready.status, json.loads(ready.body)["shards"]) == (503, "mismatch")
        answer = await rig.caller(who).get("/noetl/executions/1")
        assert problem(answer) == (503, "shard_map_mismatch")
        assert (await rig.caller(who).get("/noetl/executions")).status == 200


async def test_an_event_stream_passes_while_it_comes():
    async with gateway_rig() as rig:
        who = await rig.login()
        await rig.playbook(ONE_STEP)
        started = await rig.caller(who).post("/noetl/execute", {"path": "demo/it"})
        run = json.loads(started.body)["execution_id"]
        asked = Asked(
            method="GET",
            path=f"/noetl/executions/{run}/events/stream",
            headers=[(b"authorization", f"Bearer {who.token}".encode())],
        )
        async with asyncio.timeout(20):
            exchange = await AsgiTransport(rig.gateway.asgi).exchange(asked)
            assert exchange.status == 200
            assert (b"content-type", b"text/event-stream; charset=utf-8") in exchange.headers
            told = parsed(exchange.parts())
            assert (await anext(told))["data"]["event_type"] == "playbook.started"
            assert await rig.step()
            rest = [one["data"].get("event_type") async for one in told]
            assert "playbook.completed" in rest
            await exchange.close()


async def test_runs_are_not_begun_too_often():
    way = Way()
    proxy = proxy_to(way)
    for _ in range(40):
        await proxy.answer(ADMIN, request_of("POST", "/noetl/execute", b"{}"))
    with pytest.raises(RateLimited):
        await proxy.answer(ADMIN, request_of("POST", "/noetl/execute", b"{}"))
    with pytest.raises(RateLimited):
        await proxy.ask(ADMIN, "POST", "executions/7/rerun")
    assert (await proxy.answer(ADMIN, request_of("GET", "/noetl/execute"))).status_code == 200


async def test_a_stream_of_events_ends_when_the_gateway_stops():
    async with gateway_rig() as rig:
        who = await rig.login()
        await rig.playbook(ONE_STEP)
        started = await rig.caller(who).post("/noetl/execute", {"path": "demo/it"})
        run = json.loads(started.body)["execution_id"]
        asked = Asked(
            method="GET",
            path=f"/noetl/executions/{run}/events/stream",
            headers=[(b"authorization", f"Bearer {who.token}".encode())],
        )
        async with asyncio.timeout(20):
            exchange = await AsgiTransport(rig.gateway.asgi).exchange(asked)
            parts = exchange.parts()
            await anext(parts)
            rig.gate.closing.set()
            assert [part async for part in parts if b"playbook.completed" in part] == []
            await exchange.close()


async def test_the_catalog_tells_what_the_caller_may_run():
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        seen = {}
        for role in ("developer", "viewer"):
            caller = rig.caller(await rig.login(role, role))
            for word in ("view", "execute", "modify"):
                answer = await caller.get(f"/noetl/catalog?may={word}")
                found = [entry["path"] for entry in json.loads(answer.body)["entries"]]
                seen[role, word] = found == ["demo/it"]
            posted = await caller.post("/noetl/catalog/list", {"may": "execute"})
            assert bool(json.loads(posted.body)["entries"]) == seen[role, "execute"]
            assert (await caller.get("/noetl/catalog?may=dance")).status == 422
        assert seen == {
            ("developer", "view"): True, ("developer", "execute"): True,
            ("developer", "modify"): True, ("viewer", "view"): True,
            ("viewer", "execute"): False, ("viewer", "modify"): False,
        }  # fmt: skip
