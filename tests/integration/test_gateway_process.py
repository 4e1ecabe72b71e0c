"""The gateway on real sockets: what its listener refuses, and the whole process on a real bus."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager

import httpx
import pytest
import websockets

from noetl.api.identity import Login, NewAccount
from noetl.clock import SystemClock
from noetl.edge import http as edge_http
from noetl.edge.http import Sockets
from noetl.gateway.process import BOUNDS, MESSAGE_BYTES
from noetl.gateway.upstream import Upstream
from noetl.settings import child_environment
from tests.unit.gateway.rig import ADMIN, INTERNAL, PASSWORD, gateway_rig
from tests.unit.gateway.served import served
from tests.unit.server.rig import rig as server_rig

SOCKETS = Sockets(most_bytes=MESSAGE_BYTES, ping_s=30.0)


@asynccontextmanager
async def on_socket(**settings):
    """A gateway as a process has it, but for its bus and its server."""
    async with (
        gateway_rig(**settings) as rig,
        served(rig.gateway.asgi, bounds=BOUNDS, sockets=SOCKETS) as url,
    ):
        yield rig, url, int(url.rpartition(":")[2])


async def said(port: int, *parts: bytes) -> bytes:
    """What comes back until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(20):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def head_of(answer: bytes) -> tuple[bytes, dict]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"x-request-id: " in head.lower()
    return head.split(b"\r\n")[0], json.loads(body)


