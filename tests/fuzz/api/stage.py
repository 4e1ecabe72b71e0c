"""A server with something of everything in it, so that random requests hit something."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from noetl.api.http import AsgiTransport
from noetl.secrets.sealed import KeyPair
from noetl.server.access.tokens import digest, new_token
from noetl.store.identity import TokenRow
from tests.unit.server.rig import Rig, rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

INNER = "the-internal-token"
SHUT = {"is_open": False, "internal_tokens": (INNER,), "password_kib": 64}
STREAM_S = 0.5
PLAYBOOK = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: demo, path: demo/it}
workload: {n: 1, region: eu}
workflow:
  - step: start
    tool: {kind: python, code: "return 1"}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: python, code: "return 2"}
"""
SUBSCRIPTION = """apiVersion: noetl.io/v1
kind: Subscription
metadata: {name: listens, path: demo/listens}
spec:
  source: nats
  mode: pull
  url: nats://127.0.0.1:4222
  stream: S
  consumer: c
  dispatch: {playbook: demo/it}
"""
PUSHED = """apiVersion: noetl.io/v1
kind: Subscription
metadata: {name: hears, path: demo/hears}
spec:
  source: webhook
  mode: push
  ingress: {gateway_path: /ingress/hears, keep_rejected: true, verify: {type: github, secret: hook}}
  dispatch: {playbook: demo/it}
"""


