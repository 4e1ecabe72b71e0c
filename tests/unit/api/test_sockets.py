"""The transport over sockets, against servers that say exactly what a test wants."""

import asyncio
import socket
from contextlib import asynccontextmanager

import pytest

from noetl.api.http import NoAnswer
from noetl.api.sockets import BadAddress, SocketTransport

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX-A: b\r\n\r\nok"
SESAME = "sesame"


class Peer:
    """Answers each request with the next of its texts; None closes without a word."""

    def __init__(self, *texts):
        self.texts = list(texts)
        self.heads = []
        self.bodies = []
        self.connections = 0
        self.writers = []
        self.gone = asyncio.Event()

    async def talk(self, reader, writer):
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head.decode())
                size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                self.bodies.append(await reader.readexactly(size))
                text = self.texts.pop(0) if self.texts else OK
                if text is None:
                    break
                for part in text if isinstance(text, list) else [text]:
                    writer.write(part)
                    await writer.drain()
                if b"connection: close" in text[0 if isinstance(text, list) else slice(None)]:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            writer.close()


@asynccontextmanager
async def serving(*texts, **more):
    peer = Peer(*texts)
    server = await asyncio.start_server(peer.talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = SocketTransport(f"http://127.0.0.1:{port}{more.pop('prefix', '')}", **more)
    try:
        yield peer, transport
    finally:
        await transport.close()
        server.close()
        await server.wait_closed()
        for writer in peer.writers:
            writer.close()
        await asyncio.gather(*(w.wait_closed() for w in peer.writers), return_exceptions=True)


async def test_requests_share_a_connection():
    async with serving(token=SESAME, prefix="/base/") as (peer, transport):
        first = await transport.request("POST", "/a?b=c", b"body", {"content-type": "x/y"})
        await transport.request("GET", "/d")
    assert (first.status, first.headers, first.body) == (
        200,
        {"content-length": "2", "x-a": "b"},
        b"ok",
    )
    assert peer.connections == 1
    assert peer.bodies == [b"body", b""]
    assert peer.heads[0].startswith("POST /base/a?b=c HTTP/1.1\r\nHost: 127.0.0.1:")
    assert "Authorization: Bearer sesame\r\n" in peer.heads[0]
    assert "content-type: x/y\r\n" in peer.heads[0]
    assert "content-type" not in peer.heads[1]


async def test_a_large_body_arrives_whole():
    body = bytes(range(256)) * 40_000
    async with serving() as (peer, transport):
        await transport.request("PUT", "/", body)
    assert peer.bodies == [body]


async def test_an_answer_in_pieces_and_chunks_is_joined():
    chunked = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )
    pieces = [chunked[at : at + 7] for at in range(0, len(chunked), 7)]
    async with serving(pieces, OK) as (peer, transport):
        assert (await transport.request("GET", "/")).body == b"abcde"
        assert (await transport.request("GET", "/")).body == b"ok"
        assert peer.connections == 1


async def test_an_informational_answer_is_not_the_answer():
    async with serving(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK) as (_, transport):
        answer = await transport.request("GET", "/")
    assert (answer.status, answer.body, "link" in answer.headers) == (200, b"ok", False)


async def test_an_answer_without_length_ends_with_its_connection():
    told = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall of it"
    async with serving(told) as (_, transport):
        assert (await transport.request("GET", "/")).body == b"all of it"


async def test_an_empty_answer():
    async with serving(b"HTTP/1.1 204 No Content\r\n\r\n") as (peer, transport):
        assert (await transport.request("GET", "/")).status == 204
        await transport.request("GET", "/")
        assert peer.connections == 1


async def test_a_connection_that_the_server_closed_is_not_used_again():
    closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"
    async with serving(closing, OK, OK) as (peer, transport):
        await transport.request("GET", "/")
        await transport.request("GET", "/")
        peer.writers[-1].get_extra_info("socket").shutdown(
            socket.SHUT_RDWR
        )  # without a word, and before this loop could notice
        assert (await transport.request("GET", "/")).body == b"ok"
        assert peer.connections == 3


async def test_an_idle_connection_is_not_used_for_ever(monkeypatch):
    monkeypatch.setattr("noetl.api.sockets.IDLE_S", -1.0)
    async with serving() as (peer, transport):
        await transport.request("GET", "/")
        await transport.request("GET", "/")
        assert peer.connections == 2


@pytest.mark.parametrize(
    "told",
    [None, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\nok", b"no\r\n\r\n"],
)
async def test_no_whole_answer_is_no_answer_and_is_not_sent_again(told):
    async with serving(told) as (peer, transport):
        with pytest.raises(NoAnswer):
            await transport.request("POST", "/x")
        assert len(peer.heads) == 1
        assert (await transport.request("GET", "/")).body == b"ok"


async def test_a_late_answer_is_no_answer():
    async with serving(b"HTTP/1.1 200 OK\r\n") as (peer, transport):
        with pytest.raises(NoAnswer, match="within"):
            await transport.request("GET", "/", timeout_s=0.05)
        assert (await transport.request("GET", "/")).body == b"ok"
        assert peer.connections == 2


async def test_whoever_gives_up_takes_the_request_along():
    async with serving(b"") as (peer, transport):
        task = asyncio.create_task(transport.request("GET", "/"))
        while not peer.heads:  # noqa: ASYNC110 - the peer has no other way to tell
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await peer.gone.wait()
        assert task.cancelled()


async def test_nobody_listens():
    async with serving() as (_, transport):
        port = transport._port  # noqa: SLF001 - a port that is free again below
    with pytest.raises(NoAnswer, match="no connection"):
        await SocketTransport(f"http://127.0.0.1:{port}").request("GET", "/")


async def test_requests_beyond_the_connections_wait():
    async with serving(connections=2) as (peer, transport):
        await asyncio.gather(*(transport.request("GET", "/") for _ in range(10)))
        assert peer.connections <= 2


async def test_a_stream_is_read_as_it_comes():
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with (
        serving([head, b"3\r\nabc\r\n", b"2\r\nde\r\n", b"0\r\n\r\n"]) as (_, transport),
        transport.stream("/events", {"last-event-id": "4"}) as (status, parts),
    ):
        found = b"".join([part async for part in parts])
    assert (status, found) == (200, b"abcde")


async def test_a_stream_that_breaks_off_says_so():
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    async with (
        serving([head, b"3\r\nabc\r\n"]) as (_, transport),
        transport.stream("/events") as (_, parts),
    ):
        assert await anext(parts) == b"abc"
        with pytest.raises(NoAnswer):
            await anext(parts)


async def test_a_slow_reader_holds_the_sender_back():
    size = 1 << 20
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size
    async with (
        serving([head, b"x" * size]) as (_, transport),
        transport.stream("/") as (_, parts),
    ):
        first = await anext(parts)
        assert len(first) < size
        rest = sum([len(part) async for part in parts])
        assert len(first) + rest == size


@pytest.mark.parametrize("url", ["", "127.0.0.1:80", "ftp://x", "http://", "http://x:port"])
def test_an_address_that_is_none(url):
    with pytest.raises(BadAddress):
        SocketTransport(url)


async def test_a_line_break_ends_no_header():
    with pytest.raises(BadAddress):
        SocketTransport("http://x", token=SESAME + "\r\nb")
    async with serving() as (peer, transport):
        with pytest.raises(BadAddress):
            await transport.request("GET", "/", headers={"a": "b\r\nc: d"})
        with pytest.raises(BadAddress):
            await transport.request("GET", "/ HTTP/1.1\r\nx: y")
        assert not peer.heads
