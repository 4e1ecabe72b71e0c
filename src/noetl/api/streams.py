"""An answer over a socket that is read while it comes, and the body that is sent meanwhile."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from noetl.api.http import FULL_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    from noetl.api.http import NoAnswer


class Held(Protocol):
    """The connection of an exchange."""

    def rest(self) -> None:
        """Be ready for the next request, or be closed."""

    def close(self) -> None:
        """End at once."""


class SocketExchange:
    """An answer that has begun, and the body of its request as long as it is sent."""

    def __init__(self, connection: Held, stream: Stream, let_go: Callable[[], None]) -> None:
        self.status = 0
        self.headers = stream.headers
        self.parts = stream.parts
        self._connection = connection
        self._stream = stream
        self._let_go: Callable[[], None] | None = let_go
        self._sending: asyncio.Task[None] | None = None

    @property
    def body(self) -> bytes | None:
        """All of the body, when all of it is here and none was read."""
        return self._stream.whole()

    async def upload(self, sending: Coroutine[Any, Any, None]) -> None:
        """Send the body until it has ended, or the answer has begun: then both go on."""
        self._sending = task = asyncio.get_running_loop().create_task(sending)
        await asyncio.wait((task, self._stream.status), return_when=asyncio.FIRST_COMPLETED)
        if not self._stream.status.done():
            task.result()

    async def close(self) -> None:
        """Let the connection go: for the next request when both sides have ended."""
        let_go, self._let_go = self._let_go, None
        if let_go is None:
            return
        self._stream.forget()
        task = self._sending
        if task is not None and (not task.done() or task.cancelled() or task.exception()):
            self._connection.close()
            task.cancel()
        self._connection.rest()
        let_go()
        if task is not None:
            await asyncio.gather(task, return_exceptions=True)


class Stream:
    """An answer that is read while it comes; whoever reads slowly holds the sender back."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.headers: list[tuple[bytes, bytes]] = []
        self._transport = transport
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._is_paused = False
        self._is_over = False
        self._fault: NoAnswer | None = None
        self._more = asyncio.Event()

    def begin(self, status: int) -> None:
        """The head is there."""
        if not self.status.done():
            self.status.set_result(status)

    def put(self, part: bytes) -> None:
        """A part came."""
        self._parts.append(part)
        self._size += len(part)
        if self._size > FULL_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._more.set()

    def end(self) -> None:
        """There is no more."""
        self._is_over = True
        self._more.set()

    def fail(self, fault: NoAnswer) -> None:
        """There was more, but it is lost."""
        self._fault = fault
        if not self.status.done():
            self.status.set_exception(fault)
        self._more.set()

    def whole(self) -> bytes | None:
        """All parts in one, when the last one is here."""
        parts = self._parts
        if not self._is_over:
            return None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def forget(self) -> None:
        """Nobody reads what is left, nor asks how it ended."""
        self._parts.clear()
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        if self.status.done() and not self.status.cancelled():
            self.status.exception()  # it was told, or nobody asks

    async def parts(self) -> AsyncIterator[bytes]:
        """The parts as they come."""
        while True:
            while self._parts:
                part = self._parts.popleft()
                self._size -= len(part)
                if self._is_paused and self._size <= FULL_BYTES // 2:
                    self._is_paused = False
                    self._transport.resume_reading()
                yield part
            if self._is_over:
                return
            if self._fault is not None:
                raise self._fault
            self._more.clear()
            await self._more.wait()
