"""The way of one task to object stores: a proxy on this machine, by the rules of the guard.

DuckDB connects by itself, to wherever an address in a statement or the answer of a store leads it.
It knows no other way out than this one, so every connection is judged before it is made.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from noetl.tools.base import ToolError

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from types import TracebackType

    from noetl.tools.http.egress import Guard

HEAD_BYTES: Final = 64 << 10
CONNECT_S: Final = 10.0
_CHUNK: Final = 64 << 10
_END: Final = b"\r\n\r\n"
_PROOF: Final = "proxy-authorization"
_DROPPED: Final = (f"{_PROOF}:", "proxy-connection:", "connection:")


class _NotUnderstood(Exception):
    """What came is no request to a proxy."""


class Door:
    """A proxy that asks for a password, and remembers whom it refused last."""

    USER: Final = "noetl"

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._passing: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.password = secrets.token_urlsafe(24)
        self.address = ""
        self.refusal: ToolError | None = None
        """Why the last one was refused."""

    async def __aenter__(self) -> Self:
        """Listen on a port of this machine."""
        self._server = await asyncio.start_server(
            self._opened, host="127.0.0.1", port=0, limit=HEAD_BYTES
        )
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it, and every connection that it made."""
        if self._server is not None:
            self._server.close()
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    def _opened(self, reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            status = await self._pass(reader, writer)
            if status:
                lines = (f"HTTP/1.1 {status}", "Content-Length: 0", "Connection: close", "", "")
                writer.write("\r\n".join(lines).encode())
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            return  # the other side has gone, and there is nobody to tell
        finally:
            writer.close()

    async def _pass(self, reader: StreamReader, writer: StreamWriter) -> str:
        """Carry one request, or say with which status it is refused."""
        try:
            head = (await reader.readuntil(_END)).decode("latin-1")
            line, *headers = head.removesuffix("\r\n\r\n").split("\r\n")
            if not self._is_ours(headers):
                return "407 Proxy Authentication Required"
            host, port, asked = _target(line)
        except (asyncio.LimitOverrunError, _NotUnderstood):
            return "400 Bad Request"
        try:
            addresses = await self._guard.addresses(host, port)
        except ToolError as fault:
            self.refusal = fault
            return "403 Forbidden"
        try:
            async with asyncio.timeout(CONNECT_S):
                there = await asyncio.open_connection(addresses[0], port)
        except OSError:  # a timeout is one
            return "502 Bad Gateway"
        try:
            if asked:
                kept = [each for each in headers if not each.lower().startswith(_DROPPED)]
                told = "\r\n".join((asked, *kept, "Connection: close", "", ""))
                there[1].write(told.encode("latin-1"))
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _both((reader, writer), there)
        finally:
            there[1].close()
        return ""

    def _is_ours(self, headers: list[str]) -> bool:
        """Whether the user and the password are those that the child was told."""
        pair = base64.b64encode(f"{self.USER}:{self.password}".encode())
        named = (header.partition(":") for header in headers)
        given = [value.strip() for name, _, value in named if name.lower() == _PROOF]
        wanted = b"Basic " + pair
        return len(given) == 1 and hmac.compare_digest(given[0].encode("latin-1"), wanted)


def _target(line: str) -> tuple[str, int, str]:
    """Host, port, and the line that the host is asked with; none for a tunnel."""
    try:
        method, target, version = line.split(" ")
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise _NotUnderstood from None
    if method == "CONNECT":
        if not host or port is None or parts.netloc != target:
            raise _NotUnderstood
        return host, port, ""
    if not host or parts.scheme != "http" or "@" in parts.netloc:
        raise _NotUnderstood
    path = target[target.index(parts.netloc) + len(parts.netloc) :]
    path = path if path.startswith("/") else f"/{path}"
    return host, port or 80, f"{method} {path} {version}"


async def _both(
    here: tuple[StreamReader, StreamWriter], there: tuple[StreamReader, StreamWriter]
) -> None:
    """Carry bytes both ways until the answers end."""
    up = asyncio.create_task(_carry(here[0], there[1]))
    try:
        await _carry(there[0], here[1])
    finally:
        up.cancel()
        with suppress(asyncio.CancelledError, OSError):
            await up


async def _carry(reader: StreamReader, writer: StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK):
        writer.write(chunk)
        await writer.drain()
