"""One HTTP question to a part of the stack: is it well?"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S: Final = 2.0
_MOST_BYTES: Final = 1 << 20
_NO_HEADERS: Final[Mapping[str, str]] = {}


async def ask(
    url: str, headers: Mapping[str, str] = _NO_HEADERS, timeout_s: float = TIMEOUT_S
) -> tuple[int, bytes] | None:
    """Status and body of a GET; none when nobody answers."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _ask(url, headers)
    except (OSError, EOFError, TimeoutError, ValueError):
        return None


async def is_well(url: str) -> bool:
    """Whether a health check is answered with 200."""
    answer = await ask(url)
    return answer is not None and answer[0] == 200  # noqa: PLR2004 - OK


async def _ask(url: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    context = own_context() if is_tls else None
    reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=context)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [f"GET {path} HTTP/1.0", f"Host: {parts.netloc}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join((*lines, "", "")).encode("latin-1"))
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.read(_MOST_BYTES)
        while more := await reader.read(_MOST_BYTES):
            body += more
        return int(head.split(b" ", 2)[1]), body
    finally:
        writer.close()


def own_context() -> ssl.SSLContext:
    """Our own server on this machine: its certificate is for another name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
