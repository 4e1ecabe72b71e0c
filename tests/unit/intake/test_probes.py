from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from noetl.intake.probes import probe


@asynccontextmanager
async def serving(talk):
    """A server that talks to each connection."""

    async def connected(reader, writer):
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def http(status):
    async def talk(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} Word\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()

    return talk


def nats(answer):
    async def talk(reader, writer):
        writer.write(b'INFO {"server_id":"x"}\r\n')
        await reader.readuntil(b"PING\r\n")
        writer.write(answer)
        await writer.drain()

    return talk


async def silent(reader, _writer):
    await reader.read()


@pytest.mark.parametrize(
    ("status", "fault"),
    [(200, None), (301, None), (401, None), (404, None), (499, None), (500, "it answers 500"),
     (503, "it answers 503")],
)  # fmt: skip
async def test_over_http_any_status_below_500_is_up(status, fault):
    async with serving(http(status)) as place:
        assert await probe("http", f"http://{place}/health?x=1") == fault


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"PONG\r\n", None),
        (b"+OK\r\nINFO {}\r\nPONG\r\n", None),
        (b"-ERR 'Authorization Violation'\r\n", "Authorization Violation"),
        (b"+OK\r\n" * 20, "it does not answer a PING"),
    ],
    ids=["pong", "later", "refused", "never"],
)
async def test_over_nats_a_pong_is_up(answer, fault):
    async with serving(nats(answer)) as place:
        for target in (f"nats://{place}", place, f"nats://user:secret@{place}"):
            assert await probe("nats", target) == fault


async def test_over_tcp_a_connection_is_up():
    async with serving(silent) as place:
        assert await probe("tcp", place) is None
        assert await probe("tcp", f"tcp://{place}") is None
    assert await probe("tcp", place) is not None


@pytest.mark.parametrize("kind", ["http", "nats"])
async def test_silence_is_no_answer(kind):
    async with serving(silent) as place:
        target = f"http://{place}" if kind == "http" else place
        assert await probe(kind, target, 0.05) == "no answer within 0.05 s"


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("http", "ftp://x"),
        ("http", "http://"),
        ("http", "http://127.0.0.1:1/a b"),
        ("http", "http://127.0.0.1:99999/"),
        ("tcp", "host"),
        ("tcp", "host:notaport"),
    ],
)
async def test_a_target_that_is_none_is_down(kind, target):
    assert await probe(kind, target) is not None


async def test_an_answer_of_something_else_is_down():
    async def talk(reader, writer):
        writer.write(b"SSH-2.0-x\r\n")
        await reader.read(10)

    async with serving(talk) as place:
        assert await probe("http", f"http://{place}/") == "the answer is not one of HTTP"
        assert await probe("nats", place) == "it is no broker of NATS"


async def test_a_peer_that_hangs_up_is_down():
    async def talk(_reader, _writer):
        return

    async with serving(talk) as place:
        assert await probe("http", f"http://{place}/") is not None
