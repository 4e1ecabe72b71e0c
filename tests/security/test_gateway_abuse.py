"""Abuse of the gateway over real sockets: refused as specified, and before any effect.

An effect is a run, a key of a bucket, a message of a client, an account: all of it is looked at
before and after.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import websockets

from noetl.edge import http as edge_http
from noetl.edge.http import Sockets
from noetl.edge.reading import MOST_BYTES
from noetl.gateway.person import Person
from noetl.gateway.process import BOUNDS, MESSAGE_BYTES
from noetl.secrets.signed import key_of, sign
from noetl.server.access.tokens import digest
from tests.unit.gateway.rig import gateway_rig
from tests.unit.gateway.served import served
from tests.unit.gateway.streaming import events
from tests.unit.server.rig import ONE_STEP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.gateway.rig import GatewayRig, Signed

WAIT_S = 20
CLIENT = "client-of-ann"
EVIL = "https://evil.example"
CALLBACKS = ("/api/internal/callback/async", "/api/internal/callback", "/api/internal/progress")
LONG_AGO = "2020-01-01T00:00:00.000000Z"
OWN = ("g.", "s.", "t.", "sweeper")
"""The gateway's own word, sessions that it remembers, tickets, who sweeps."""


@dataclass
class Stage:
    """A gateway on a socket; Ann has a client and a request, Eve has a session of her own."""

    rig: GatewayRig
    url: str
    ann: Signed
    eve: Signed
    request_id: str
    token: str
    """Of Ann's callback."""
    http: httpx.AsyncClient

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def state(self) -> object:
        """All that could have changed."""
        rig = self.rig
        keys = [
            (name, entry.revision)
            for bucket in (rig.bus.requests, rig.bus.sessions)
            for name in sorted(await bucket.names(""))
            if not name.startswith(OWN) and (entry := await bucket.get(name)) is not None
        ]
        runs = (await rig.admin.executions(limit=100)).items
        users = (await rig.admin.users()).items
        told = (await rig.bus.clients.after(CLIENT, 0)).messages
        return keys, [(one.execution_id, one.status) for one in runs], len(users), len(told)

    @asynccontextmanager
    async def untouched(self) -> AsyncIterator[None]:
        """Nothing of it happens inside of the block."""
        before = await self.state()
        yield
        assert await self.state() == before

    async def post(
        self, path: str, body: Any, who: Signed | None, **headers: str
    ) -> httpx.Response:
        """A call of somebody."""
        sent = {**(who.headers if who else {}), **_named(headers)}
        if isinstance(body, bytes):
            sent.setdefault("content-type", "application/json")
            return await self.http.post(f"{self.url}{path}", content=body, headers=sent)
        return await self.http.post(f"{self.url}{path}", json=body, headers=sent)

    async def upgraded(self, path: str, **given: Any) -> int:
        """The status of an upgrade."""
        try:
            async with websockets.connect(f"{self.url.replace('http', 'ws', 1)}{path}", **given):
                return 101
        except websockets.InvalidStatus as refusal:
            return refusal.response.status_code


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def call(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


RUN = call("playbook/execute", name="demo/it")


async def _heard(rig: GatewayRig) -> None:
    """Let the gateway hear of the runs."""
    async with asyncio.TaskGroup() as tasks:
        await rig.gate.requests.feeding.take(0.5, tasks)


async def _started(rig: GatewayRig, who: Signed, client_id: str) -> tuple[str, str]:
    """A request for a client, and the token of its callback."""
    body = call("playbook/execute", name="demo/it", clientId=client_id)
    made = json.loads((await rig.caller(who).post("/rpc", body)).body)["result"]
    secrets = rig.server.plane.runs.inputs._secrets  # noqa: SLF001 - as a worker is given them
    found = await secrets.of("default", made["executionId"])
    return made["requestId"], str(found["callback_token"])


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    sockets = Sockets(most_bytes=MESSAGE_BYTES, ping_s=30.0)
    async with (
        gateway_rig() as rig,
        served(rig.gateway.asgi, bounds=BOUNDS, sockets=sockets) as url,
        httpx.AsyncClient(timeout=WAIT_S) as http,
    ):
        await rig.playbook(ONE_STEP)
        ann, eve = await rig.login("ann", "developer"), await rig.login("eve", "developer")
        async with events(rig.gateway.asgi, ann.headers, client_id=CLIENT):
            request_id, token = await _started(rig, ann, CLIENT)
            await _heard(rig)
            yield Stage(rig, url, ann, eve, request_id, token, http)


def origins(port: int) -> list[str]:
    return [
        EVIL, "null", f"http://127.0.0.1:{port}.evil.example", f"https://127.0.0.1:{port}",
        f"http://evil.example#http://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}",
    ]  # fmt: skip


async def test_a_page_of_somebody_else_neither_calls_nor_connects(stage: Stage) -> None:
    cookie = {"cookie": f"noetl_session={stage.ann.token}"}
    async with stage.untouched():
        for origin in origins(stage.port):
            for path in ("/rpc", "/graphql", "/noetl/execute", "/api/tokens"):
                answer = await stage.post(path, RUN, None, origin=origin, **cookie)
                assert answer.status_code == 403, (origin, path, answer.text)
                assert "access-control-allow-origin" not in answer.headers
            assert (await stage.post("/mcp", RUN, stage.ann, origin=origin)).status_code == 403
            for path in ("/ws", "/graphql"):
                kinds = {"subprotocols": ["graphql-transport-ws"]} if path == "/graphql" else {}
                for headers in (cookie, stage.ann.headers):
                    told = await stage.upgraded(
                        path, origin=origin, additional_headers=headers, **kinds
                    )
                    assert told == 403, (origin, path)
        answer = await stage.post("/rpc", RUN, None, **cookie)
        assert answer.status_code == 403  # without any origin, too


async def test_23_a_client_id_of_somebody_else_opens_nothing(stage: Stage) -> None:
    graphql = f'mutation {{ executePlaybook(name: "demo/it", clientId: "{CLIENT}") {{ id }} }}'
    async with stage.untouched():
        answer = await stage.http.get(
            f"{stage.url}/events", params={"client_id": CLIENT}, headers=stage.eve.headers
        )
        assert (answer.status_code, answer.json()["code"]) == (403, "client_not_yours")
        for body in (
            call("playbook/execute", name="demo/it", clientId=CLIENT),
            call("initialize", clientId=CLIENT),
            call("subscribe", clientId=CLIENT, executionIds=[], channels=["state"]),
        ):
            answer = await stage.post("/rpc", body, stage.eve)
            assert answer.json()["error"]["code"] == -32003, (body, answer.text)
        told = (await stage.post("/graphql", {"query": graphql}, stage.eve)).json()
        assert told["errors"][0]["extensions"]["code"] == "FORBIDDEN"
        url = f"{stage.url.replace('http', 'ws', 1)}/ws"
        async with websockets.connect(url, additional_headers=stage.eve.headers) as ws:
            await ws.send(json.dumps(call("initialize", clientId=CLIENT)))
            assert json.loads(await ws.recv())["error"]["code"] == -32003
            with pytest.raises(websockets.ConnectionClosed):
                await ws.recv()
            assert ws.close_code == 4403


async def test_a_forged_callback_ends_nothing(stage: Stage) -> None:
    async with events(stage.rig.gateway.asgi, stage.eve.headers, client_id="client-of-eve"):
        _, own = await _started(stage.rig, stage.eve, "client-of-eve")
        await _heard(stage.rig)
        body = {"request_id": stage.request_id, "status": "COMPLETED", "data": {"by": "eve"}}
        async with stage.untouched():
            for path in CALLBACKS:
                is_end = not path.endswith("progress")
                sent = body if is_end else {"request_id": stage.request_id}
                assert (await stage.post(path, sent, None)).status_code == 401
                assert (await stage.post(path, sent, stage.eve)).status_code == 401
                for token in ("x", own, stage.token[:-1], stage.token.swapcase(), "' or 1=1"):
                    answer = await stage.post(path, sent, None, x_noetl_callback_token=token)
                    assert answer.status_code == 403, (path, answer.text)
                    answer = await stage.post(path, {**sent, "callback_token": token}, None)
                    assert answer.status_code == 403, (path, answer.text)
                bad = {**sent, "execution_id": "12345"}
                answer = await stage.post(path, bad, None, x_noetl_callback_token=stage.token)
                assert answer.status_code == 409
    good = await stage.post(
        "/api/internal/callback/async", {**body, "data": 1}, None,
        x_noetl_callback_token=stage.token,
    )  # fmt: skip
    assert good.json() == {"status": "delivered"}


async def test_a_ticket_opens_once_what_it_is_for(stage: Stage) -> None:
    async def ticket(purpose: str) -> str:
        told = await stage.post("/api/auth/ticket", {"purpose": purpose}, stage.eve)
        return str(told.json()["ticket"])

    async def opened(text: str) -> int:
        asked = {"ticket": text, "client_id": "client-of-eve"}
        async with stage.http.stream("GET", f"{stage.url}/events", params=asked) as got:
            return got.status_code

    presence = stage.rig.gate.hub.presence
    first = await ticket("events")
    assert await opened(first) == 200
    async with asyncio.timeout(WAIT_S):
        while (await presence.of("client-of-eve")).replica:  # noqa: ASYNC110 - until she has left
            await asyncio.sleep(0.01)
    async with stage.untouched():
        wrong = [first, await ticket("ws"), await ticket("graphql"), "x" * 43]
        fresh = await ticket("events")
        wrong += [fresh[:-1], fresh.swapcase(), f"{fresh} "]
        for text in wrong:
            assert await opened(text) == 401, text
        for path in ("/rpc", "/api/auth/whoami", "/noetl/executions", "/api/requests"):
            answer = await stage.http.get(
                f"{stage.url}{path}", params={"ticket": await ticket("events")}
            )
            assert answer.status_code in {401, 405}, path
        last = await ticket("ws")
        await stage.post("/api/auth/logout", None, stage.eve)
        assert await stage.upgraded(f"/ws?ticket={last}") == 401


async def test_a_session_that_is_over_opens_nothing_though_it_is_remembered(stage: Stage) -> None:
    rig, eve = stage.rig, stage.eve
    name = digest(eve.token)
    assert (await rig.caller(eve).get("/api/auth/whoami")).status == 200
    key = f"s.{name}"
    entry = await rig.bus.sessions.get(key)
    assert entry is not None
    kept = {**json.loads(entry.value), "expires_at": LONG_AGO}
    await rig.bus.sessions.put(key, json.dumps(kept).encode())
    rig.gate.sessions._near.drop(name)  # noqa: SLF001 - a second has passed
    async with stage.untouched():
        for path in ("/rpc", "/graphql", "/mcp", "/noetl/execute", "/api/tokens"):
            answer = await stage.post(path, RUN, eve)
            assert answer.status_code == 401, path
        for path in ("/events", "/ws"):
            answer = await stage.http.get(f"{stage.url}{path}", headers=eve.headers)
            assert answer.status_code in {401, 404}, path
        assert await stage.upgraded("/ws", additional_headers=eve.headers) == 401


async def test_what_is_too_large_is_refused_before_it_is_read(stage: Stage) -> None:
    name = "demo/it"
    large = json.dumps(
        call("playbook/execute", name=name, variables={"x": "y" * (MOST_BYTES + 65_536)})
    )
    callback = {"request_id": stage.request_id, "data": "y" * (9 << 20)}

    async def in_parts(path: str, most: int) -> bytes:
        """A body whose length nobody has said; just so much that it is too much."""
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
        try:
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stage.eve.token}\r\n"
                "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
            )
            for start in range(0, most + 65_536, 65_536):
                writer.write(b"10000\r\n%b\r\n" % large[start : start + 65_536].encode())
                await writer.drain()
            async with asyncio.timeout(WAIT_S):
                return await reader.readline()
        finally:
            writer.close()

    async with stage.untouched():
        for path, status, most in (
            ("/rpc", 413, 1 << 20), ("/graphql", 400, 1 << 20), ("/mcp", 413, MOST_BYTES),
        ):  # fmt: skip
            answer = await stage.post(path, large.encode(), stage.eve)
            assert answer.status_code == status, (path, answer.text)
            assert (await in_parts(path, most)).startswith(b"HTTP/1.1 %d" % status), path
        answer = await stage.post(
            "/api/internal/callback/async", callback, None, x_noetl_callback_token=stage.token
        )
        assert answer.status_code == 413
        url = f"{stage.url.replace('http', 'ws', 1)}/ws"
        async with websockets.connect(url, additional_headers=stage.eve.headers) as ws:
            await ws.send(large)
            with pytest.raises(websockets.ConnectionClosed):
                await ws.recv()
            assert ws.close_code == 1009


