"""The HTTP server under the door, on a real socket."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import httpx
import pytest

from noetl.edge import http
from noetl.edge.declared import Declared
from noetl.edge.door import Door
from noetl.edge.http import bound, listener
from noetl.edge.reading import body_of, json
from noetl.errors import NoetlError
from noetl.server.routes.exchange import route
from tests.unit.server.rig import rig


@asynccontextmanager
async def serving(*makers):
    """A server with routes of the test's own, and the port it is heard at."""
    async with rig(is_open=False) as r:
        door = Door([maker(r.plane) for maker in makers])
        with bound("127.0.0.1", 0) as open_socket:
            port = open_socket.getsockname()[1]
            server = listener(door)
            async with asyncio.TaskGroup() as group:
                group.create_task(server.serve([open_socket]))
                await server.heard.wait()
                try:
                    yield server, port
                finally:
                    server.stop()


@asynccontextmanager
async def listening(*makers):
    """The port alone."""
    async with serving(*makers) as (_, port):
        yield port


def echo(plane):
    async def answer(_, request):
        return json({"got": (await body_of(request)).decode()})

    return route(plane, "POST", "/echo", answer, "public", Declared(about="Says it again."))


async def talk(port: int, *parts: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.01)  # so that it comes as a part of its own
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


async def test_a_connection_carries_request_after_request() -> None:
    async with listening(echo) as port, httpx.AsyncClient() as http:
        for number in range(3):
            answer = await http.post(f"http://127.0.0.1:{port}/echo", content=str(number))
            assert answer.json() == {"got": str(number)}
        large = await http.post(f"http://127.0.0.1:{port}/echo", content="x" * 500_000)
        assert len(large.json()["got"]) == 500_000


async def test_pipelined_requests_are_answered_in_order() -> None:
    one = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n%d"
    last = b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 1\r\n\r\n9"
    async with listening(echo) as port:
        answer = await talk(port, one % 1 + one % 2 + last)
    assert [answer.index(b'{"got":"%s"}' % word) for word in (b"1", b"2", b"9")] == sorted(
        answer.index(b'{"got":"%s"}' % word) for word in (b"1", b"2", b"9")
    )


async def test_of_requests_without_end_no_more_are_held_than_came_at_once() -> None:
    one = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1"
    count = 20_000
    async with serving(echo) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(one * count)
        seen, most, last = 0, 0, b""
        while seen < count:
            data = last + await reader.read(65_536)
            seen += data.count(b'{"got":"1"}')
            last = data[-10:]
            (connection,) = server.server_state.connections
            most = max(most, len(connection.pipeline))
        writer.close()
        await writer.wait_closed()
    assert most <= 256 * 1024 / len(one)


HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


async def test_a_body_may_come_in_parts() -> None:
    async with listening(echo) as port:
        answer = await talk(port, HEAD + b"Content-Length: 6\r\n\r\n", b"ab", b"cd", b"ef")
        assert answer.endswith(b'{"got":"abcdef"}')
        answer = await talk(
            port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n"
        )
        assert answer.endswith(b'{"got":"abc"}')


async def test_who_asks_whether_to_send_a_body_is_told_to() -> None:
    async with listening(echo) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ok")
        assert (await reader.read()).endswith(b'{"got":"ok"}')
        writer.close()
        await writer.wait_closed()


async def test_an_idle_connection_is_closed_and_a_slow_request_is_answered() -> None:
    inside = asyncio.Event()

    def waits(plane):
        async def answer(plane, request):
            del plane, request
            inside.set()
            await asyncio.Event().wait()

        return route(plane, "POST", "/wait", answer, "public", Declared(about="Waits."))

    async with serving(waits) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /wait HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        await inside.wait()
        (connection,) = server.server_state.connections
        now = asyncio.get_running_loop().time()
        connection.look(now + 59)
        connection.look(now + 61)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408")
        connection.look(now + 61)
        assert not connection.transport.is_closing()
        connection.look(now + 200)
        assert b'"code":"timeout"' in await reader.read()
        writer.close()
        await writer.wait_closed()


async def test_a_head_that_grows_is_refused() -> None:
    start = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
    async with listening(echo) as port:
        parts = [b"X-%d: %s\r\n" % (n, b"a" * 10_000) for n in range(4)]
        for answer in (
            await talk(port, start, *parts),
            await talk(port, start, b"X: ", *[b"a" * 10_000] * 4),
            await talk(port, b"POST /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n"),
        ):
            assert answer.startswith(b"HTTP/1.1 431")
            assert b"headers_too_large" in answer


ENDLESS = HEAD + b"Content-Length: 100000000\r\n\r\n"
PIECE = b"a" * 65_536


async def pour(writer: asyncio.StreamWriter, pieces: int) -> None:
    for _ in range(pieces):
        writer.write(PIECE)
        await writer.drain()


@pytest.mark.parametrize(
    ("start", "status", "code"),
    [
        (ENDLESS, b"413", b'"body_too_large"'),
        (b"POST /" + b"a" * 40_000, b"431", b'"headers_too_large"'),
    ],
    ids=["body", "head"],
)
async def test_who_is_refused_while_it_sends_can_read_why(
    start: bytes, status: bytes, code: bytes
) -> None:
    async with listening(echo) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(start)
        await pour(writer, 400)  # more than lies in the buffers of a connection
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert code in answer
        writer.close()
        await writer.wait_closed()


async def test_who_never_stops_sending_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PARTING_S", 0.05)
    async with serving(echo) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ENDLESS)
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 413")
        with pytest.raises(ConnectionError):
            await pour(writer, 100_000)
        assert not server.server_state.connections


async def test_who_has_read_why_and_leaves_is_let_go_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "PARTING_S", 3600.0)
    async with serving(echo) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ENDLESS)
        assert b"body_too_large" in await reader.read()
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(5):
            while server.server_state.connections:  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.001)


async def test_a_caller_that_leaves_takes_its_request_along() -> None:
    inside, cancelled = asyncio.Event(), asyncio.Event()

    def waits(plane):
        async def answer(plane, request):
            del plane, request
            inside.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        return route(plane, "POST", "/wait/{name}", answer, "public", Declared(about="Waits."))

    async with listening(waits) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /wait/x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
        await inside.wait()
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(5):
            await cancelled.wait()


async def test_a_server_that_is_told_to_stop_does_not_wait_for_its_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "TICK_S", 3600.0)
    async with asyncio.timeout(10), serving(echo) as (server, _):
        await asyncio.sleep(0.01)  # it waits by now
        server.stop()


async def test_a_taken_address_is_a_sentence() -> None:
    with bound("127.0.0.1", 0) as taken:
        taken.listen()
        with pytest.raises(NoetlError, match="cannot be listened on") as refused:
            bound("127.0.0.1", taken.getsockname()[1])
    assert refused.value.code == "address_unavailable"
