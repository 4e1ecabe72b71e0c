"""What all answers of the gateway have in common, and how it says that it is well."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from noetl.edge.door import UndeclaredRoute
from noetl.edge.reading import json as answered
from noetl.gateway.app import Gateway
from noetl.gateway.declaring import PUBLIC, Declared, route
from noetl.gateway.routes import health
from noetl.gateway.shards import Shards
from noetl.secrets.signed import HEADER, key_of, sign
from tests.unit.gateway.rig import INTERNAL, gateway_rig, until
from tests.unit.server.rig import ONE_STEP

LISTED = "https://app.example"
OTHER = "https://app.example.evil"


async def absent(*_):
    """A server that is not there."""
    raise OSError("nobody listens")


def problem(answer):
    assert answer.headers["content-type"] == "application/problem+json"
    told = json.loads(answer.body)
    assert told["request_id"] == answer.headers["x-request-id"]
    assert told["status"] == answer.status
    return told


async def test_each_answer_has_a_name_the_callers_own_if_it_is_one():
    async with gateway_rig() as rig:
        for path in ("/health", "/nowhere", "/noetl/executions", "/api/runtime/contract"):
            given = await rig.caller(x_request_id="Mine-1._").get(path)
            assert given.headers["x-request-id"] == "Mine-1._"
            for bad in ("", "a b", "x" * 65, "ö"):
                made = await rig.caller(x_request_id=bad).get(path)
                assert re.fullmatch(r"r-[0-9a-f]{16}-\d+", made.headers["x-request-id"])


async def test_what_the_router_refuses_is_a_problem():
    async with gateway_rig() as rig:
        caller = rig.caller()
        assert problem(await caller.get("/nowhere"))["code"] == "not_found"
        assert problem(await caller.get("/health\n"))["code"] == "not_found"
        wrong = await caller.post("/health", {})
        assert (wrong.status, problem(wrong)["code"]) == (405, "bad_method")
        assert wrong.headers["allow"] == "GET, HEAD" or "GET" in wrong.headers["allow"]


@pytest.mark.parametrize(
    ("body", "media_type", "status", "code"),
    [
        (b"{", "application/json", 400, "bad_json"),
        (b"{}", "text/plain", 415, "bad_media_type"),
        (b'{"nonsense": 1}', "application/json", 422, "unknown_field"),
        (b'{"purpose": "a", "purpose": "b"}', "application/json", 422, "bad_value"),
    ],
    ids=["bad_json", "media_type", "unknown_field", "twice"],
)
async def test_a_body_that_cannot_be_meant_is_refused(body, media_type, status, code):
    async with gateway_rig() as rig:
        ann = await rig.login()
        answer = await rig.caller(ann).ask(
            "POST", "/api/auth/ticket", body, {"content-type": media_type}
        )
        assert (answer.status, problem(answer)["code"]) == (status, code)


async def test_an_unknown_name_of_the_query_is_refused():
    async with gateway_rig() as rig:
        answer = await rig.caller().get("/ready?verbose=1")
        assert (answer.status, problem(answer)["code"]) == (422, "unknown_parameter")


async def test_pages_of_listed_origins_read_every_answer_and_no_other():
    async with gateway_rig(cors_origins=(LISTED,), upstream_app=absent) as rig:
        for path, status in (
            ("/health", 200),
            ("/nowhere", 404),
            ("/noetl/executions", 401),
        ):
            for origin, allowed in ((LISTED, LISTED), (OTHER, None), ("null", None)):
                answer = await rig.caller(origin=origin).get(path)
                assert answer.status == status
                assert answer.headers.get("access-control-allow-origin") == allowed
                assert answer.headers["vary"] == "Origin"
            assert "access-control-allow-origin" not in (await rig.caller().get(path)).headers


async def test_a_server_that_is_away_is_a_502_that_listed_origins_can_read():
    async with gateway_rig(cors_origins=(LISTED,), is_auth_bypassed=True, upstream_app=absent) as r:
        answer = await r.caller(origin=LISTED).get("/noetl/executions")
        assert (answer.status, problem(answer)["code"]) == (502, "upstream_unreachable")
        assert answer.headers["access-control-allow-origin"] == LISTED
        assert answer.headers["access-control-allow-credentials"] == "true"
        exposed = answer.headers["access-control-expose-headers"]
        assert {"X-Request-Id", "Retry-After", "ETag"} <= set(exposed.split(", "))
        assert (
            "access-control-allow-origin"
            not in (await r.caller(origin=OTHER).get("/noetl/executions")).headers
        )


async def test_a_browser_may_ask_before_it_sends_without_a_session():
    async with gateway_rig(cors_origins=(LISTED,)) as rig:
        asked = {"access-control-request-method": "POST"}
        asked["access-control-request-headers"] = "content-type, mcp-session-id"
        for path in ("/rpc", "/noetl/execute", "/nowhere"):
            answer = await rig.caller(origin=LISTED).ask("OPTIONS", path, None, asked)
            assert (answer.status, answer.body) == (204, b"")
            assert answer.headers["access-control-allow-origin"] == LISTED
            assert answer.headers["access-control-max-age"] == "600"
            allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
            assert {"idempotency-key", "last-event-id", "mcp-session-id"} <= set(allowed)
        refused = await rig.caller(origin=OTHER).ask("OPTIONS", "/rpc", None, asked)
        assert refused.status == 204
        assert not [name for name in refused.headers if name.startswith("access-control-")]
        plain = await rig.caller(origin=LISTED).ask("OPTIONS", "/rpc")
        assert plain.status == 405


@pytest.mark.parametrize("public_url", ["", "https://noetl.example"], ids=["http", "https"])
async def test_pages_say_what_they_may_load(public_url):
    async with gateway_rig(public_url=public_url) as rig:
        answer = await rig.caller().get("/login")
        assert answer.headers["content-type"].startswith("text/html")
        policy = answer.headers["content-security-policy"]
        assert "'unsafe-inline'" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert ("strict-transport-security" in answer.headers) == bool(public_url)


async def test_a_gateway_that_stands_on_everything_is_ready():
    async with gateway_rig() as rig:
        assert (await rig.caller().get("/health")).body == b"ok"
        answer = await rig.caller().get("/ready")
        told = json.loads(answer.body)
        assert answer.status == 200
        assert {name: told[name] for name in ("server", "nats", "kv", "draining")} == {
            "server": "ok", "nats": "ok", "kv": "ok", "draining": False,
        }  # fmt: skip


async def readiness(rig):
    answer = await rig.caller().get("/ready")
    told = json.loads(answer.body)
    assert (answer.status == 200) == (told["status"] == "ok")
    return told


async def test_without_its_server_a_gateway_is_not_ready():
    async with gateway_rig(upstream_app=absent) as rig:
        told = await readiness(rig)
        assert (told["server"], told["failing"]) == ("down", ["server"])


async def test_without_the_bus_a_gateway_is_not_ready():
    async with gateway_rig() as rig:
        rig.bus.is_connected = False
        assert "nats" in (await readiness(rig))["failing"]


async def test_a_gateway_that_sees_other_shards_than_its_server_is_not_ready():
    shards = Shards(("http://a", "http://b"))
    async with gateway_rig(shards=shards) as rig:
        await until(lambda: shards.state != "unknown")
        assert "shards" in (await readiness(rig))["failing"]


async def test_a_loop_that_keeps_failing_makes_the_gateway_unready():
    async with gateway_rig() as rig:

        async def broken():
            raise ValueError("no")

        tasks = rig.gate.tasks
        tasks.add("broken", broken)
        tasks.start()
        await until(tasks.failing)
        assert "task:broken" in (await readiness(rig))["failing"]
        assert rig.gate.metrics.task_crashes.value("broken") >= 3


async def test_a_gateway_that_stops_says_so_takes_no_streams_and_lets_calls_end():
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def slow(gate, request):
        del gate, request
        begun.set()
        await may_end.wait()
        return answered({"done": True})

    async def stream(*_):
        raise AssertionError("no stream begins here")

    async with gateway_rig() as rig:
        gate = rig.gate
        rig.gateway = Gateway(gate)
        more = (
            route(gate, "GET", "/slow", slow, PUBLIC, Declared(about="Waits.")),
            route(gate, "GET", "/flow", stream, PUBLIC, Declared(about="Flows.", is_stream=True)),
        )
        rig.gateway.asgi = _fronted(rig.gateway, more)
        calling = asyncio.create_task(rig.caller().get("/slow"))
        await begun.wait()
        draining = asyncio.create_task(rig.gateway.drain(5))
        await asyncio.sleep(0)
        told = await readiness(rig)
        assert (told["draining"], told["status"]) == (True, "unready")
        refused = await rig.caller().get("/flow")
        assert (refused.status, problem(refused)["code"]) == (503, "draining")
        assert "retry-after" in refused.headers
        assert not draining.done()
        may_end.set()
        assert (await calling).status == 200
        assert await draining is True


def _fronted(gateway, more):
    from noetl.edge.door import Door  # noqa: PLC0415 - only here
    from noetl.gateway.front import Front  # noqa: PLC0415 - only here

    gate = gateway.gate
    return Front(Door([*gateway.routes, *more]), gate.cors, gate.traffic, is_https=False)


async def test_metrics_are_for_those_who_may_read_the_runtime():
    async with gateway_rig() as rig:
        ann = await rig.login("ann", "operator")
        anonymous = await rig.caller().get("/metrics")
        assert (anonymous.status, problem(anonymous)["code"]) == (401, "missing_token")
        assert (await rig.caller(ann).get("/metrics")).status == 200
        service = await rig.caller(authorization=f"Bearer {INTERNAL}").get("/metrics")
        assert service.status == 200
        wrong = await rig.caller(authorization=f"Bearer {INTERNAL}x").get("/metrics")
        assert (wrong.status, problem(wrong)["code"]) == (401, "invalid_session")


async def test_who_reaches_the_metrics_bind_needs_no_session():
    async with gateway_rig() as rig:
        rig.gateway.asgi = rig.gateway.watched
        assert (await rig.caller().get("/metrics")).status == 200
        assert (await rig.caller().get("/health")).status == 200
        assert (await rig.caller().get("/noetl/executions")).status == 404


async def test_what_a_caller_says_of_himself_has_no_effect():
    async with gateway_rig() as rig:
        ann = await rig.login("ann", "viewer")
        claims = {"sub": "1", "name": "root", "roles": ["admin"], "tenant": "default"}
        forged = sign(claims, key_of(INTERNAL), rig.gate.clock.now().timestamp(), "jti")
        headers = {
            HEADER: forged, "x-user-id": "1", "x-user-roles": "admin", "x-session-id": "1",
            "x-forwarded-for": "10.0.0.1", "forwarded": "for=10.0.0.1", "x-noetl-tenant": "other",
        }  # fmt: skip
        told = await rig.caller(ann).get("/noetl/auth/whoami", headers)
        who = json.loads(told.body)
        assert (told.status, who["account"], who["roles"]) == (200, "ann", ["viewer"])
        refused = await rig.caller(ann).get("/noetl/users", headers)
        assert refused.status == 403
        anonymous = await rig.caller().get("/noetl/auth/whoami", headers)
        assert anonymous.status == 401


async def test_a_route_that_declares_no_permission_stops_the_start():
    async with gateway_rig() as rig:
        made = route(rig.gate, "GET", "/bare", health._alive, PUBLIC, Declared(about="Is."))  # noqa: SLF001 - any answer
        made.permission = ""
        with pytest.raises(UndeclaredRoute, match="/bare"):
            _fronted(rig.gateway, (made,))
        with pytest.raises(ValueError, match="no permission"):
            route(rig.gate, "GET", "/x", health._alive, "anything", Declared(about="Is."))  # noqa: SLF001 - any answer


async def test_what_can_be_relied_on_is_told_to_everybody():
    async with gateway_rig() as rig:
        told = json.loads((await rig.caller().get("/api/runtime/contract")).body)
        assert "GET /health" in told["routes"]["public"]
        assert "GET /metrics" in told["routes"]["runtime:read"]
        assert told["limits"]["header_bytes"] == 65536
        assert told["providers"] == []
        document = json.loads((await rig.caller().get("/openapi.json")).body)
        assert document["openapi"] == "3.1.0"
        names = [
            operation["operationId"]
            for item in document["paths"].values()
            for operation in item.values()
        ]
        assert sorted(set(names)) == sorted(names)
        known = {(one.path, m) for one in rig.gateway.routes for m in getattr(one, "methods", ())}
        assert sum(len(item) for item in document["paths"].values()) == len(
            {pair for pair in known if pair[1] != "HEAD"}
        )


async def test_a_fault_of_ours_is_a_500_that_tells_nothing(caplog):
    async def broken(*_):
        raise RuntimeError("the password is hunter2")

    async with gateway_rig() as rig:
        made = route(rig.gate, "GET", "/broken", broken, PUBLIC, Declared(about="Breaks."))
        rig.gateway.asgi = _fronted(rig.gateway, (made,))
        answer = await rig.caller().get("/broken?token=secret")
        assert (answer.status, problem(answer)["code"]) == (422, "unknown_parameter")
        answer = await rig.caller().get("/broken")
        assert (answer.status, problem(answer)["code"]) == (500, "internal")
        assert b"hunter2" not in answer.body
        assert "a call has failed" in caplog.text
        assert "secret" not in caplog.text


async def test_the_server_knows_of_a_gateway_and_its_key_and_of_its_end():
    async with gateway_rig() as rig:
        await until(lambda: rig.gate.registration.is_known)
        found = await rig.system.pools(kind="gateway")
        (known,) = [one for one in found.items if one.name == rig.gate.registration.name]
        assert known.runtime["worker_public_key"] == rig.gate.keys.public
        await rig.gate.registration.leave()
        left = await rig.system.pools(kind="gateway")
        assert rig.gate.registration.name not in [one.name for one in left.items]


async def test_what_is_told_to_one_person_is_kept_by_nobody_on_the_way() -> None:
    async with gateway_rig() as rig:
        caller = rig.caller(await rig.login())
        for path in ("/api/requests", "/noetl/executions", "/api/auth/whoami"):
            answer = await caller.get(path)
            assert (answer.status, answer.headers.get("cache-control")) == (200, "no-store"), path
        assert "cache-control" not in (await rig.caller().get("/openapi.json")).headers


async def test_playbooks_and_the_server_are_told_where_the_gateway_is_for_them():
    inner = "http://gateway.noetl.svc:8090"
    async with gateway_rig(public_url="https://gate.example.org", gateway_url=inner) as rig:
        await rig.playbook(ONE_STEP)
        params = {"name": "demo/it", "delivery": "session"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "playbook/execute", "params": params}
        answer = await rig.caller(await rig.login()).post("/rpc", body)
        run = await rig.admin.execution(json.loads(answer.body)["result"]["executionId"])
        await until(lambda: rig.gate.registration.is_known)
        found = await rig.system.pools(kind="gateway")
    assert run.workload["gateway_url"] == inner
    assert [one.uri for one in found.items] == [inner]
