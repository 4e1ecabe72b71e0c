"""One HTTP/1.1 connection: a request is one write, its answer one future or a stream of parts."""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING, Final, cast

import httptools

from noetl.api.http import Answer, Late, NoAnswer
from noetl.api.streams import SocketExchange, Stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Callable

    from noetl.api.http import Asked

LARGE_BYTES: Final = 64 << 10
"""A body from this size on is not copied to join its head."""
_GONE: Final = select.POLLRDHUP | select.POLLHUP | select.POLLERR | select.POLLNVAL
_BODILESS: Final = frozenset({204, 304})
_INFORMATIONAL: Final = 200


class Connection(asyncio.Protocol):
    """Carries one request at a time."""

    def __init__(self) -> None:
        self.idle_since = 0.0
        self.is_lost = False
        self._transport: asyncio.Transport | None = None
        self._poll = select.poll()
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Answer] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stream: Stream | None = None
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._is_whole = True
        self._ends_with_connection = False
        self._may_write = asyncio.Event()
        self._may_write.set()

    # ------------------------------------------------------------------ what callers do

    @property
    def is_usable(self) -> bool:
        """Whether a request may be sent: nothing is under way, and the peer has not gone."""
        return not self.is_lost and self._is_whole and not self._poll.poll(0)

    async def ask(self, head: bytes, body: bytes, timeout_s: float) -> Answer:
        """Send a request and wait for its whole answer."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._answer = answer
        self._timer = loop.call_later(timeout_s, self._too_late, timeout_s)
        self._send(head, body)
        try:
            return await answer
        finally:
            self._timer.cancel()
            self._answer = None
            if not self._is_whole:
                self.close()  # whoever gives up takes the request with it

    async def send_all(self, head: bytes, chunks: AsyncIterable[bytes], timeout_s: float) -> Answer:
        """Send a request whose body comes bit by bit, in chunks, and wait for its whole answer.

        A peer that takes nothing for `timeout_s` is gone; one that answers early is believed.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._answer = answer
        self._send(head, b"")
        try:
            async for chunk in chunks:
                if answer.done():
                    break
                await self._writable(answer, timeout_s)
                self._write_part(answer, b"%x\r\n%b\r\n" % (len(chunk), chunk) if chunk else b"")
            self._write_part(answer, b"0\r\n\r\n")
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise Late(f"no answer within {timeout_s:g} s") from None
        finally:
            self._answer = None
            self.close()  # how much of the body was read is not known

    def _write_part(self, answer: asyncio.Future[Answer], part: bytes) -> None:
        if self._transport is not None and not self.is_lost and not answer.done():
            self._transport.write(part)

    async def _writable(self, answer: asyncio.Future[Answer], timeout_s: float) -> None:
        """Wait until the peer takes more, or has answered."""
        if self._may_write.is_set():
            return
        room = asyncio.ensure_future(self._may_write.wait())
        try:
            done, _ = await asyncio.wait(
                (room, answer), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            room.cancel()
        if not done:
            raise Late(f"nothing was taken within {timeout_s:g} s")

    async def listen(self, head: bytes, timeout_s: float) -> tuple[int, AsyncIterator[bytes]]:
        """Send a request and read its answer as it comes."""
        if self._transport is None:
            raise NoAnswer("the connection was lost")
        self._stream = stream = Stream(self._transport)
        self._send(head, b"")
        try:
            async with asyncio.timeout(timeout_s):
                status = await stream.status
        except TimeoutError:
            raise Late(f"no answer within {timeout_s:g} s") from None
        return status, stream.parts()

    async def exchange(
        self, head: bytes, asked: Asked, timeout_s: float, let_go: Callable[[Connection], None]
    ) -> SocketExchange:
        """Send a request while its body comes, and read its answer as it comes.

        The peer has `timeout_s` to begin its answer once it has the request, and to take more of
        a body. Whoever is done with the answer closes it; then the connection is let go.
        """
        if self._transport is None:
            raise NoAnswer("the connection was lost")
        self._stream = stream = Stream(self._transport)
        made = SocketExchange(self, stream, lambda: let_go(self))
        try:
            if isinstance(asked.body, bytes):
                self._send(head, asked.body)
            else:
                self._send(head, b"")
                is_chunked = asked.size is None
                await made.upload(self._upload(asked.body, timeout_s, is_chunked=is_chunked))
            async with asyncio.timeout(timeout_s):
                made.status = await stream.status
        except TimeoutError:
            await made.close()
            raise Late(f"no answer within {timeout_s:g} s") from None
        except BaseException:
            await made.close()
            raise
        return made

    async def _upload(
        self, chunks: AsyncIterable[bytes], timeout_s: float, *, is_chunked: bool
    ) -> None:
        async for chunk in chunks:
            if not self._may_write.is_set():
                async with asyncio.timeout(timeout_s):
                    await self._may_write.wait()
            if self._transport is None or self.is_lost:
                raise NoAnswer("the connection was lost")
            if chunk:
                self._transport.write(
                    b"%x\r\n%b\r\n" % (len(chunk), chunk) if is_chunked else chunk
                )
        if is_chunked and self._transport is not None:
            self._transport.write(b"0\r\n\r\n")

    def rest(self) -> None:
        """Be ready for the next request; a connection whose answer has not ended is closed."""
        self._stream = None
        if not self._is_whole:
            self.close()

    def close(self) -> None:
        """End the connection at once."""
        self.is_lost = True
        if self._transport is not None:
            self._transport.abort()

    def _send(self, head: bytes, body: bytes) -> None:
        transport = self._transport
        if transport is None or self.is_lost:
            raise NoAnswer("the connection was lost")
        self._is_whole = False
        self._headers = {}
        self._parts = []
        self._ends_with_connection = False
        if len(body) < LARGE_BYTES:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)

    def _too_late(self, timeout_s: float) -> None:
        self._fail(Late(f"no answer within {timeout_s:g} s"))

    def _fail(self, fault: NoAnswer) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(fault)
        if self._stream is not None:
            self._stream.fail(fault)

    # ------------------------------------------------------------------ what the loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; TCP_NODELAY is what loops set by themselves."""
        self._transport = cast("asyncio.Transport", transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)

    def pause_writing(self) -> None:
        """The peer is slower than we are."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """The peer takes more."""
        self._may_write.set()

    def data_received(self, data: bytes) -> None:
        """Parse what came."""
        if self._is_whole:
            self.close()  # nobody asked: such a connection is not to be trusted
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as fault:
            self._fail(NoAnswer(f"the answer is not HTTP: {fault}"))
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of the connection is the end of an answer that named no length."""
        self.is_lost = True
        self._may_write.set()  # nobody is to wait for a peer that has gone
        if exc is None and self._ends_with_connection and not self._is_whole:
            self.on_message_complete()
            return
        if not self._is_whole:
            self._fail(NoAnswer(f"the connection was lost: {exc or 'the server closed it'}"))

    # ------------------------------------------------------------------ what the parser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header of the answer."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")
        if self._stream is not None:
            self._stream.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head of the answer is there."""
        status = self._parser.get_status_code()
        self._ends_with_connection = (
            "content-length" not in self._headers
            and "transfer-encoding" not in self._headers
            and status not in _BODILESS
        )
        if self._stream is not None and status >= _INFORMATIONAL:
            self._stream.begin(status)

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        if self._stream is None:
            self._parts.append(part)
        else:
            self._stream.put(part)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        status = self._parser.get_status_code()
        if status < _INFORMATIONAL:
            self._headers = {}
            if self._stream is not None:
                self._stream.headers.clear()
            return  # the real answer follows
        self._is_whole = True
        if not self.is_lost and not self._parser.should_keep_alive():
            self.close()
        if self._stream is not None:
            self._stream.end()
        if self._answer is not None and not self._answer.done():
            parts = self._parts
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            self._answer.set_result(Answer(status, self._headers, body))
