"""The proxy over sockets: streams both ways, failures of the server, connections used again."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from hashlib import sha256

import pytest

from noetl.api.http import Asked, NoAnswer
from noetl.api.sockets import SocketTransport
from noetl.api.sse import parsed
from noetl.gateway.shards import Shards
from noetl.gateway.upstream import Upstream
from tests.unit.gateway.rig import INTERNAL, gateway_rig
from tests.unit.gateway.served import served
from tests.unit.server.rig import ONE_STEP

MIB = 1 << 20


class Behind:
    """The server, and paths of `/api/x/` that a test answers itself; notes when it sent what."""

    def __init__(self):
        self.app = None
        self.answers = {}
        self.sent_at = {}
        self.connections = set()

    async def __call__(self, scope, receive, send):
        async def noting(message):
            if message["type"] == "http.response.body":
                loop = asyncio.get_running_loop()
                self.sent_at.setdefault(scope["path"], loop.time())
            await send(message)

        self.connections.add(scope["client"])
        answer = self.answers.get(scope["path"], self.app)
        await answer(scope, receive, noting)


@asynccontextmanager
async def stood(**settings):
    """A server and a gateway on sockets, and somebody's way to the gateway."""
    behind = Behind()
    async with gateway_rig(**settings) as rig, served(behind) as server_url:
        behind.app = rig.server.server.asgi
        gate = rig.gate
        upstream = Upstream.to(server_url, INTERNAL, gate.clock, shards=Shards())
        before, gate.upstream._ways = gate.upstream._ways, upstream._ways  # noqa: SLF001 - sockets in the place of none
        async with served(rig.gateway.asgi) as url:
            who = await rig.login()
            way = SocketTransport(url, token=who.token, timeout_s=30)
            try:
                async with asyncio.timeout(60):
                    yield rig, behind, way
            finally:
                await way.close()
        gate.upstream._ways = before  # noqa: SLF001 - as above
        await upstream.close()


async def drained(receive):
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    return size


async def whole(exchange):
    try:
        return b"".join([part async for part in exchange.parts()])
    finally:
        await exchange.close()


async def _after(first, rest):
    yield first
    async for part in rest:
        yield part


def code(body):
    return json.loads(body)["code"]


async def test_an_event_stream_passes_within_50_ms_of_the_servers_first_byte():
    async with stood() as (rig, behind, way):
        await rig.playbook(ONE_STEP)
        took = []
        for _ in range(5):
            started = await way.request("POST", "/noetl/execute", b'{"path": "demo/it"}')
            run = json.loads(started.body)["execution_id"]
            path = f"executions/{run}/events/stream"
            exchange = await way.exchange(Asked(method="GET", path=f"/noetl/{path}"))
            parts = exchange.parts()
            first = await anext(parts)
            took.append(asyncio.get_running_loop().time() - behind.sent_at[f"/api/{path}"])
            told = parsed(_after(first, parts))
            assert (await anext(told))["data"]["event_type"] == "playbook.started"
            await exchange.close()
        assert min(took) <= 0.05, took


async def test_large_values_go_up_and_come_down_as_they_are():
    async with stood() as (_, behind, way):
        part = bytes(range(256)) * 4096
        seen = sha256()

        async def swallow(_scope, receive, send):
            more = True
            while more:
                message = await receive()
                seen.update(message.get("body", b""))
                more = message.get("more_body", False)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            for _ in range(40):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})

        behind.answers["/api/result/7"] = swallow
        wanted = sha256(part * 40).hexdigest()
        for size in (None, 40 * MIB):

            async def body():
                for _ in range(40):
                    yield part

            asked = Asked(method="PUT", path="/noetl/result/7", body=body(), size=size)
            exchange = await way.exchange(asked)
            assert exchange.status == 200
            assert sha256(await whole(exchange)).hexdigest() == wanted
            assert seen.hexdigest() == wanted
            seen = sha256()


async def test_a_slow_reader_holds_the_server_back():
    async with stood() as (_, behind, way):
        sent = 0
        gone = asyncio.Event()

        async def endless(_scope, _receive, send):
            nonlocal sent
            try:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                while True:
                    await send(
                        {"type": "http.response.body", "body": bytes(MIB), "more_body": True}
                    )
                    sent += 1
            finally:
                gone.set()

        behind.answers["/api/x"] = endless
        exchange = await way.exchange(Asked(method="GET", path="/noetl/x"))
        before = -1
        while before != sent:  # until nothing moves any more
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 64
        await exchange.close()
        await gone.wait()  # the server learns that nobody reads


async def test_a_caller_who_leaves_ends_the_servers_work():
    async with stood() as (_, behind, way):
        begun, gone = asyncio.Event(), asyncio.Event()

        async def never(_scope, _receive, send):
            try:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b": hi\n\n", "more_body": True})
                begun.set()
                await asyncio.Event().wait()
            finally:
                gone.set()

        behind.answers["/api/x"] = never
        exchange = await way.exchange(Asked(method="GET", path="/noetl/x"))
        assert await anext(exchange.parts()) == b": hi\n\n"
        await begun.wait()
        await exchange.close()
        await gone.wait()


async def test_an_answer_that_breaks_off_breaks_off_here_too():
    async with stood() as (_, behind, way):

        async def broken(_scope, _receive, send):
            headers = [(b"content-length", b"100")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})

        behind.answers["/api/x"] = broken
        exchange = await way.exchange(Asked(method="GET", path="/noetl/x"))
        with pytest.raises(NoAnswer):
            await whole(exchange)


async def test_too_large_is_413_while_it_comes():
    async with stood() as (_, behind, way):

        async def swallow(_scope, receive, send):
            await drained(receive)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        async def body():
            for _ in range(11):
                yield bytes(MIB)

        behind.answers["/api/x"] = swallow
        exchange = await way.exchange(Asked(method="POST", path="/noetl/x", body=body()))
        assert (exchange.status, code(await whole(exchange))) == (413, "body_too_large")
        again = await way.request("POST", "/noetl/x", b"small")
        assert again.status == 200


async def test_a_slow_server_is_504_and_one_that_is_away_is_502():
    async with stood(timeout_s=1) as (rig, behind, way):

        async def silent(_scope, _receive, _send):
            await asyncio.Event().wait()

        behind.answers["/api/x"] = silent
        answer = await way.request("GET", "/noetl/x")
        assert (answer.status, code(answer.body)) == (504, "upstream_timeout")
        rig.gate.upstream._ways = (SocketTransport("http://127.0.0.1:1"),)  # noqa: SLF001 - nobody listens there
        answer = await way.request("GET", "/noetl/x")
        assert (answer.status, code(answer.body)) == (502, "upstream_unreachable")


async def test_connections_to_the_server_are_used_again():
    async with stood() as (_, behind, way):
        for _ in range(20):
            assert (await way.request("GET", "/noetl/executions")).status == 200
        await whole(await way.exchange(Asked(method="GET", path="/noetl/executions")))
        assert len(behind.connections) <= 2