ONE = 'executePlaybook(name: "demo/it") { id }'
BOMBS = {
    "roots": "mutation {" + " ".join(f"a{n}: {ONE}" for n in range(11)) + "}",
    "aliases": "mutation {" + " ".join(f"a{n}: {ONE}" for n in range(16)) + "}",
    "depth": f"mutation {{ {ONE} }} query Q " + "{a" * 11 + "}" * 11,
    "cycle": f"mutation {{ {ONE} ...a }} fragment a on Mutation {{ ...b }} "
    "fragment b on Mutation { ...a }",
    "tokens": f"mutation {{ {ONE} }} #\n" + "fragment f on Query { health } " * 400,
    "nested values": 'mutation { executePlaybook(name: "demo/it", variables: '
    + "[" * 3000
    + "]" * 3000
    + ") { id } }",
    "directives": "mutation { " + ONE.replace("{ id", "@skip(if: false) " * 1000 + "{ id") + " }",
}


@pytest.mark.parametrize("name", sorted(BOMBS))
async def test_31_a_bomb_of_graphql_runs_nothing(stage: Stage, name: str) -> None:
    async with stage.untouched():
        for body in ({"query": BOMBS[name]}, [{"query": BOMBS[name]}]):
            answer = await stage.post("/graphql", body, stage.eve)
            assert answer.status_code == 400, (name, answer.status_code, answer.text[:300])


