"""Is a downstream back? One question over a socket, answered in three seconds or not at all."""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from noetl import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from urllib.parse import SplitResult

    Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

TIMEOUT_S: Final = 3.0
_HTTP_PORTS: Final = {"http": 80, "https": 443}
_NATS_PORT: Final = 4222
_MOST_LINES: Final = 16
_UP_BELOW: Final = 500


async def probe(kind: str, target: str, timeout_s: float = TIMEOUT_S) -> str | None:
    """Why a downstream does not answer; none when it does."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _PROBES[kind](target)
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as fault:
        return str(fault) or type(fault).__name__


async def _http(target: str) -> str | None:
    """Any status below 500 is an answer."""
    parts = urlsplit(target)
    if parts.scheme not in _HTTP_PORTS or not parts.hostname:
        raise ValueError("the target is not an address that begins with http:// or https://")
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isprintable() or " " in path:
        raise ValueError("the target has a path that is no path")
    host = parts.netloc.rpartition("@")[2]
    async with _connected(parts, _HTTP_PORTS[parts.scheme], tls) as (reader, writer):
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: noetl/{__version__}\r\n"
        writer.write(f"{head}Accept: */*\r\nConnection: close\r\n\r\n".encode("latin-1"))
        await writer.drain()
        line = await reader.readuntil(b"\n")
    version, _, rest = line.decode("latin-1").partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/") or not status.isdigit():
        return "the answer is not one of HTTP"
    return None if int(status) < _UP_BELOW else f"it answers {status}"


async def _tcp(target: str) -> str | None:
    """A connection is an answer."""
    parts = urlsplit(target if "://" in target else f"//{target}")
    if not parts.port:
        raise ValueError("the target has no port")
    async with _connected(parts, 0, None):
        return None


async def _nats(target: str) -> str | None:
    """A PONG is an answer."""
    parts = urlsplit(target if "://" in target else f"nats://{target}")
    async with _connected(parts, _NATS_PORT, None) as (reader, writer):
        told = (await reader.readuntil(b"\r\n")).partition(b" ")
        if told[0] != b"INFO":
            return "it is no broker of NATS"
        info = json.loads(told[2])
        if parts.scheme == "tls" or info.get("tls_required"):
            await writer.start_tls(ssl.create_default_context(), server_hostname=parts.hostname)
        hello = {"verbose": False, "pedantic": False, "lang": "python", "name": "noetl probe"}
        if parts.password is not None:
            hello |= {"user": unquote(parts.username or ""), "pass": unquote(parts.password)}
        elif parts.username:
            hello |= {"auth_token": unquote(parts.username)}
        writer.write(b"CONNECT " + json.dumps(hello).encode() + b"\r\nPING\r\n")
        await writer.drain()
        for _ in range(_MOST_LINES):
            line = await reader.readuntil(b"\r\n")
            if line.startswith(b"PONG"):
                return None
            if line.startswith(b"-ERR"):
                return line[4:].decode("utf-8", "replace").strip(" '\r\n")
    return "it does not answer a PING"


_PROBES: Final = {"http": _http, "tcp": _tcp, "nats": _nats}


@asynccontextmanager
async def _connected(
    parts: SplitResult, port: int, tls: ssl.SSLContext | None
) -> AsyncIterator[Streams]:
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port or port, ssl=tls, limit=1 << 20
    )
    try:
        yield reader, writer
    finally:
        writer.close()
