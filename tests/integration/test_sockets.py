"""The transport over sockets against a real HTTP server, on both event loops, with TLS too."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess

import pytest
import uvicorn
import uvloop

from noetl.api.http import NoAnswer
from noetl.api.sockets import SocketTransport
from tests.reliability.wire import Wire

OPENSSL = shutil.which("openssl")


async def app(scope, receive, send):
    """Echo a body; `/stream` sends three parts; `/never` sends nothing."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if scope["path"] == "/never":
        await receive()
        return
    start = {"type": "http.response.start", "status": 200, "headers": []}
    await send(start)
    if scope["path"] == "/stream":
        for part in (b"one", b"two", b"three"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        body = b""
    await send({"type": "http.response.body", "body": body})


class Site:
    """One uvicorn inside the loop of a test."""

    def __init__(self, **more):
        self.config = uvicorn.Config(
            app, host="127.0.0.1", port=0, lifespan="off", log_config=None, ws="none",
            http="httptools", timeout_graceful_shutdown=1, **more,
        )  # fmt: skip
        self.server = uvicorn.Server(self.config)

    async def __aenter__(self):
        self.config.load()
        self.server.lifespan = self.config.lifespan_class(self.config)
        await self.server.startup()
        self.port = self.server.servers[0].sockets[0].getsockname()[1]
        self.task = asyncio.create_task(self.server.main_loop())
        return self

    async def __aexit__(self, *_):
        self.server.should_exit = True
        await self.task
        await self.server.shutdown()


async def conversation():
    async with Site() as site:
        transport = SocketTransport(f"http://127.0.0.1:{site.port}")
        try:
            large = bytes(range(256)) * 20_000
            bodies = [b"", b"small", large]
            found = [(await transport.request("POST", "/", body)).body for body in bodies]
            many = await asyncio.gather(
                *(transport.request("POST", "/", b"%d" % n) for n in range(100))
            )
            async with transport.stream("/stream") as (status, parts):
                streamed = b"".join([part async for part in parts])
            with pytest.raises(NoAnswer):
                await transport.request("GET", "/never", timeout_s=0.1)
        finally:
            await transport.close()
    assert found == bodies
    assert [answer.body for answer in many] == [b"%d" % n for n in range(100)]
    assert (status, streamed) == (200, b"onetwothree")


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_conversation(loop):
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(conversation())


async def test_a_server_that_comes_back_is_found_again():
    async with Site() as site:
        transport = SocketTransport(f"http://127.0.0.1:{site.port}")
        await transport.request("GET", "/")
    with pytest.raises(NoAnswer):
        await transport.request("GET", "/")
    await transport.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_tls(loop, tmp_path):
    if OPENSSL is None:
        pytest.skip("openssl makes the certificate")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        [OPENSSL, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-keyout", key, "-out", cert, "-days", "1", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip

    async def talk():
        async with Site(ssl_keyfile=str(key), ssl_certfile=str(cert)) as site:
            url = f"https://localhost:{site.port}"
            transport = SocketTransport(url, tls=ssl.create_default_context(cafile=str(cert)))
            answers = [await transport.request("POST", "/", b"x" * 100_000) for _ in range(3)]
            await transport.close()
            stranger = SocketTransport(url)
            with pytest.raises(NoAnswer, match="certificate"):
                await stranger.request("GET", "/")
            await stranger.close()
            return [len(answer.body) for answer in answers]

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(talk()) == [100_000] * 3


async def test_connections_that_were_lost_without_a_word_cost_one_request():
    async with Site() as site, Wire(site.port).open() as wire:
        transport = SocketTransport(f"http://127.0.0.1:{wire.port}", timeout_s=0.5)
        await asyncio.gather(*(transport.request("POST", "/", b"x") for _ in range(4)))
        assert wire.lines == 4
        wire.forsake()
        with pytest.raises(NoAnswer):
            await transport.request("POST", "/", b"x")
        assert (await transport.request("POST", "/", b"x")).body == b"x"
        await transport.close()