@dataclass
class Answer:
    """What came back, as far as it was read."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Stage:
    """A server, who asks it, and the names that it knows."""

    rig: Rig
    admin: str
    gateway: str
    names: dict[str, list[str]] = field(default_factory=dict)

    def bearer(self, permission: str) -> str:
        """Of somebody who has a permission."""
        return {"internal": INNER, "auth:session": self.gateway}.get(permission, self.admin)

    async def ask(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> Answer:
        """One request; of a stream only the beginning is read."""
        path, _, query = target.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
            "scheme": "http", "path": unquote(path, errors="replace"),
            "raw_path": path.encode("ascii"),
            "query_string": query.encode("ascii"), "root_path": "", "server": ("noetl", 80),
            "client": ("127.0.0.1", 1),
            "headers": [
                (name.lower().encode("latin-1"), value.encode("latin-1"))
                for name, value in headers.items()
            ],
        }  # fmt: skip
        head: dict[str, Any] = {}
        parts: list[bytes] = []
        given = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> dict[str, Any]:
            for message in given:
                return message
            await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                head.update(message)
            else:
                parts.append(message.get("body", b""))

        try:
            async with asyncio.timeout(STREAM_S):
                await self.rig.server.asgi(scope, receive, send)
        except TimeoutError:
            told = dict(head.get("headers", ())).get(b"content-type", b"")
            if not told.startswith(b"text/event-stream"):
                raise
        return Answer(
            head["status"],
            {name.decode().lower(): value.decode("latin-1") for name, value in head["headers"]},
            b"".join(parts),
        )


@asynccontextmanager
async def stage(**more: Any) -> AsyncIterator[Stage]:
    """A server on memory parts, with its things."""
    async with rig(**{**SHUT, **more}) as r:
        yield await furnished(r)


async def furnished(r: Rig) -> Stage:
    """Put something of everything into a server."""
    made = Stage(r, await _token(r, "admin"), await _token(r, "gateway"))
    names = made.names

    async def call(method: str, path: str, body: Any = None, bearer: str = "") -> Any:
        headers = {"authorization": f"Bearer {bearer or made.admin}"}
        data = b"" if body is None else msgspec.json.encode(body)
        answer = await AsgiTransport(r.server.asgi).request(method, path, data, headers)
        assert answer.status < 300, (method, path, answer)
        return msgspec.json.decode(answer.body) if answer.body else None

    kept = await call("POST", "/api/catalog/register", {"content": PLAYBOOK})
    more = PLAYBOOK.replace("n: 1", "n: 2")
    await call("POST", "/api/catalog/register", {"content": more})
    names["path"] = ["demo/it", "demo/it@1", "demo"]
    names["catalog_id"] = [kept["catalog_id"]]
    wish = {"path": "demo/it"}
    runs = [(await call("POST", "/api/execute", wish))["execution_id"] for _ in range(4)]
    await _worked(r, call)
    await call("POST", f"/api/executions/{runs[1]}/pause", {})
    await call("POST", f"/api/executions/{runs[2]}/cancel", {})
    names["execution_id"] = runs
    log = await call("GET", f"/api/executions/{runs[0]}/events")
    names["event_id"] = [row["event_id"] for row in log["items"]]
    names["command_id"] = names["event_id"]
    names["step"] = ["start", "end", "end/x"]
    wanted = {"variables": [{"var_name": "a", "var_value": {"b": [1]}}]}
    await call("POST", f"/api/vars/{runs[0]}", wanted)
    names["var_name"] = ["a", "b/c"]
    stored = await call("PUT", f"/api/result/{runs[0]}", {"name": "big", "data": [1, 2]})
    names["ref"] = [stored["ref"]]
    table = {"name": "daily", "path": "demo/it", "cron": "0 3 * * *"}
    await call("POST", "/api/catalog/register", {"content": SUBSCRIPTION})
    listened = await call("POST", "/api/subscriptions/register", {"path": "demo/listens"})
    names["subscription_id"] = [listened["subscription_id"]]
    await _delivered(made, call, runs[0])
    names["schedule_id"] = [(await call("POST", "/api/schedules", table))["schedule_id"]]
    await _people(made, call)
    await call("PUT", "/api/internal/objects/a/b", "bytes", INNER)
    await call("PUT", "/api/internal/requests/q-1/result", {"x": 1}, INNER)
    names |= {
        "key": ["a/b", "a"], "request_id": ["q-1"], "kind": ["Playbook", "python", "worker_pool"],
        "action": ["activate", "pause"],
        "pool": ["shared"], "name": ["mine", "viewer", "w"], "worker_id": ["w"],
        "topics": ["executions", "pools,catalog"], "content": [PLAYBOOK, more, "a: [", "{}"],
        "playbook_path": ["demo/it"], "from": ["1"], "to": ["2"], "version": ["1", "latest"],
    }  # fmt: skip
    return made


async def _token(r: Rig, role: str) -> str:
    text = new_token()
    await r.store.tokens.put(
        TokenRow(
            token_id=r.ids.new(), sha256=digest(text), account=f"the {role}", roles=(role,),
            tenant_id="default",
        )
    )  # fmt: skip
    return text


async def _delivered(made: Stage, call: Any, run: str) -> None:
    """A subscription that is pushed to, a gateway that takes its deliveries, and one of those."""
    await call("POST", "/api/catalog/register", {"content": PUSHED})
    pushed = await call("POST", "/api/subscriptions/register", {"path": "demo/hears"})
    entry = {
        "name": "gate-1", "component_type": "gateway", "uri": "http://gate",
        "runtime": {"worker_public_key": KeyPair.make().public},
    }  # fmt: skip
    await call("POST", "/api/runtime/register", entry, INNER)
    item = {
        "delivery_id": "4711", "at": "2026-01-01T00:00:00Z", "outcome": "accepted",
        "execution_id": run,
    }  # fmt: skip
    path = f"/api/subscriptions/{pushed['subscription_id']}/deliveries"
    await call("POST", path, {"items": [item]}, INNER)
    made.names["subscription_id"].append(pushed["subscription_id"])
    made.names |= {"delivery_id": ["4711"], "listener": ["hears"], "process": ["gate-1"]}
    for name, type_, data in (
        ("idp/corp", "oauth2", {"client_id": "noetl", "client_secret": "secret-of-corp"}),
        ("other", "secret", {"value": "of-another-type"}),
    ):
        await call("POST", "/api/credentials", {"name": name, "type": type_, "data": data})
    made.names |= {"alias": ["idp/corp", "other"], "provider": ["corp"]}


async def _worked(r: Rig, call: Any) -> None:
    """A worker does the first step of one run, and writes a line."""
    worker = {"name": "w", "labels": {"pool": "shared"}, "capacity": 4}
    await call("POST", "/api/worker/pool/register", worker)
    claim = {"worker_id": "w", "pool": "shared", "free_slots": 1}
    (command,) = (await call("POST", "/api/commands/claim", claim))["claimed"]
    about = {
        "execution_id": command["execution_id"], "command_id": command["command_id"],
        "attempt": command["attempt"],
    }  # fmt: skip
    done = [
        {**about, "event_id": r.ids.new(), "event_type": "command.started", "step": "start"},
        {**about, "event_id": r.ids.new(), "event_type": "call.done", "step": "start",
         "payload": {"result": {"x": 1}}},
    ]  # fmt: skip
    await call("POST", "/api/events/batch", {"worker_id": "w", "pool": "shared", "events": done})
    line = {**about, "n": 1, "ts": "2026-01-01T00:00:00Z", "text": "hello", "step": "start"}
    await call("POST", "/api/logs/batch", {"entries": [line]})


async def _people(made: Stage, call: Any) -> None:
    account = {"subject": "bob", "password": "long enough to be one", "roles": ["viewer"]}
    bob = await call("POST", "/api/users", account)
    made.names["account_id"] = [bob["account_id"]]
    await call("POST", "/api/roles", {"name": "mine", "permissions": ["catalog:read"]})
    token = {"name": "t", "account_id": bob["account_id"]}
    made.names["token_id"] = [(await call("POST", "/api/tokens", token))["token_id"]]
    login = {"username": "bob", "password": account["password"]}
    signed = await call("POST", "/api/auth/login", login, made.gateway)
    made.names["session_id"] = [signed["session_id"]]
    made.names["session_token"] = [signed["session_token"]]
