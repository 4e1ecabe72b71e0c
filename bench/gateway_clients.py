"""Clients of a gateway as lean as they can be: bytes in, one note per message, nothing decoded.

They share the processors with what they measure, so they do no more than count.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from typing import Final, Literal, cast

Kind = Literal["sse", "ws"]

SEEN: Final = time.monotonic  # noqa: TID251 - of real clients
"""One clock for all processes of a machine."""
READY_S: Final = 60.0
RESULT: Final = re.compile(
    rb'"method":"playbook/result","params":\{(?:"eventId":"([^"]+)",)?[^}]*?'
    rb'"data":\{"n":(\d+),"at":([0-9.]+)'
)
_EVENT: Final = re.compile(rb"^id: (\S+)\n", re.MULTILINE)
_OF_WS: Final = re.compile(rb'"eventId":"([^"]+)"')
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})")
_LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_END: Final = b"\r\n\r\n"
_MOST_SHOWN: Final = 200
_SHORT, _LONG = 126, 127
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10
_OK, _SWITCHED = 200, 101


class Client:
    """One client: where it was, and what it was told when."""

    def __init__(self, client_id: str, token: str, kind: Kind) -> None:
        self.client_id = client_id
        self.token = token
        self.kind: Kind = kind
        self.last_id = b""
        self.results: list[tuple[int, float, float]] = []
        """Numbers of results, when each was called back, and when it came."""
        self.disordered = 0
        """Events whose ids were not after the one before: told twice, or in another order."""
        self.count = 0
        self.lost: list[str] = []
        """Connections that ended though nobody had asked for it."""
        self.connection: _Sse | _Ws | None = None
        self._last = 0

    async def connect(self, host: str, port: int) -> None:
        """Connect, at the place where it was; it is back when the gateway has greeted it."""
        loop = asyncio.get_running_loop()
        made = _Sse(self) if self.kind == "sse" else _Ws(self)
        await loop.create_connection(lambda: made, host, port)
        self.connection = made
        try:
            async with asyncio.timeout(READY_S):
                await made.greeted
        except TimeoutError:
            made.transport.abort()
            raise

    @property
    def is_connected(self) -> bool:
        """Whether the gateway has greeted it."""
        made = self.connection
        return made is not None and made.greeted.done() and not made.closed.is_set()

    async def gone(self) -> None:
        """Come back when the connection has ended."""
        if self.connection is not None:
            await self.connection.closed.wait()

    def leave(self) -> None:
        """Cut the connection."""
        if self.connection is not None:
            self.connection.is_meant = True
            self.connection.transport.abort()
            self.connection = None

    def stall(self) -> None:
        """Read nothing any more."""
        if self.connection is not None:
            self.connection.transport.pause_reading()

    def note(self, event_id: bytes, text: bytes, at: float) -> None:
        """One event of the log."""
        seq = int(event_id.rpartition(b"-")[2])
        self.disordered += seq <= self._last
        self._last, self.last_id = seq, event_id
        self.count += 1
        found = RESULT.search(text)
        if found is not None:
            self.results.append((int(found[2]), float(found[3]), at))


class _Connection(asyncio.Protocol):
    """A connection of a client."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport
        self.is_meant = False
        self.closed = asyncio.Event()
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.write(self.request())

    def request(self) -> bytes:
        """What is asked."""
        raise NotImplementedError

    def connection_lost(self, exc: Exception | None) -> None:
        """It ended."""
        self.closed.set()
        told = self.rest[:_MOST_SHOWN].decode(errors="replace")
        if not self.greeted.done():
            self.greeted.set_exception(ConnectionError(f"{exc!r}: {told}"))
        if not self.is_meant:
            self.client.lost.append(f"{exc!r}: {told}")

    def greet(self) -> None:
        """The first message has come."""
        if not self.greeted.done():
            self.greeted.set_result(None)


