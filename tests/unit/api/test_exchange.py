"""A request and an answer that both come bit by bit: over sockets and without."""

import asyncio

import pytest

from noetl.api.http import AsgiTransport, Asked, Late, NoAnswer
from noetl.api.sockets import BadAddress, SocketTransport
from tests.integration.test_sockets import Site


async def echo(scope, receive, send):
    """Send each part of the body back as it comes; `/early` answers before it has read."""
    path = scope["path"]
    if path == "/never":
        await receive()
        await receive()
        return
    if path == "/broken":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        message = "broken"
        raise RuntimeError(message)
    headers = [(b"x-two", b"a"), (b"x-two", b"b"), *scope["headers"]]
    if path == "/early":
        await send({"type": "http.response.start", "status": 413, "headers": headers[:2]})
        await send({"type": "http.response.body", "body": b"no"})
        return
    start = {"type": "http.response.start", "status": 201}
    await send({**start, "headers": [h for h in headers if h[0] in (b"x-two", b"x-mine")]})
    more = True
    while more:
        message = await receive()
        more = message.get("more_body", False)
        body = message.get("body", b"")
        await send({"type": "http.response.body", "body": body, "more_body": more})


class Socket:
    """A transport on a real server."""

    async def __aenter__(self):
        self.site = Site()
        self.site.config.app = echo
        await self.site.__aenter__()
        self.transport = SocketTransport(f"http://127.0.0.1:{self.site.port}", timeout_s=20)
        return self.transport

    async def __aexit__(self, *_):
        await self.transport.close()
        await self.site.__aexit__()


class Inner:
    """A transport on an app of this process."""

    async def __aenter__(self):
        return AsgiTransport(echo)

    async def __aexit__(self, *_):
        pass


async def parts_of(*parts):
    for part in parts:
        yield part


async def read(exchange):
    try:
        return b"".join([part async for part in exchange.parts()])
    finally:
        await exchange.close()


BOTH = pytest.mark.parametrize("way", [Socket, Inner])


@BOTH
async def test_headers_go_and_come_as_they_stand(way):
    async with way() as transport:
        headers = [(b"x-mine", b"1"), (b"x-mine", b"2")]
        exchange = await transport.exchange(
            Asked(method="POST", path="/a?b=c", headers=headers, body=b"whole")
        )
        assert exchange.status == 201
        found = [h for h in exchange.headers if h[0].startswith(b"x-")]
        assert found == [(b"x-two", b"a"), (b"x-two", b"b"), *headers]
        assert await read(exchange) == b"whole"


@BOTH
async def test_a_body_goes_up_while_the_answer_comes_down(way):
    async with way() as transport:
        steps = [asyncio.Event() for _ in range(3)]

        async def body():
            for number, step in enumerate(steps):
                await step.wait()
                yield b"part %d " % number

        steps[0].set()
        asked = Asked(method="PUT", path="/", body=body())
        async with asyncio.timeout(20):
            exchange = await transport.exchange(asked)
            coming = exchange.parts()
            for number, step in enumerate(steps):
                step.set()
                assert await anext(coming) == b"part %d " % number
            assert await anext(coming, None) is None
            await exchange.close()


@BOTH
@pytest.mark.parametrize("size", [None, 300_000])
async def test_a_large_body_is_the_same_on_the_other_side(way, size):
    body = [bytes([n % 251]) * 1000 for n in range(300)]
    async with way() as transport:
        asked = Asked(method="POST", path="/", body=parts_of(*body), size=size)
        async with asyncio.timeout(20):
            assert await read(await transport.exchange(asked)) == b"".join(body)


@BOTH
async def test_an_answer_before_the_body_has_ended_is_believed(way):
    async with way() as transport:
        endless = asyncio.Event()

        async def body():
            yield b"x"
            await endless.wait()

        exchange = await transport.exchange(Asked(method="POST", path="/early", body=body()))
        assert (exchange.status, await read(exchange)) == (413, b"no")
        again = await transport.exchange(Asked(method="POST", path="/", body=b"next"))
        assert await read(again) == b"next"


@BOTH
async def test_a_body_that_fails_fails_the_exchange(way):
    async def body():
        yield b"x"
        raise ValueError(7)

    async with way() as transport:
        with pytest.raises((ValueError, NoAnswer)):
            await read(await transport.exchange(Asked(method="POST", path="/", body=body())))


@BOTH
async def test_an_answer_that_does_not_come_is_late(way):
    async with way() as transport:
        with pytest.raises(Late):
            await transport.exchange(Asked(method="GET", path="/never"), 0.1)


@BOTH
async def test_an_answer_that_breaks_off_is_no_answer(way):
    async with way() as transport:
        exchange = await transport.exchange(Asked(method="GET", path="/broken"))
        coming = exchange.parts()
        assert await anext(coming) == b"half"
        with pytest.raises(NoAnswer):
            await anext(coming)
        await exchange.close()


async def test_nobody_listens():
    transport = SocketTransport("http://127.0.0.1:1")
    with pytest.raises(NoAnswer) as caught:
        await transport.exchange(Asked(method="GET", path="/"))
    assert not isinstance(caught.value, Late)


async def test_a_connection_is_used_again_when_both_sides_have_ended():
    async with Socket() as transport:
        used = set()
        for body in (b"one", parts_of(b"tw", b"o"), b"", parts_of(b"x" * 200_000)):
            await read(await transport.exchange(Asked(method="POST", path="/", body=body)))
            used.update(transport._idle)  # noqa: SLF001 - which connection it is, nobody else can tell
        answer = await transport.request("POST", "/", b"three")
        assert (answer.body, set(transport._idle)) == (b"three", used)  # noqa: SLF001 - as above
        assert len(used) == 1


async def test_a_connection_whose_answer_was_not_read_is_closed():
    async with Socket() as transport:
        never = asyncio.Event()

        async def body():
            yield b"x"
            await never.wait()

        exchange = await transport.exchange(Asked(method="POST", path="/", body=body()))
        await exchange.close()
        await exchange.close()
        assert (transport._idle, transport._busy) == ([], set())  # noqa: SLF001 - as above


async def test_a_header_with_a_line_break_is_refused():
    transport = SocketTransport("http://127.0.0.1:1")
    for value in (b"a\r\nb: c", b"a\nb", b"a\0b"):
        with pytest.raises(BadAddress):
            await transport.exchange(Asked(method="GET", path="/", headers=[(b"x", value)]))