async def test_headers_that_are_too_many_or_too_large_are_refused():
    many = b"".join(b"X-Field-%d: 1\r\n" % number for number in range(101))
    large = b"X-Large: " + b"x" * (65 * 1024) + b"\r\n"
    fits = b"X-Large: " + b"x" * (60 * 1024) + b"\r\n"
    start = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    async with on_socket() as (_, _, port):
        for lines in (many, large):
            line, told = head_of(await said(port, start + lines + b"\r\n"))
            assert line.startswith(b"HTTP/1.1 431")
            assert (told["code"], told["status"]) == ("headers_too_large", 431)
        assert (await said(port, start + fits + b"\r\n")).startswith(b"HTTP/1.1 200")
        few = b"".join(b"X-Field-%d: 1\r\n" % number for number in range(98))
        assert (await said(port, start + few + b"\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_head_that_does_not_end_is_answered_408(monkeypatch):
    monkeypatch.setattr(edge_http, "HEAD_S", 0.2)
    async with on_socket() as (_, _, port):
        line, told = head_of(await said(port, b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: "))
        assert line.startswith(b"HTTP/1.1 408")
        assert told["code"] == "timeout"


async def test_a_body_that_comes_too_slowly_is_answered_408(monkeypatch):
    monkeypatch.setattr(edge_http, "LOOK_TICKS", 1)
    bounds = edge_http.Bounds(body_s=0.3)
    start = (
        b"POST /api/auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000\r\n\r\n{"
    )
    async with gateway_rig() as rig, served(rig.gateway.asgi, bounds=bounds) as url:
        line, told = head_of(await said(int(url.rpartition(":")[2]), start))
        assert line.startswith(b"HTTP/1.1 408")
        assert told["code"] == "timeout"


async def test_a_body_that_came_is_waited_for_no_longer_than_its_answer(monkeypatch):
    monkeypatch.setattr(edge_http, "LOOK_TICKS", 1)
    async with gateway_rig() as rig, served(
        rig.gateway.asgi, bounds=edge_http.Bounds(body_s=0.0, request_s=20)
    ) as url, httpx.AsyncClient() as http:  # fmt: skip
        answer = await http.post(f"{url}/api/auth/validate", json={"session_token": "nts_none"})
        assert answer.status_code == 200


async def test_a_socket_takes_messages_up_to_a_mebibyte():
    async with on_socket() as (rig, url, _):
        ann = await rig.login()
        address = url.replace("http", "ws") + "/ws"
        async with websockets.connect(address, additional_headers=ann.headers) as socket:
            await socket.send("x" * (2 * 1024 * 1024))
            async with asyncio.timeout(20):
                _ = [message async for message in _until_closed(socket)]
            assert socket.close_code == 1009


async def test_a_socket_nobody_offers_and_one_while_stopping_are_refused_before_the_upgrade():
    async with on_socket() as (rig, url, _):
        ann = await rig.login()
        address = url.replace("http", "ws")
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(f"{address}/nothing", additional_headers=ann.headers)
        assert refused.value.response.status_code in {403, 404}
        rig.gate.closing.set()
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(f"{address}/ws", additional_headers=ann.headers)
        assert refused.value.response.status_code == 503
        assert json.loads(refused.value.response.body)["code"] == "draining"


async def _until_closed(socket):
    try:
        while True:
            yield await socket.recv()
    except websockets.ConnectionClosed:
        return


class Process:
    """A gateway process and what it said."""

    def __init__(self, process, port):
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    async def ended(self) -> tuple[int, str]:
        async with asyncio.timeout(60):
            _, said = await self.process.communicate()
        return self.process.returncode, said.decode()


def free_port() -> int:
    with edge_http.bound("127.0.0.1", 0) as found:
        return found.getsockname()[1]


@asynccontextmanager
async def gateway_process(folder, **environ):
    port = free_port()
    env = child_environment() | {
        "GATEWAY_BIND": "127.0.0.1", "ROUTER_PORT": str(port), "NOETL_HOME": str(folder),
        "NOETL_INTERNAL_API_TOKEN": INTERNAL, **environ,
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "noetl.cli.app", "gateway", env=env, cwd=folder,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Process(process, port)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ready(http, gateway) -> dict:
    async with asyncio.timeout(60):
        while True:
            assert gateway.process.returncode is None
            try:
                answer = await http.get(f"{gateway.url}/ready")
                if answer.status_code == 200:
                    return answer.json()
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)


async def _lines_to(lines, wanted):
    async for line in lines:
        yield line
        if line == wanted:
            return


async def token_of(server) -> str:
    """The session of somebody new."""
    upstream = Upstream.over(server.server.asgi, INTERNAL, server.plane.parts.clock)
    account = NewAccount(
        subject="ann", email="ann@example.com", password=PASSWORD, roles=("viewer",)
    )
    await upstream.acting_for(ADMIN).add_user(account)
    made = await upstream.service().login(Login(email="ann@example.com", password=PASSWORD))
    return made.session_token


async def test_a_gateway_process_serves_and_ends_in_good_order(nats_server, tmp_path):
    async with (
        server_rig(
            is_open=False, internal_tokens=(INTERNAL,), password_kib=64, clock=SystemClock()
        ) as server,
        served(server.server.asgi) as behind,
        gateway_process(
            tmp_path, NOETL_SERVER_URL=behind, NOETL_NATS_URL=nats_server.url,
            GATEWAY_METRICS_BIND=f"127.0.0.1:{(metrics := free_port())}",
        ) as gateway,
        httpx.AsyncClient() as http,
    ):  # fmt: skip
        told = await ready(http, gateway)
        assert (told["nats"], told["kv"], told["server"]) == ("ok", "ok", "ok")
        assert (await http.get(f"{gateway.url}/health")).text == "ok"
        assert (await http.get(f"{gateway.url}/metrics")).status_code == 401
        shown = (await http.get(f"http://127.0.0.1:{metrics}/metrics")).text
        assert 'noetl_gateway_login_total{outcome="ok"} 0.0' in shown
        assert (await http.get(f"{gateway.url}/noetl/executions")).status_code == 401
        headers = {"authorization": f"Bearer {await token_of(server)}"}
        async with http.stream("GET", f"{gateway.url}/events", headers=headers) as stream:
            lines = stream.aiter_lines()
            async with asyncio.timeout(30):
                _ = [line async for line in _lines_to(lines, "event: init")]
                gateway.process.send_signal(signal.SIGTERM)
                rest = [line async for line in lines]
            assert any("server/draining" in line for line in rest)
        code, said_ = await gateway.ended()
        assert code == 0, said_
        assert "the gateway has ended" in said_
        assert "Traceback" not in said_
        assert INTERNAL not in said_


async def test_a_gateway_without_a_bus_does_not_start_and_can_be_stopped(tmp_path):
    async with gateway_process(
        tmp_path, NOETL_NATS_URL=f"nats://127.0.0.1:{free_port()}", NOETL_LOG_LEVEL="debug"
    ) as gateway:  # fmt: skip
        async with asyncio.timeout(60):
            while b"the gateway starts" not in await gateway.process.stderr.readline():
                assert gateway.process.returncode is None
        gateway.process.send_signal(signal.SIGTERM)
        code, _ = await gateway.ended()
        assert code == 0


@pytest.mark.parametrize("told", ["http://127.0.0.1:8090", "http://gateway:8090"])
async def test_a_gateway_for_others_says_that_their_playbooks_cannot_call_back(tmp_path, told):
    async with gateway_process(
        tmp_path, GATEWAY_BIND="192.0.2.1", NOETL_GATEWAY_URL=told, NOETL_NATS_URL="nats://nowhere",
    ) as gateway:  # fmt: skip
        code, said_ = await gateway.ended()
    lines = [json.loads(line) for line in said_.splitlines()]
    warned = [
        (line["gateway_url"], line["hint"]) for line in lines
        if line["event"] == "playbooks on other machines cannot call back"
    ]  # fmt: skip
    assert code == 1, said_  # nobody has that address
    hint = "set NOETL_GATEWAY_URL, or GATEWAY_PUBLIC_URL, to an address that workers reach"
    assert warned == ([(told, hint)] if "127.0.0.1" in told else [])
