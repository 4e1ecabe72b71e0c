"""How a request travels: one Protocol, and the transport that calls an ASGI app without a socket.

The app runs in the caller's own task: a caller that goes away takes its request with it, and a
local run pays for no task, no queue and no copy of the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol
from urllib.parse import unquote

from noetl.errors import NoetlError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_ASGI: Final = {"version": "3.0", "spec_version": "2.4"}
_CLIENT: Final = ("127.0.0.1", 0)
_SERVER: Final = ("noetl", 80)


class NoAnswer(NoetlError):
    """The request ended without an answer; whether it was done is not known."""

    code = "no_answer"
    retryable: ClassVar[bool] = True
    status: ClassVar[int] = 502


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class Transport(Protocol):
    """Carries one request to a server."""

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> Answer:
        """The answer; `NoAnswer` when there is none."""


class AsgiTransport:
    """Calls an app of this process."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> Answer:
        """Run the app on one request, in this task."""
        exchange = _Exchange(body)
        try:
            await self._app(_scope(method, path, body, headers), exchange.receive, exchange.send)
        except Exception as error:
            # An app may answer 500 and raise besides, for its server's log: the answer counts.
            if not exchange.is_complete:
                raise NoAnswer(f"{method} {path}: {type(error).__name__}: {error}") from error
        finally:
            exchange.close()
        if not exchange.is_complete:
            raise NoAnswer(f"{method} {path}: the app ended without a complete answer")
        return exchange.answer()


class _Exchange:
    """One request and the answer as it comes."""

    __slots__ = ("_body", "_gone", "_headers", "_parts", "_status", "is_complete")

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._gone: asyncio.Event | None = None
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self.is_complete = False

    async def receive(self) -> Message:
        """The body once; then nothing until the exchange is over."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        if not self.is_complete:
            if self._gone is None:
                self._gone = asyncio.Event()
            await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take the next part of the answer."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = list(message.get("headers", ()))
        elif message["type"] == "http.response.body" and not self.is_complete:
            self._parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                self.is_complete = self._status > 0
                self.close()

    def close(self) -> None:
        """Tell whoever still listens that nobody is there."""
        if self._gone is not None:
            self._gone.set()

    def answer(self) -> Answer:
        """The complete answer."""
        parts = self._parts
        return Answer(
            self._status,
            {name.decode("latin-1"): value.decode("latin-1") for name, value in self._headers},
            parts[0] if len(parts) == 1 else b"".join(parts),
        )


def _scope(
    method: str, path: str, body: bytes, headers: Mapping[str, str]
) -> MutableMapping[str, Any]:
    path, _, query = path.partition("?")
    wire = [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
    ]
    wire.append((b"content-length", b"%d" % len(body)))
    return {
        "type": "http",
        "asgi": _ASGI,
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path) if "%" in path else path,
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "root_path": "",
        "headers": wire,
        "client": _CLIENT,
        "server": _SERVER,
    }
