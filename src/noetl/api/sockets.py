"""The transport over sockets: a small HTTP/1.1 client that keeps its connections.

It sends a request once. Whether to send it again is for those to say who know what it does.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from noetl import __version__
from noetl.api.connection import Connection
from noetl.api.http import NO_HEADERS, Late, NoAnswer
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Mapping

    from noetl.api.http import Answer, Asked
    from noetl.api.streams import SocketExchange

CONNECT_S: Final = 5.0
IDLE_S: Final = 60.0
"""Less than servers keep an idle connection, so that it is we who end it."""
_KEPT_HEADS: Final = 16
_PORTS: Final = {"http": 80, "https": 443}


class BadAddress(NoetlError):
    """An address that is not one of a server."""

    code = "bad_address"
    status = 422


class SocketTransport:
    """Carries requests to one server, from one event loop."""

    def __init__(
        self,
        base_url: str,
        *,
        token: str = "",
        timeout_s: float = 30.0,
        connections: int = 32,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        scheme, self._host, self._port, self._prefix, authority = _address(base_url)
        self._tls = (tls or ssl.create_default_context()) if scheme == "https" else None
        self._url = base_url
        self._timeout_s = timeout_s
        fixed = f"Host: {authority}\r\nUser-Agent: noetl/{__version__}\r\n"
        self._fixed = fixed + (f"Authorization: Bearer {_clean(token)}\r\n" if token else "")
        self._room = asyncio.Semaphore(connections)
        self._most_idle = connections
        self._idle: list[Connection] = []
        self._busy: set[Connection] = set()
        self._heads: dict[tuple[tuple[str, str], ...], str] = {}

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        timeout_s: float | None = None,
    ) -> Answer:
        """The answer; `NoAnswer` when there is none."""
        head = self._head(method, path, headers, len(body))
        async with self._room:
            connection = self._rested() or await self._connected()
            began = asyncio.get_running_loop().time()
            self._busy.add(connection)
            try:
                return await connection.ask(head, body, timeout_s or self._timeout_s)
            except NoAnswer as fault:
                raise type(fault)(f"{method} {self._url}{path}: {fault.message}") from None
            finally:
                self._busy.discard(connection)
                if not connection.is_lost:
                    connection.idle_since = asyncio.get_running_loop().time()
                    self._idle.append(connection)
                elif self._idle:
                    self._doubt(began)

    async def upload(
        self,
        method: str,
        path: str,
        chunks: AsyncIterable[bytes],
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> Answer:
        """The answer to a body that comes bit by bit, on a connection of its own."""
        head = self._head(method, path, headers, None)
        connection = await self._connected()
        self._busy.add(connection)
        try:
            return await connection.send_all(head, chunks, self._timeout_s)
        except NoAnswer as fault:
            raise NoAnswer(f"{method} {self._url}{path}: {fault.message}") from None
        finally:
            self._busy.discard(connection)
            connection.close()

    @asynccontextmanager
    async def stream(
        self, path: str, headers: Mapping[str, str] = NO_HEADERS
    ) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """An answer of any length: its status, and its parts as they come."""
        head = self._head("GET", path, headers, 0)
        connection = await self._connected()
        self._busy.add(connection)
        try:
            yield await connection.listen(head, self._timeout_s)
        finally:
            self._busy.discard(connection)
            connection.close()

    async def exchange(self, asked: Asked, timeout_s: float | None = None) -> SocketExchange:
        """An answer as it comes, to a body as it comes; close it to let its connection go.

        As many as there are may be under way: each of them has somebody who waits for it.
        """
        head = self._wire_head(asked)
        connection = self._rested() or await self._connected()
        self._busy.add(connection)
        try:
            return await connection.exchange(
                head, asked, timeout_s or self._timeout_s, self._let_go
            )
        except NoAnswer as fault:
            raise type(fault)(f"{asked.method} {self._url}: {fault.message}") from None

    def _let_go(self, connection: Connection) -> None:
        """Keep a connection for the next request, when it may have one."""
        self._busy.discard(connection)
        if connection.is_lost or len(self._idle) >= self._most_idle:
            connection.close()
        else:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)

    async def close(self) -> None:
        """End every connection; what is under way gets no answer."""
        for connection in (*self._idle, *self._busy):
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # the loop lets go of the sockets

    def _rested(self) -> Connection | None:
        """The connection that was used last and still holds."""
        oldest = asyncio.get_running_loop().time() - IDLE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since >= oldest and connection.is_usable:
                return connection
            connection.close()
        return None

    def _doubt(self, since: float) -> None:
        """Let go of connections that were silent since; the network may have lost them as well."""
        for connection in [one for one in self._idle if one.idle_since < since]:
            self._idle.remove(connection)
            connection.close()

    async def _connected(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await loop.create_connection(
                    Connection, self._host, self._port, ssl=self._tls
                )
        except TimeoutError:
            raise Late(f"{self._url}: no connection within {CONNECT_S:g} s") from None
        except OSError as fault:
            raise NoAnswer(f"{self._url}: no connection: {fault}") from fault
        return connection

    def _head(self, method: str, path: str, headers: Mapping[str, str], size: int | None) -> bytes:
        key = tuple(headers.items())
        told = self._heads.get(key)
        if told is None:
            told = self._fixed + "".join(f"{_clean(k)}: {_clean(v)}\r\n" for k, v in key)
            if len(self._heads) < _KEPT_HEADS:
                self._heads[key] = told
        return f"{self._line(method, path)}{told}{_sized(size)}\r\n\r\n".encode("latin-1")

    def _wire_head(self, asked: Asked) -> bytes:
        told = b"".join([b"%b: %b\r\n" % header for header in asked.headers])
        ends = len(asked.headers)
        if told.count(b"\n") != ends or told.count(b"\r") != ends or b"\0" in told:
            raise BadAddress("a header has a line break")
        line = self._line(asked.method, asked.path)
        start = f"{line}{self._fixed}{_sized(asked.length)}\r\n"
        return b"%b%b\r\n" % (start.encode("latin-1"), told)

    def _line(self, method: str, path: str) -> str:
        if not path.isprintable() or " " in path:
            raise BadAddress(f"{path!r} is not a path", hint="quote what is not a plain character")
        return f"{method} {self._prefix}{path} HTTP/1.1\r\n"


def _sized(size: int | None) -> str:
    return "Transfer-Encoding: chunked" if size is None else f"Content-Length: {size}"


def _clean(text: str) -> str:
    """Text that ends no header."""
    if "\r" in text or "\n" in text or "\0" in text:
        raise BadAddress("a header has a line break", hint="is there one in the token?")
    return text


def _address(base_url: str) -> tuple[str, str, int, str, str]:
    """Scheme, host, port, prefix of paths and the name for the header `Host`."""
    parts = urlsplit(base_url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in _PORTS or not parts.hostname or port == -1:
        raise BadAddress(
            f"{base_url!r} is not the address of a server", hint="it is like http://127.0.0.1:8082"
        )
    authority = parts.netloc.rpartition("@")[2]
    return (
        parts.scheme,
        parts.hostname,
        port or _PORTS[parts.scheme],
        parts.path.rstrip("/"),
        authority,
    )
