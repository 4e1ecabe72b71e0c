"""WebSocket: calls and messages on one connection.

One task reads and one writes. What a call answers goes where messages go, so that a client that
reads nothing is cut off whatever it does.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from starlette.websockets import WebSocketDisconnect

from noetl.edge.door import ABORT, HEARD
from noetl.edge.errors import RateLimited, Unacceptable
from noetl.errors import NoetlError
from noetl.gateway import frames
from noetl.gateway.errors import (
    INVALID_REQUEST,
    MissingToken,
    OriginRefused,
    rpc_of,
)
from noetl.gateway.hub.greeting import greeting, tell_again
from noetl.gateway.hub.stream import (
    BAD_FRAME,
    FORBIDDEN,
    GOING_AWAY,
    NO_INITIALIZE,
    NO_SESSION,
    TOO_BIG,
    TOO_MANY,
    TRY_AGAIN,
    Ending,
)
from noetl.gateway.rpc import MOST_BYTES, BadCall, Initialize, id_of, must_be_call, parsed, read

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from noetl.gateway.gate import Gate
    from noetl.gateway.hub.stream import Stream
    from noetl.gateway.person import Person

SUBPROTOCOL: Final = "noetl.v1"
INITIALIZE_S: Final = 10.0
MOST_CALLS: Final = 64
PURPOSE: Final = "ws"
_BY_ITSELF: Final = ("ping", "pong", "ack")
"""What a client says while nobody is before it: its session goes idle all the same."""
_CODES: Final = {401: NO_SESSION, 403: FORBIDDEN, 429: TOO_MANY}
_ASCII_CHARS: Final = MOST_BYTES // 4
"""A text of so few characters has no more bytes than a message may have."""


def wire(frame: bytes, event_id: str) -> bytes:
    """A message that carries the id of its event."""
    return frames.with_id(frame, event_id) if event_id else frame


async def converse(gate: Gate, socket: WebSocket) -> None:
    """Hold a connection from the upgrade to its end."""
    must_be_trusted(gate, socket)
    offered = socket.scope.get("subprotocols") or []
    if offered and SUBPROTOCOL not in offered:
        raise Unacceptable(f"the subprotocol is not {SUBPROTOCOL}", code="bad_value")
    try:
        found = await gate.access.person(socket, purpose=PURPOSE)
        person: Person | None = found.at(gate.peers.address(socket))
    except MissingToken:
        person = None
    await socket.accept(SUBPROTOCOL if offered else None)
    await Conversation(gate, socket, person).run()


def must_be_trusted(gate: Gate, socket: WebSocket) -> None:
    """Refuse a page of somebody else, and whoever hides where he comes from."""
    headers = socket.headers
    gate.cors.must_trust(socket)
    if not (
        "origin" in headers
        or "authorization" in headers
        or "x-session-token" in headers
        or "ticket" in socket.query_params
    ):
        raise OriginRefused("the origin is missing", hint="send `Authorization` or a ticket")


class Conversation:
    """One connection."""

    def __init__(self, gate: Gate, socket: WebSocket, person: Person | None) -> None:
        self._gate = gate
        self._socket = socket
        self._person = person
        self._stream: Stream | None = None
        self._bucket = gate.limits.bucket("message")
        self._calls: set[asyncio.Task[None]] = set()
        self._writer: asyncio.Task[None] | None = None
        self._is_closed = False

    async def run(self) -> None:
        """Read until one of both ends it."""
        task = asyncio.current_task()
        try:
            if await self._begun():
                await self._reading()
        except WebSocketDisconnect:
            pass
        except asyncio.CancelledError:
            is_ours = self._stream is not None and self._stream.is_cut
            if not is_ours or task is None or ABORT in self._socket.scope:
                raise
            task.uncancel()  # the reader took nothing any more
        finally:
            await self._end()

    async def _begun(self) -> bool:
        """Wait for `initialize`; false when it does not come, or is refused."""
        try:
            async with asyncio.timeout(INITIALIZE_S):
                while self._stream is None:
                    message = await self._next()
                    if message is not None:
                        await self._before(message)
                    if self._is_closed:
                        return False
        except TimeoutError:
            await self._close(NO_INITIALIZE, "no initialize")
            return False
        return True

    async def _before(self, message: Any) -> None:  # noqa: ANN401 - JSON
        """A message before the stream: with a credential on the upgrade any call is taken."""
        is_first = isinstance(message, dict) and message.get("method") == "initialize"
        if is_first:
            await self._initialize(message)
        elif self._person is None:
            failure = rpc_of(MissingToken("the first message is not `initialize`"))
            await self._send(frames.refusal(id_of(message), failure))
            await self._close(NO_SESSION, "no session")
        else:
            answer = await self._answered(await self._who(), message)
            if answer is not None:
                await self._send(answer)

    async def _reading(self) -> None:
        while not self._is_closed:
            message = await self._next()
            if message is None:
                continue
            if len(self._calls) >= MOST_CALLS:
                failure = rpc_of(RateLimited(f"more than {MOST_CALLS} calls at once"))
                self._put(frames.refusal(id_of(message), failure))
                continue
            task = asyncio.create_task(self._called(message))
            self._calls.add(task)
            task.add_done_callback(self._calls.discard)

    async def _called(self, message: Any) -> None:  # noqa: ANN401 - JSON
        """One call; whoever makes it is looked at anew, unless a program says it by itself."""
        try:
            person = await self._who(is_use=_method_of(message) not in _BY_ITSELF)
        except NoetlError as refusal:
            self._put(frames.refusal(id_of(message), rpc_of(refusal)))
            if refusal.status in _CODES and self._stream is not None:
                self._stream.finish(Ending("invalid", _CODES[refusal.status]))
            return
        answer = await self._answered(person, message)
        if answer is not None:
            self._put(answer)

    async def _answered(self, person: Person, message: Any) -> dict[str, Any] | None:  # noqa: ANN401 - JSON
        """The answer of a call; those of all sockets of a session are counted together."""
        try:
            self._gate.limits.take("call", person.session_id or person.user_id)
        except RateLimited as refusal:
            return frames.refusal(id_of(message), rpc_of(refusal))
        return await self._gate.calls.call(person, message, stream=self._stream)

    async def _who(self, *, is_use: bool = True) -> Person:
        """Who speaks, if he still may; a stream that is open is enough for what is no use."""
        if self._person is None:
            raise MissingToken("the connection is not initialized")
        if self._person.token and is_use:
            self._person = await self._gate.sessions.used(self._person)
        return self._person

    async def _next(self) -> Any:  # noqa: ANN401 - JSON
        """The next message; none when there is nothing to be done."""
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", GOING_AWAY))
        now = self._gate.clock.monotonic()
        if self._stream is not None:
            self._stream.timing.heard_at = now
        text = message.get("text")
        if text is None:
            await self._close(BAD_FRAME, "binary frames are not taken")
            return None
        if len(text) > _ASCII_CHARS and len(text.encode()) > MOST_BYTES:
            await self._close(TOO_BIG, "the message is too big")
            return None
        if self._bucket.take(now):
            self._gate.metrics.rate_limited.inc("message")
            await self._close(TOO_MANY, "too many messages")
            return None
        try:
            return parsed(text)
        except BadCall as refusal:
            await self._answer(frames.refusal(None, refusal.failure))
            return None

    async def _initialize(self, message: dict[str, Any]) -> None:
        """Open the stream; what is refused ends the connection."""
        call_id = id_of(message)
        try:
            must_be_call(message)
            asked = read(message.get("params") or {}, Initialize)
            person = await self._introduced(asked)
            await self._opened(person, asked, call_id)
        except BadCall as refusal:
            await self._send(frames.refusal(call_id, refusal.failure))
            if refusal.failure.code == INVALID_REQUEST:
                await self._close(BAD_FRAME, "bad initialize")
        except NoetlError as refusal:
            await self._send(frames.refusal(call_id, rpc_of(refusal)))
            await self._close(_CODES.get(refusal.status, TRY_AGAIN), refusal.code)

    async def _introduced(self, asked: Initialize) -> Person:
        if self._person is None:
            if not asked.session_token:
                raise MissingToken("`sessionToken` is missing")
            found = await self._gate.sessions.of(asked.session_token)
            self._person = found.at(self._gate.peers.address(self._socket))
        return await self._who()

    async def _opened(self, person: Person, asked: Initialize, call_id: object) -> None:
        gate = self._gate
        client_id = asked.client_id or ""
        gate.limits.take("call", person.session_id or person.user_id)  # a new id is a new client
        if client_id:
            gate.limits.take("connect", f"{person.user_id}/{client_id}")
        stream = await gate.hub.open(person, client_id, asked.last_event_id or "", "ws", wire)
        try:
            main = asyncio.current_task()
            cut = self._socket.scope.get(ABORT) or (main.cancel if main is not None else None)
            stream.abort = cut
            self._socket.scope[HEARD] = lambda: self._heard(stream)
            await self._send(frames.answer(call_id, await greeting(gate.requests, stream)))
            tell_again(gate.requests, gate.hub, stream)
        except BaseException:
            await gate.hub.close(stream)
            raise
        self._stream = stream
        self._writer = asyncio.create_task(self._writing(stream), name="ws.writer")

    async def _writing(self, stream: Stream) -> None:
        """Write until the stream ends; then say why."""
        clock, socket = self._gate.clock, self._socket
        with suppress(WebSocketDisconnect, RuntimeError):  # the other end has gone: `run` sees it
            while chunks := await stream.next():
                stream.writing_since = clock.monotonic()
                for data in chunks:
                    await socket.send({"type": "websocket.send", "text": data.decode()})
                stream.writing_since = None
            stream.writing_since = clock.monotonic()
            ending = stream.ending or Ending("ended")
            await socket.close(ending.code, ending.reason)
            stream.writing_since = None

    def _heard(self, stream: Stream) -> None:
        """The other end has answered a ping of the protocol."""
        stream.timing.heard_at = self._gate.clock.monotonic()

    def _put(self, answer: dict[str, Any]) -> None:
        if self._stream is not None:
            self._gate.metrics.messages_sent.inc("ws", "answer")
            self._stream.put(frames.line(answer))

    async def _answer(self, answer: dict[str, Any]) -> None:
        if self._stream is None:
            await self._send(answer)
        else:
            self._put(answer)

    async def _send(self, answer: dict[str, Any]) -> None:
        """Before the stream there is nobody else who writes."""
        await self._socket.send_text(frames.line(answer).decode())

    async def _close(self, code: int, reason: str) -> None:
        """End the connection, when what is queued was sent."""
        self._is_closed = True
        if self._stream is not None:
            self._stream.finish(Ending(reason, code))
            if self._writer is not None:
                await self._writer
        else:
            await self._socket.close(code, reason)

    async def _end(self) -> None:
        tasks = [*self._calls, *([self._writer] if self._writer is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._stream is not None:
            await self._gate.hub.close(self._stream)


def _method_of(message: object) -> object:
    return message.get("method") if isinstance(message, dict) else None
