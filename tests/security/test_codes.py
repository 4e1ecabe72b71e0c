"""Every code of a problem is provoked through the API, by one request at least.

The table below is compared with the titles of `server.problems`: a code that nobody can provoke, or
that only some later part of the platform raises, stands in `LATER` with that part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from noetl.edge.http import bound, listener
from noetl.edge.problems import TITLES
from noetl.secrets.fetch import Unreached
from noetl.secrets.sealed import KeyPair
from noetl.server.access.tokens import SESSION, digest, new_token
from noetl.store.base import CatalogEntry
from noetl.store.errors import DatabaseBusy, DatabaseGone, StorageFull
from noetl.store.identity import SessionRow, TenantRow
from noetl.store.memory.store import MemoryStore
from tests.security.asking import Told, sent
from tests.security.people import INNER, PYTHON, person
from tests.unit.server.rig import rig, virtually

if TYPE_CHECKING:
    from tests.unit.server.rig import Rig

LATER = {
    "bad_transition": "subscriptions",
    "listener_taken": "subscriptions",
    "revision_conflict": "subscriptions",
    "unknown_listener": "subscriptions",
    "unknown_subscription": "subscriptions",
    "upstream_unreachable": "gateway",
    "broker_unreachable": "gateway; the server goes on without its broker",
    "not_compilable": "plug-ins",
    "plugin_invalid": "plug-ins",
    "not_overridable": "system playbooks",
    "reserved_tool_kind": "system playbooks",
}
SHUT = {"is_open": False, "internal_tokens": (INNER,)}
HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: it, path: %s}\n"
STEP = f"workflow:\n  - step: start\n    tool: {PYTHON}\n"
NOW = "2026-01-01T00:00:00.000000Z"
CREDENTIALS = "/api/credentials"
ACROSS = "/api/internal/cross-region/resolve"
BEARER = {"name": "c", "type": "bearer", "data": {"token": "codes-canary-1"}}
FOREIGN = {
    "name": "c", "worker_id": "w", "public_key": KeyPair.make().public, "execution_id": "7",
    "region": "us-east1",
}  # fmt: skip
TEST = (
    "apiVersion: noetl.io/v2\nkind: PlaybookTest\nmetadata: {name: t, path: a/t}\n"
    "spec: {playbook: a/b, gate: true, cases: [{name: one}]}\n"
)


class Scene:
    """A server with one run of one step, and people who ask."""

    def __init__(self, r: Rig) -> None:
        self.r = r
        self.tokens: dict[str, str] = {"system": INNER, "nobody": ""}
        self.run = self.command = ""

    async def prepared(self) -> Scene:
        for name in ("admin", "developer", "viewer", "worker", "gateway"):
            pool = "shared" if name == "worker" else None
            self.tokens[name] = await person(self.r, name, pool=pool)
        await self.register(HEAD % "a/b" + STEP)
        self.run = (await self.post("/api/execute", path="a/b"))["execution_id"]
        rows = await self.r.store.commands.pending("shared", 10)
        self.command = rows[0].command_id
        return self

    async def ask(
        self, method: str, path: str, body: Any = b"{}", who: str = "admin", **headers: str
    ) -> Told:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        bearer = {"authorization": f"Bearer {token}"} if (token := self.tokens[who]) else {}
        path = path.format(run=self.run, command=self.command)
        return await sent(self.r.server.asgi, method, path, {**bearer, **named}, data)

    async def post(self, path: str, who: str = "admin", /, **body: Any) -> Any:
        told = await self.ask("POST", path, body, who)
        assert told.status < 300, told
        return msgspec.json.decode(told.body)

    async def register(self, content: str) -> None:
        await self.post("/api/catalog/register", content=content)

    async def execute(self, who: str = "admin", /, headers: Any = None, **body: Any) -> Told:
        return await self.ask("POST", "/api/execute", {"path": "a/b"} | body, who, **headers or {})


class Away:
    """Executions of a store that cannot tell of one."""

    def __init__(self, whole: Any, fault: Exception) -> None:
        self._whole = whole
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    async def get(self, execution_id: str) -> Any:
        if execution_id == "12":
            raise self._fault
        return await self._whole.get(execution_id)


# ------------------------------------------------------------------ more than one request


async def active_claim(s: Scene) -> Told:
    await s.post("/api/commands/{command}/claim", worker_id="one")
    return await s.ask("POST", "/api/commands/{command}/claim", {"worker_id": "two"})


async def already_terminal(s: Scene) -> Told:
    await s.post("/api/executions/{run}/finalize", status="COMPLETED")
    return await s.ask("POST", "/api/executions/{run}/cancel")


async def child_depth(s: Scene) -> Told:
    parent = s.run
    while True:
        told = await s.execute(parent_execution_id=parent)
        if told.status != 200:
            return told
        parent = msgspec.json.decode(told.body)["execution_id"]


async def concurrency_limit(s: Scene) -> Told:
    rule = "executor: {spec: {concurrency: {key: k, limit: 1, on_limit: reject}}}\n"
    await s.register(HEAD % "a/one" + rule + STEP)
    await s.execute(path="a/one")
    return await s.execute(path="a/one")


async def dedup_conflict(s: Scene) -> Told:
    key = {"idempotency_key": "k"}
    await s.execute(headers=key)
    return await s.execute(headers=key, payload={"x": 1})


async def digest_mismatch(s: Scene) -> Told:
    path = "/api/internal/objects/x"
    await s.ask("PUT", path, b"one", "system")
    return await s.ask("PUT", path, b"two", "system")


async def draining(s: Scene) -> Told:
    s.r.plane.access.closing.set()
    return await s.execute()


async def execution_cancelled(s: Scene) -> Told:
    await s.post("/api/executions/{run}/cancel")
    return await s.ask("POST", "/api/commands/{command}/claim", {"worker_id": "one"})


async def execution_paused(s: Scene) -> Told:
    await s.post("/api/executions/{run}/pause")
    return await s.ask("POST", "/api/commands/{command}/claim", {"worker_id": "one"})


async def expired(s: Scene) -> Told:
    kept = await s.ask("PUT", "/api/result/{run}", {"name": "x", "data": 1, "ttl": 60})
    await asyncio.sleep(60)
    return await s.ask("GET", f"/api/result/resolve?ref={msgspec.json.decode(kept.body)['ref']}")


async def invalid_input(s: Scene) -> Told:
    form = "inputs: {n: {type: integer}}\n"
    await s.register(HEAD % "a/form" + form + STEP)
    return await s.execute(path="a/form", payload={"n": "text"})


async def no_entry_step(s: Scene) -> Told:
    """A document of a release that did not look for it."""
    nowhere = HEAD % "a/old" + "executor: {spec: {entry_step: nowhere}}\n" + STEP
    entry = CatalogEntry(
        catalog_id=s.r.ids.new(), path="a/old", version=1, kind="playbook", content=nowhere,
        digest="d", created_at=NOW,
    )  # fmt: skip
    await s.r.store.catalog.add(entry)
    return await s.execute(path="a/old")


async def not_executable(s: Scene) -> Told:
    await s.register(
        "apiVersion: noetl.io/v2\nkind: Credential\nmetadata: {name: c, path: a/c}\n"
        "spec: {type: bearer, data: {token: x}}\n"
    )
    return await s.execute(path="a/c")


async def kek_unavailable(s: Scene) -> Told:
    del s
    async with rig(**SHUT, wallet=None) as r:
        keyless = await Scene(r).prepared()
        return await keyless.ask("POST", CREDENTIALS, BEARER)


async def not_testable(s: Scene) -> Told:
    await s.post(CREDENTIALS, **BEARER)
    return await s.ask("POST", f"{CREDENTIALS}/c/test")


async def record_damaged(s: Scene) -> Told:
    await s.post(CREDENTIALS, **BEARER)
    row = await s.r.store.credentials.get("default", "c")
    await s.r.store.credentials.put(msgspec.structs.replace(row, data_encrypted="no record"))
    return await s.ask("GET", f"{CREDENTIALS}/c?include_data=true")


async def residency_denied(s: Scene) -> Told:
    await s.post(CREDENTIALS, **BEARER, region="eu-west6")
    return await s.ask("POST", ACROSS, FOREIGN, "system")


async def secret_missing(s: Scene) -> Told:
    await s.post(CREDENTIALS, name="c", type="bearer", **{"from": {"file": "nowhere"}})
    return await s.ask("POST", ACROSS, FOREIGN, "system")


async def secret_refused(s: Scene) -> Told:
    await s.post(CREDENTIALS, name="c", type="bearer", **{"from": {"vault": "kv/x"}})
    return await s.ask("POST", ACROSS, FOREIGN, "system")


async def secret_unavailable(s: Scene) -> Told:
    del s

    async def away(ask: Any) -> Any:
        del ask
        raise Unreached("nobody is there")

    async with rig(**SHUT, fetch=away) as r:
        lonely = await Scene(r).prepared()
        await lonely.post(
            CREDENTIALS, name="v", type="mcp", data={"url": "https://v", "token": "t"}
        )
        source = {"from": {"vault": "kv/x", "auth": "v"}}
        await lonely.post(CREDENTIALS, name="c", type="bearer", **source)
        return await lonely.ask("POST", ACROSS, FOREIGN, "system")


async def not_running(s: Scene) -> Told:
    await s.post("/api/executions/{run}/finalize", status="COMPLETED")
    return await s.ask("POST", "/api/executions/{run}/pause")


async def not_paused(s: Scene) -> Told:
    await s.post("/api/executions/{run}/finalize", status="COMPLETED")
    return await s.ask("POST", "/api/executions/{run}/resume")


async def quota_exceeded(s: Scene) -> Told:
    limits = {"running_executions": 0}
    await s.r.store.tenants.add(TenantRow(tenant_id="full", limits=limits))
    s.tokens["full"] = await person(s.r, "admin", tenant_id="full")
    await s.post("/api/catalog/register", "full", content=HEAD % "a/b" + STEP)
    await s.execute("full")
    await asyncio.sleep(5)
    return await s.execute("full")


async def rate_limited(s: Scene) -> Told:
    batch = {"executions": [{"path": "a/b"}] * 1000}
    await s.ask("POST", "/api/execute/batch", batch)
    return await s.execute()


async def requirement_missing(s: Scene) -> Told:
    await s.register(HEAD % "a/more" + "executor: {requires: {features: [magic]}}\n" + STEP)
    return await s.execute(path="a/more")


async def result_too_large(s: Scene) -> Told:
    await s.post("/api/commands/{command}/claim", "worker", worker_id="w")
    big = {"name": "big", "data": "x" * (9 * 2**20)}
    kept = msgspec.json.decode((await s.ask("PUT", "/api/result/{run}", big)).body)
    event = {
        "execution_id": s.run, "step": "start", "event_type": "call.done", "worker_id": "w",
        "command_id": s.command, "attempt": 1, "payload": {"reference": kept["reference"]},
    }  # fmt: skip
    done = await s.post("/api/events", "worker", **event)
    return await s.ask("GET", f"/api/events/{done['event_id']}/result")


async def session_expired(s: Scene) -> Told:
    s.tokens["past"] = new_token(SESSION)
    account = await s.r.store.tokens.find(digest(s.tokens["viewer"]))
    row = SessionRow(
        session_id=s.r.ids.new(), sha256=digest(s.tokens["past"]), account_id=account.account_id,
        created_at=NOW, expires_at=NOW, idle_until=NOW,
    )  # fmt: skip
    await s.r.store.sessions.put(row)
    return await s.ask("GET", "/api/executions", who="past")


async def gate_closed(s: Scene) -> Told:
    await s.register(TEST)
    body = {"content": HEAD % "a/b" + STEP + "# changed\n"}
    return await s.ask("POST", "/api/catalog/register", body)


async def token_expired(s: Scene) -> Told:
    s.tokens["old"] = await person(s.r, "viewer", name="old", expires_at=NOW)
    return await s.ask("GET", "/api/executions", who="old")


async def timeout(s: Scene) -> Told:
    """A body that stops coming."""
    headers = {"authorization": f"Bearer {INNER}"}
    return await sent(s.r.server.asgi, "POST", "/api/execute", headers, [b'{"path":'])


# ------------------------------------------------------------------ the table

Asked = tuple[Any, ...]
Steps = Callable[[Scene], Awaitable[Told]]
REGISTER, EXECUTE, EVENTS = "/api/catalog/register", "/api/execute", "/api/events"
EVENT = {"execution_id": "12", "step": "start"}

PROVOKED: dict[str, tuple[int, Asked | Steps]] = {
    "active_claim": (409, active_claim),
    "already_terminal": (409, already_terminal),
    "auth_required": (401, ("GET", "/api/executions", b"", "nobody")),
    "bad_credentials": (
        401, ("POST", "/api/auth/login", {"username": "a", "password": "b"}, "gateway"),
    ),
    "bad_cursor": (422, ("GET", "/api/executions?cursor=x")),
    "bad_identity": (
        401, ("GET", "/api/executions", b"", "system", {"x_noetl_identity": "admin"}),
    ),
    "bad_json": (400, ("POST", EXECUTE, b"{")),
    "bad_media_type": (415, ("POST", EXECUTE, b"a=b", "admin", {"content_type": "text/plain"})),
    "bad_method": (405, ("PATCH", "/api/executions")),
    "bad_position": (422, ("POST", "/api/executions/{run}/fork", {"from_seq": 999})),
    "bad_query": (400, ("GET", "/api/runtime/shard-info?execution_id=x")),
    "bad_ref": (400, ("GET", "/api/result/resolve?ref=x")),
    "bad_status": (422, ("GET", "/api/executions?status=maybe")),
    "bad_time": (422, ("GET", "/api/executions?since=soon")),
    "bad_value": (422, ("POST", EXECUTE, b'{"path":"a","path":"b"}')),
    "batch_size_invalid": (422, ("POST", "/api/execute/batch", {"executions": []})),
    "body_too_large": (413, ("POST", EXECUTE, b" " * (2 * 2**20 + 1))),
    "child_depth": (422, child_depth),
    "concurrency_limit": (409, concurrency_limit),
    "dedup_conflict": (409, dedup_conflict),
    "digest_mismatch": (409, digest_mismatch),
    "draining": (503, draining),
    "execution_cancelled": (409, execution_cancelled),
    "execution_paused": (409, execution_paused),
    "expired": (410, expired),
    "field_not_allowed": (403, ("POST", EXECUTE, {"path": "a/b", "execution_id": "7"})),
    "forbidden": (403, ("POST", REGISTER, {"content": ""}, "viewer")),
    "forbidden_event": (
        403, ("POST", EVENTS, EVENT | {"event_type": "playbook.completed"}, "worker"),
    ),
    "in_use": (409, ("DELETE", "/api/roles/admin")),
    "internal_token_mismatch": (403, ("POST", "/api/internal/outbox/claim")),
    "invalid_id": (422, ("GET", "/api/executions/0x1")),
    "invalid_input": (422, invalid_input),
    "invalid_playbook": (422, ("POST", REGISTER, {"content": "kind: Playbook\n"})),
    "kek_unavailable": (503, kek_unavailable),
    "no_entry_step": (422, no_entry_step),
    "not_executable": (422, not_executable),
    "not_found": (404, ("GET", "/nowhere")),
    "not_paused": (409, not_paused),
    "not_retryable": (409, ("POST", "/api/executions/{run}/steps/start/retry")),
    "not_running": (409, not_running),
    "not_testable": (422, not_testable),
    "path_invalid": (422, ("GET", "/api/catalog/a//b/versions")),
    "pool_forbidden": (
        403, ("POST", "/api/commands/claim", {"worker_id": "w", "pool": "other"}, "worker"),
    ),
    "pool_invalid": (422, ("POST", EXECUTE, {"path": "a/b", "execution_pool": "A B"})),
    "quota_exceeded": (429, quota_exceeded),
    "rate_limited": (429, rate_limited),
    "record_damaged": (500, record_damaged),
    "requirement_missing": (422, requirement_missing),
    "reserved_namespace": (
        403, ("POST", REGISTER, {"content": HEAD % "system/x" + STEP}, "developer"),
    ),
    "reserved_pool": (
        403, ("POST", EXECUTE, {"path": "a/b", "execution_pool": "system"}, "developer"),
    ),
    "residency_denied": (403, residency_denied),
    "result_gone": (
        404, ("GET", "/api/result/resolve?ref=noetl://execution/{run}/result/a/b"),
    ),
    "result_too_large": (413, result_too_large),
    "secret_missing": (422, secret_missing),
    "secret_refused": (422, secret_refused),
    "secret_unavailable": (503, secret_unavailable),
    "session_expired": (401, session_expired),
    "stale_attempt": (
        409, ("POST", "/api/commands/{command}/heartbeat", {"worker_id": "w", "attempt": 1}),
    ),
    "test_gate": (409, gate_closed),
    "timeout": (408, timeout),
    "token_expired": (401, token_expired),
    "unknown_command": (404, ("GET", "/api/commands/12")),
    "unknown_event_type": (422, ("POST", EVENTS, EVENT | {"event_type": "a.b"}, "worker")),
    "unknown_execution": (404, ("GET", "/api/executions/12")),
    "unknown_field": (422, ("POST", EXECUTE, {"colour": 1})),
    "unknown_parameter": (422, ("GET", "/api/executions?colour=1")),
    "unknown_path": (404, ("POST", EXECUTE, {"path": "a/nothing"})),
    "unknown_worker": (404, ("POST", "/api/worker/pool/heartbeat", {"name": "nobody"})),
    "validation_failed": (422, ("POST", EXECUTE, {"path": 1})),
    "version_conflict": (
        409, ("POST", REGISTER, {"content": HEAD % "a/b" + STEP + "# new", "if_version": 7}),
    ),
    "worker_key_missing": (400, ("POST", ACROSS, FOREIGN | {"public_key": "x"}, "system")),
}  # fmt: skip
FAULTS = {
    "db_unavailable": (503, DatabaseGone("the connection to 10.1.2.3 was lost")),
    "pool_saturated": (503, DatabaseBusy("every connection is in use")),
    "storage_full": (507, StorageFull("no space left")),
    "internal": (500, RuntimeError("select secret from noetl.credential")),
}
ELSEWHERE = {"headers_too_large", "internal_token_unset", "no_object_store"}
# The tests of the gateway, of its webhooks and of subscriptions provoke these.
ELSEWHERE |= {
    "ambiguous_signature", "auth_backend_busy", "auth_hook_invalid", "auth_unavailable",
    "bad_claims", "bad_envelope", "bad_path", "bad_signature", "bad_state", "bad_subprotocol",
    "bad_token", "callback_token_missing", "callback_token_wrong", "challenge_refused",
    "client_not_yours", "code_refused", "csrf_rejected", "execution_mismatch",
    "invalid_bucket_key", "invalid_session", "issuer_not_allowed", "jwks_unavailable",
    "misconfigured", "missing_signature", "missing_timestamp", "missing_token",
    "oidc_bad_issuer", "oidc_bad_signature", "oidc_claim_mismatch", "oidc_expired",
    "oidc_invalid", "oidc_malformed", "oidc_unknown_kid", "oidc_unverified_email",
    "oidc_wrong_audience", "oidc_wrong_sa", "origin_refused", "query_token_disabled",
    "shard_map_mismatch", "stale_timestamp", "ticket_used", "too_many_clients",
    "unknown_provider", "unknown_request", "unsupported", "upstream_timeout",
    "upstream_unavailable",
    "not_a_subscription", "unknown_dead_letter", "spool_full", "spool_locked",
    "spool_unavailable",
    "cannot_sign", "no_gateway", "token_not_kept",
    "body_timeout", "circuit_open", "config_unavailable", "deactivated", "dispatch_failed",
    "ip_not_allowed", "not_active", "overloaded",
}  # fmt: skip


def test_every_code_is_provoked_or_belongs_to_a_later_part() -> None:
    provoked = PROVOKED.keys() | FAULTS.keys() | ELSEWHERE
    assert provoked | LATER.keys() == TITLES.keys()
    assert not provoked & LATER.keys()


@pytest.mark.parametrize("code", PROVOKED)
def test_a_code_is_provoked(code: str) -> None:
    async def steps() -> None:
        async with rig(**SHUT) as r:
            s = await Scene(r).prepared()
            status, how = PROVOKED[code]
            if isinstance(how, tuple):
                method, path, body, who, headers = (*how, *(b"{}", "admin", {})[len(how) - 2 :])
                told = await s.ask(method, path, body, who, **headers)
            else:
                told = await how(s)
            must_be_problem(told, status, code)

    virtually(steps)()


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_of_the_store_is_provoked(code: str) -> None:
    async def steps() -> None:
        status, fault = FAULTS[code]
        store = MemoryStore()
        store.executions = Away(store.executions, fault)
        async with rig(store, **SHUT) as r:
            s = await Scene(r).prepared()
            told = await s.ask("GET", "/api/executions/12")
            must_be_problem(told, status, code)
            assert b"select" not in told.body

    virtually(steps)()


@virtually
async def test_a_server_without_an_internal_token_says_so() -> None:
    async with rig(is_open=False) as r:
        s = await Scene(r).prepared()
        told = await s.ask("POST", "/api/internal/outbox/claim")
        must_be_problem(told, 503, "internal_token_unset")


async def test_headers_without_measure_are_refused_before_anybody_is_asked() -> None:
    async with rig(**SHUT) as r:
        socket = bound("127.0.0.1", 0)
        serving = listener(r.server.asgi)
        task = asyncio.create_task(serving.serve([socket]))
        await serving.heard.wait()
        reader, writer = await asyncio.open_connection(*socket.getsockname())
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\nx-long: " + b"x" * 40_000)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        serving.stop()
        await task
        assert head.startswith(b"HTTP/1.1 431 ")
        assert msgspec.json.decode(body)["code"] == "headers_too_large"


def must_be_problem(told: Told, status: int, code: str) -> None:
    """An answer is a problem of this kind, in the one form of all."""
    assert (told.status, told.code) == (status, code), told.body
    problem = msgspec.json.decode(told.body)
    headers = {name.decode(): value.decode() for name, value in told.headers}
    assert (problem["type"], problem["status"]) == (f"https://noetl.dev/e/{code}", status)
    assert problem["title"] == TITLES[code]
    assert problem["request_id"] == headers["x-request-id"]
    is_later = status in {429, 503} or code == "active_claim"
    assert ("retry-after" in headers) == (is_later or "retry_after" in problem)
    assert (headers.get("www-authenticate") == "Bearer") == (status == 401)
