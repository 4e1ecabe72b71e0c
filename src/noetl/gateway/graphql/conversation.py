"""One connection for GraphQL, in the protocol `graphql-transport-ws`.

One task reads, each operation is a task of its own, and whoever has something to say says it
himself, one after the other. So a reader that takes nothing holds up what it asked for, and loses
its connection after a while.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.websockets import WebSocketDisconnect

from noetl.edge.door import ABORT
from noetl.edge.moments import seconds_until
from noetl.edge.problems import REQUEST_ID
from noetl.errors import NoetlError
from noetl.gateway.errors import AuthUnavailable, MissingToken
from noetl.gateway.graphql.limits import MOST_BYTES, LimitExceeded
from noetl.gateway.graphql.operations import SUBSCRIPTION
from noetl.gateway.hub.presence import RENEW_S
from noetl.gateway.hub.stream import (
    BAD_FRAME,
    FORBIDDEN,
    GOING_AWAY,
    NO_INITIALIZE,
    NO_SESSION,
    NORMAL,
    SUPERSEDED,
    TOO_BIG,
    TOO_MANY,
    TRY_AGAIN,
)
from noetl.gateway.hub.wheel import LAST_LOOK_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.websockets import WebSocket

    from noetl.gateway.gate import Gate
    from noetl.gateway.graphql.operations import Operations
    from noetl.gateway.person import Person

INIT_S: Final = 10.0
STUCK_S: Final = 30.0
MOST_OPERATIONS: Final = 20
_MOST_ID: Final = 256
_TOKENS: Final = frozenset({"authorization", "sessiontoken", "session_token", "token",
                            "x-session-token"})  # fmt: skip
_UNAUTHORIZED: Final = 401
_encode: Final = msgspec.json.Encoder().encode


class Conversation:
    """One connection."""

    def __init__(
        self, gate: Gate, operations: Operations, socket: WebSocket, person: Person | None
    ) -> None:
        self._gate = gate
        self._operations = operations
        self._socket = socket
        self._person = person
        self._is_begun = False
        self._running: dict[str, asyncio.Task[None]] = {}
        self._bucket = gate.limits.bucket("message")
        self._writing = asyncio.Lock()
        self._over: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self._heard_at = gate.clock.monotonic()
        self._timers: list[asyncio.TimerHandle] = []
        self._looking: list[asyncio.Task[None]] = []
        self._types: dict[str, Callable[[dict[str, Any]], Any]] = {
            "connection_init": self._init,
            "ping": self._ping,
            "pong": _nothing,
            "subscribe": self._subscribe,
            "complete": self._complete,
        }

    @property
    def session_id(self) -> str:
        """Whose session it is; empty before it is known."""
        return "" if self._person is None else self._person.session_id

    def end(self, code: int, reason: str) -> None:
        """Close the connection; the first reason counts."""
        if not self._over.done():
            self._over.set_result((code, reason))

    async def run(self) -> None:
        """Read until one of both ends it."""
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(INIT_S, self._late))
        closing = asyncio.ensure_future(self._gate.closing.wait())
        closing.add_done_callback(lambda _: self.end(GOING_AWAY, "draining"))
        ticking = asyncio.ensure_future(self._tick())
        try:
            while (message := await self._next()) is not None:
                await self._heard(message)
            code, reason = await self._over
            with suppress(WebSocketDisconnect, RuntimeError, TimeoutError):  # nobody is there
                async with asyncio.timeout(STUCK_S):
                    await self._socket.close(code, reason)
        except WebSocketDisconnect:
            pass
        finally:
            self.end(NORMAL, "gone")
            for timer in self._timers:
                timer.cancel()
            tasks = [closing, ticking, *self._looking, *self._running.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _next(self) -> dict[str, Any] | None:
        """The next message; none when the connection is over."""
        coming = asyncio.ensure_future(self._socket.receive())
        try:
            await asyncio.wait((coming, self._over), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not coming.done():
                coming.cancel()
        if self._over.done():
            await asyncio.gather(coming, return_exceptions=True)
            return None
        return dict(coming.result())

    async def _heard(self, event: dict[str, Any]) -> None:
        if event["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(event.get("code", GOING_AWAY))
        self._heard_at = self._gate.clock.monotonic()
        text = event.get("text")
        if text is None:
            self.end(BAD_FRAME, "binary frames are not taken")
        elif len(text) > MOST_BYTES or len(text.encode()) > MOST_BYTES:
            self.end(TOO_BIG, "the message is too big")
        elif self._bucket.take(self._heard_at):
            self._gate.metrics.rate_limited.inc("message")
            self.end(TOO_MANY, "too many messages")
        else:
            await self._taken(text)

    async def _taken(self, text: str) -> None:
        try:
            message = msgspec.json.decode(text)
            heard = self._types[message["type"]]
        except (msgspec.DecodeError, RecursionError, TypeError, KeyError):
            self.end(BAD_FRAME, "no message of the protocol")
            return
        await heard(message)

    # ------------------------------------------------------------------ who it is

    async def _init(self, message: dict[str, Any]) -> None:
        """Let somebody in, or not; once."""
        if self._is_begun:
            self.end(TOO_MANY, "too many initialisation requests")
            return
        self._is_begun = True
        try:
            if self._person is None:
                token = _token_of(message.get("payload"))
                if not token:
                    raise MissingToken("nobody says whose connection it is")
                found = await self._gate.sessions.of(token)
                self._person = found.at(self._gate.peers.address(self._socket))
            await self._who()
        except AuthUnavailable:
            self.end(TRY_AGAIN, "auth_unavailable")
            return
        except NoetlError as refusal:
            is_unknown = refusal.status == _UNAUTHORIZED
            self.end(NO_SESSION if is_unknown else FORBIDDEN, refusal.code)
            return
        self._last()
        await self._send({"type": "connection_ack"})

    async def _who(self) -> Person:
        """Who speaks, if he still may."""
        if self._person is None:
            raise MissingToken("the connection is not initialized")
        if self._person.token:
            self._person = await self._gate.sessions.used(self._person)
        return self._person

    def _late(self) -> None:
        if not self._is_begun:
            self.end(NO_INITIALIZE, "no connection_init")

    def _last(self) -> None:
        """End with the session, and after a few hours in any case."""
        if self._person is None:
            return
        timing, now = self._gate.hub.wheel.timing(self._person), self._gate.clock.monotonic()
        loop = asyncio.get_running_loop()
        ends_s = timing.ends_at - now
        self._timers.append(loop.call_later(ends_s, self.end, GOING_AWAY, "lifetime"))
        self._looking.append(asyncio.create_task(self._look()))

    async def _look(self) -> None:
        """Look from time to time whether the session lasts, and once more right before its end."""
        while (left_s := self._left_s()) > 0:
            last_s = left_s - LAST_LOOK_S if left_s > LAST_LOOK_S else left_s
            await asyncio.sleep(min(RENEW_S, last_s))
            if self._person is None or self._left_s() <= 0:
                break
            try:
                self._person = await self._gate.sessions.look(self._person)
            except NoetlError as refusal:
                if refusal.status == _UNAUTHORIZED:
                    self.end(NO_SESSION, refusal.code)
                    return
        self.end(NO_SESSION, "expired")

    def _left_s(self) -> float:
        """How long the session lasts if nothing makes it longer."""
        if self._person is None or self._person.expires_at is None:
            return math.inf
        return seconds_until(self._gate.clock, self._person.expires_at)

    # ------------------------------------------------------------------ operations

    async def _subscribe(self, message: dict[str, Any]) -> None:
        name = message.get("id")
        if self._person is None or not self._is_begun:
            self.end(NO_SESSION, "unauthorized")
        elif not isinstance(name, str) or not 0 < len(name) <= _MOST_ID:
            self.end(BAD_FRAME, "`id` is no text of 1..256 characters")
        elif name in self._running:
            self.end(SUPERSEDED, f"subscriber for {name[:60]} already exists")
        elif len(self._running) >= MOST_OPERATIONS:
            over = LimitExceeded(f"a connection has at most {MOST_OPERATIONS} operations")
            await self._refused(name, "other", over)
        else:
            task = asyncio.create_task(self._operated(name, message.get("payload")))
            self._running[name] = task

    async def _complete(self, message: dict[str, Any]) -> None:
        name = message.get("id")
        task = self._running.pop(name, None) if isinstance(name, str) else None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _operated(self, name: str, payload: object) -> None:
        """One operation, from its check to its end."""
        kind = "other"
        try:
            person = await self._who()
            self._gate.limits.take("call", person.session_id or person.user_id)
            asked = self._operations.asked(person, self._name)
            operation = await self._operations.prepared(payload)
            kind = operation.kind
            if kind == SUBSCRIPTION:
                async for body in self._operations.followed(asked, operation):
                    await self._send({"id": name, "type": "next", "payload": body})
                errors: list[dict[str, Any]] = []
            else:
                body = await self._operations.done(asked, operation)
                errors = body.get("errors", [])
                await self._send({"id": name, "type": "next", "payload": body})
            self._operations.count(kind, errors)
            self._running.pop(name, None)
            await self._send({"id": name, "type": "complete"})
        except Exception as error:  # noqa: BLE001 - the border: every error is told
            self._running.pop(name, None)
            await self._refused(name, kind, error)

    async def _refused(self, name: str, kind: str, error: Exception) -> None:
        errors = self._operations.errors_of(error, self._name)
        self._operations.count(kind, errors)
        await self._send({"id": name, "type": "error", "payload": errors})
        if isinstance(error, NoetlError) and error.status == _UNAUTHORIZED:
            self.end(NO_SESSION, error.code)

    @property
    def _name(self) -> str:
        return str(self._socket.scope.get(REQUEST_ID, ""))

    # ------------------------------------------------------------------ the line

    async def _ping(self, message: dict[str, Any]) -> None:
        del message
        await self._send({"type": "pong"})

    async def _tick(self) -> None:
        """Ask whether somebody is there."""
        settings, clock = self._gate.settings, self._gate.clock
        while True:
            await asyncio.sleep(settings.heartbeat_s)
            if clock.monotonic() - self._heard_at > settings.connection_timeout_s:
                self.end(GOING_AWAY, "silent")
            elif self._person is not None and self._is_begun:
                await self._send({"type": "ping"})

    async def _send(self, message: dict[str, Any]) -> None:
        """Write one message; a reader that takes nothing is cut off."""
        data = _encode(message).decode()
        try:
            async with self._writing, asyncio.timeout(STUCK_S):
                if not self._over.done():
                    await self._socket.send_text(data)
                    self._gate.metrics.messages_sent.inc("graphql", _KINDS.get(message["type"], ""))
        except TimeoutError:
            self._gate.metrics.slow_consumer.inc("graphql")
            self.end(TRY_AGAIN, "slow_consumer")
            abort = self._socket.scope.get(ABORT)
            if abort is not None:
                abort()
        except (WebSocketDisconnect, RuntimeError):
            self.end(NORMAL, "gone")  # the other end has left: `run` sees it


_KINDS: Final = {"connection_ack": "init", "next": "event", "error": "error", "ping": "ping",
                 "complete": "answer"}  # fmt: skip


def _token_of(payload: object) -> str:
    """The session that the first message brings."""
    for name, value in payload.items() if isinstance(payload, dict) else ():
        if str(name).lower() in _TOKENS and isinstance(value, str):
            scheme, _, rest = value.partition(" ")
            return rest.strip() if scheme.lower() == "bearer" else value
    return ""


async def _nothing(message: dict[str, Any]) -> None:
    del message