async def test_heads_that_never_end_keep_nobody_waiting(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_http, "HEAD_S", 0.5)
    opened = [await asyncio.open_connection("127.0.0.1", stage.port) for _ in range(100)]
    try:
        for _, writer in opened:
            writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n")
        answer = await stage.http.get(f"{stage.url}/health")
        assert answer.status_code == 200
        async with asyncio.timeout(WAIT_S):
            told = await asyncio.gather(*(reader.read() for reader, _ in opened))
        assert {one[:12] for one in told} == {b"HTTP/1.1 408"}
    finally:
        for _, writer in opened:
            writer.close()


async def test_a_head_that_is_too_large_is_431_before_anybody_is_asked(stage: Stage) -> None:
    async with stage.untouched():
        many = {f"x-{number}": "1" for number in range(101)}
        for headers in (many, {"x-large": "x" * 66_000}, {"cookie": "a=" + "b" * 66_000}):
            answer = await stage.post("/rpc", RUN, stage.eve, **headers)
            assert (answer.status_code, answer.json()["code"]) == (431, "headers_too_large")


@pytest.mark.parametrize(
    "head",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 0x5\r\n",
    ],
    ids=["both", "two lengths", "two encodings", "space", "sign", "hexadecimal"],
)
async def test_no_request_hides_behind_another(stage: Stage, head: str) -> None:
    body = json.dumps(RUN)
    hidden = (
        f"POST /rpc HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {stage.eve.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )
    text = f"POST /health HTTP/1.1\r\nHost: x\r\n{head}\r\n0\r\n\r\n{hidden}"
    async with stage.untouched():
        reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
        try:
            writer.write(text.encode())
            async with asyncio.timeout(WAIT_S):
                told = await reader.read()
        finally:
            writer.close()
        assert told[:12] == b"HTTP/1.1 400", told[:300]
        assert told.count(b"HTTP/1.1 ") == 1


async def test_03_forged_headers_have_no_effect(stage: Stage) -> None:
    rig = stage.rig
    viewer = await rig.login("vic", "viewer")
    root = Person(user_id="1", subject="root", roles=("admin",)).claims()
    now = rig.gate.clock.now().timestamp()
    forged = {
        "X-NoETL-Identity": sign(root, key_of("another token"), now, "j"),
        "X-NoETL-User": "root", "X-NoETL-Roles": "admin", "X-User-Id": "1",
        "X-User-Roles": "admin", "X-Session-Id": stage.ann.session_id,
        "X-Forwarded-For": "10.9.8.7", "X-Forwarded-User": "root", "Forwarded": "for=10.9.8.7",
        "X-Real-Ip": "10.9.8.7",
    }  # fmt: skip
    genuine = rig.gate.upstream.headers_for(Person(user_id="1", subject="root", roles=("admin",)))
    real = {**forged, "X-NoETL-Identity": genuine["x-noetl-identity"]}
    async with stage.untouched():
        for headers in (forged, real):
            sent = {**viewer.headers, **headers}
            told = await stage.http.get(f"{stage.url}/noetl/auth/whoami", headers=sent)
            assert (told.json()["account"], told.json()["roles"]) == ("vic", ["viewer"])
            answer = await stage.http.get(f"{stage.url}/api/users", headers=sent)
            assert answer.status_code == 403
            answer = await stage.http.get(f"{stage.url}/api/users", headers=headers)
            assert answer.status_code == 401
