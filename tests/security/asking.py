"""One request of the matrix: an address of its own, a path as it stands on the wire, a status."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_addresses = count(1)


class Told(NamedTuple):
    """What was answered."""

    status: int
    code: str
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


async def sent(
    app: Any,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes | Iterable[bytes] = b"{}",
) -> Told:
    """Send a request as a socket would hand it over; whoever sent it hangs up at once after.

    A body in parts never ends. Each request comes from an address of its own: wrong tokens of one
    address are soon not looked at.
    """
    raw, _, query = target.partition("?")
    number = next(_addresses)
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw),
        "raw_path": raw.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": (f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", 1),
        "server": ("noetl", 80),
    }
    is_whole = isinstance(body, bytes)
    coming = iter([body] if is_whole else body)
    began: dict[str, Any] = {}
    answered: list[bytes] = []

    async def receive() -> Any:
        part = next(coming, None)
        if part is None and not is_whole and not began:
            await asyncio.Event().wait()
        if part is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": part, "more_body": not is_whole}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            began.update(message)
        else:
            answered.append(message.get("body", b""))

    await app(scope, receive, send)
    found = tuple(began["headers"])
    whole = b"".join(answered)
    is_problem = (b"content-type", b"application/problem+json") in found
    code = msgspec.json.decode(whole)["code"] if is_problem and whole else ""
    return Told(began["status"], code, whole, found)