class _Sse(_Connection):
    """Server-sent events."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._is_open = False

    def _opened(self, data: bytes) -> bool:
        """Whether it is a stream; a refusal ends the connection."""
        status = _STATUS.match(self.rest + data)
        if status is not None and int(status[1]) != _OK:
            self.rest += data
            self.transport.abort()
            return False
        self._is_open = status is not None
        if not self._is_open:
            self.rest += data
        return self._is_open

    def request(self) -> bytes:
        """A stream behind the last event."""
        client = self.client
        last = f"Last-Event-ID: {client.last_id.decode()}\r\n" if client.last_id else ""
        return (
            f"GET /events?client_id={client.client_id}&frames=message HTTP/1.1\r\n"
            f"Host: gateway\r\nAuthorization: Bearer {client.token}\r\n{last}\r\n"
        ).encode()

    def data_received(self, data: bytes) -> None:
        """Note every event that is whole."""
        at = SEEN()
        if not self._is_open and not self._opened(data):
            return
        *blocks, self.rest = (self.rest + data).split(b"\n\n")
        for block in blocks:
            found = _EVENT.search(block)
            if found is not None:
                self.client.note(found[1], block, at)
            elif b'"pendingRequests"' in block:
                self.greet()


class _Ws(_Connection):
    """A WebSocket, by hand: texts, pings, and nothing else."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        self._is_open = False

    def request(self) -> bytes:
        """The upgrade."""
        return (
            "GET /ws HTTP/1.1\r\nHost: gateway\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
            f"Authorization: Bearer {self.client.token}\r\n\r\n"
        ).encode()

    def data_received(self, data: bytes) -> None:
        """Note every message that is whole."""
        at = SEEN()
        self.rest += data
        if not self._is_open:
            head, end, rest = self.rest.partition(_END)
            status = _STATUS.match(head)
            if not end or status is None or int(status[1]) != _SWITCHED:
                if end:
                    self.transport.abort()
                return
            self._is_open, self.rest = True, rest
            client = self.client
            last = f',"lastEventId":"{client.last_id.decode()}"' if client.last_id else ""
            self._send(_TEXT, (
                '{"jsonrpc":"2.0","id":1,"method":"initialize",'
                f'"params":{{"clientId":"{client.client_id}"{last}}}}}'
            ).encode())  # fmt: skip
        while (frame := unframed(self.rest)) is not None:
            kind, text, self.rest = frame
            self._heard(kind, text, at)

    def _heard(self, kind: int, text: bytes, at: float) -> None:
        if kind == _PING:
            self._send(_PONG, text)
        elif kind == _CLOSE:
            self.rest = b"closed: " + text
            self.transport.abort()
        elif (found := _OF_WS.search(text)) is not None:
            self.client.note(found[1], text, at)
        elif b'"pendingRequests"' in text:
            self.greet()

    def _send(self, kind: int, text: bytes) -> None:
        self.transport.write(framed(kind, text))


def framed(kind: int, text: bytes) -> bytes:
    """A frame of a client, masked as it has to be."""
    mask = os.urandom(4)
    size = len(text)
    head = bytes([0x80 | kind, 0x80 | size]) if size < _SHORT else (
        bytes([0x80 | kind, 0x80 | _SHORT]) + size.to_bytes(2, "big")
    )  # fmt: skip
    return head + mask + bytes(byte ^ mask[at & 3] for at, byte in enumerate(text))


def unframed(data: bytes) -> tuple[int, bytes, bytes] | None:
    """The kind and the text of the first frame of a server, and the rest; none if not whole."""
    if len(data) < 2:  # noqa: PLR2004 - the shortest
        return None
    size, begin = data[1] & 0x7F, 2
    if size >= _SHORT:
        begin = 4 if size == _SHORT else 10
        if len(data) < begin:
            return None
        size = int.from_bytes(data[2:begin], "big")
    if len(data) < begin + size:
        return None
    return data[0] & 0x0F, data[begin : begin + size], data[begin + size :]


class Caller:
    """Posts JSON on as many connections as it takes, each kept for the next."""

    def __init__(self, host: str, port: int) -> None:
        self._at = (host, port)
        self._free: list[_Exchange] = []

    async def post(self, path: str, token: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of an answer."""
        made = self._free.pop() if self._free else await self._connected()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        async with asyncio.timeout(READY_S):
            answer = await made.ask(head.encode() + body)
        self._free.append(made)
        return answer

    def close(self) -> None:
        """Hang up."""
        for made in self._free:
            made.transport.abort()

    async def _connected(self) -> _Exchange:
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(_Exchange, *self._at)
        return made


class _Exchange(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self._rest = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self.transport = cast("asyncio.Transport", transport)

    def ask(self, data: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """Send a request; its answer comes."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        return self._answer

    def data_received(self, data: bytes) -> None:
        """Tell the answer when it is whole."""
        self._rest += data
        head, end, body = self._rest.partition(_END)
        if not end:
            return
        status, length = _STATUS.match(head), _LENGTH.search(head)
        size = int(length[1]) if length else 0
        if len(body) >= size and self._answer is not None and not self._answer.done():
            self._rest = body[size:]
            self._answer.set_result((int(status[1]) if status else 0, body[:size]))

    def connection_lost(self, exc: Exception | None) -> None:
        """There is no answer any more."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(repr(exc)))
