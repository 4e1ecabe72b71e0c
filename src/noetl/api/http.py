"""How a request travels: one Protocol, and the transport that calls an ASGI app without a socket.

The app runs in the caller's own task: a caller that goes away takes its request with it, and a
local run pays for no task, no queue and no copy of the body.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    MutableMapping,
    Sequence,
)
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Final, Protocol, runtime_checkable
from urllib.parse import unquote

from noetl.errors import NoetlError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
Wire = Sequence[tuple[bytes, bytes]]
"""Headers as they travel: in their order, each as often as it stands there."""

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_ASGI: Final = {"version": "3.0", "spec_version": "2.4"}
_CLIENT: Final = ("127.0.0.1", 0)
_SERVER: Final = ("noetl", 80)
FULL_BYTES: Final = 256 << 10
"""What a slow reader of a stream may leave unread before the sender is held back."""


class NoAnswer(NoetlError):
    """The request ended without an answer; whether it was done is not known."""

    code = "no_answer"
    retryable: ClassVar[bool] = True
    status: ClassVar[int] = 502


class Late(NoAnswer):
    """There was no answer in time."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request whose body may come bit by bit."""

    method: str
    path: str
    headers: Wire = ()
    body: bytes | AsyncIterable[bytes] = b""
    size: int | None = None
    """How long a body in parts is, if that is known."""

    @property
    def length(self) -> int | None:
        """How long the body is; none when only its end tells."""
        return len(self.body) if isinstance(self.body, bytes) else self.size


class Exchange(Protocol):
    """An answer that has begun; whoever asked for it closes it, at its end or before."""

    @property
    def status(self) -> int:
        """What the answer is."""

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Its headers; names are in small letters."""

    @property
    def body(self) -> bytes | None:
        """All of its body, when all of it came at once."""

    def parts(self) -> AsyncIterator[bytes]:
        """The body as it comes; `NoAnswer` when the rest of it is lost."""

    async def close(self) -> None:
        """Let go: what has not come yet is not wanted any more."""


@runtime_checkable
class ExchangeTransport(Protocol):
    """Carries a request and its answer while both of them come."""

    async def exchange(self, asked: Asked, timeout_s: float | None = None) -> Exchange:
        """The answer as soon as its head is there; `NoAnswer` when it does not come."""


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

    async def exchange(self, asked: Asked, timeout_s: float | None = None) -> Exchange:
        """Run the app in a task of its own, on a request and an answer that come in parts."""
        scope = _scope(asked.method, asked.path, b"", {})
        length = asked.length
        sized = (b"transfer-encoding", b"chunked") if length is None else _length(length)
        scope["headers"] = [*asked.headers, sized]
        talk = _Talk(asked.body)
        talk.task = asyncio.get_running_loop().create_task(talk.run(self._app, scope))
        try:
            async with asyncio.timeout(timeout_s):
                await talk.begun.wait()
        except TimeoutError:
            await talk.close()
            raise Late(f"{asked.method} {asked.path}: no answer within {timeout_s:g} s") from None
        except BaseException:
            await talk.close()
            raise
        if talk.fault is not None and not talk.status:
            raise talk.fault
        return talk


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


class _Talk:
    """An app at work on a request and an answer that come in parts."""

    def __init__(self, body: bytes | AsyncIterable[bytes]) -> None:
        self._source = body if isinstance(body, bytes) else aiter(body)
        self._has_more = True
        self._gone = asyncio.Event()
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._is_over = False
        self._changed = asyncio.Event()
        self.begun = asyncio.Event()
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.fault: Exception | None = None
        self.task: asyncio.Task[None] | None = None

    async def run(self, app: App, scope: MutableMapping[str, Any]) -> None:
        """Let the app answer."""
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:  # noqa: BLE001 - the app is another program; its caller is told
            self.fault = error if isinstance(error, NoetlError) else NoAnswer(_named(error))
        finally:
            if not self._is_over and self.fault is None:
                self.fault = NoAnswer("the app ended without a complete answer")
            self.begun.set()
            self._changed.set()

    async def _receive(self) -> Message:
        if self._has_more and isinstance(self._source, bytes):
            self._has_more = False
            return {"type": "http.request", "body": self._source, "more_body": False}
        if self._has_more and not isinstance(self._source, bytes):
            part = await anext(self._source, None)
            self._has_more = part is not None
            return {"type": "http.request", "body": part or b"", "more_body": self._has_more}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [(name.lower(), value) for name, value in message.get("headers", ())]
            self.begun.set()
        elif message["type"] == "http.response.body":
            self._parts.append(part := message.get("body", b""))
            self._size += len(part)
            self._is_over = not message.get("more_body", False)
            self._changed.set()
            while self._size > FULL_BYTES and not self._gone.is_set():
                self._changed.clear()
                await self._changed.wait()

    @property
    def body(self) -> bytes | None:
        """All of the body, when it was sent at once."""
        return b"".join(self._parts) if self._is_over else None

    async def parts(self) -> AsyncIterator[bytes]:
        """The body as the app sends it."""
        while True:
            while self._parts:
                part = self._parts.popleft()
                self._size -= len(part)
                self._changed.set()
                if part:
                    yield part
            if self._is_over:
                return
            if self.fault is not None:
                raise self.fault
            self._changed.clear()
            await self._changed.wait()

    async def close(self) -> None:
        """Tell the app that nobody is there."""
        self._gone.set()
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait((self.task,))


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _length(size: int) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % size


def _scope(
    method: str, path: str, body: bytes, headers: Mapping[str, str]
) -> MutableMapping[str, Any]:
    path, _, query = path.partition("?")
    wire = [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()
    ]
    wire.append(_length(len(body)))
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
