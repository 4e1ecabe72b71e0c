"""The HTTP server under the door; only this and `websocket` know which one it is.

A connection that grows its headers for ever is refused, one that says nothing is closed, and a
request whose caller has left is cancelled: nobody would read its answer.

Most requests are small and come whole. Such a one is begun when its body is there, answered with
one write, and has no timers of its own: one look every few seconds finds what takes too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from noetl.edge.door import ABORT, BODY, GONE, LATE, PATIENT, REPLY, REQUEST_S, SLOW
from noetl.edge.errors import HeadersTooLarge, RequestTimeout
from noetl.edge.problems import MEDIA_TYPE, problem_of
from noetl.edge.websocket import Socket
from noetl.errors import NoetlError
from noetl.ids import random_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp
    from uvicorn._types import ASGI3Application

MOST_HEAD_BYTES: Final = 32 * 1024
HEAD_S: Final = 10.0
KEEP_ALIVE_S: Final = 75
TICK_S: Final = 1.0
"""How often an idle server is woken."""
TICKS: Final = 10
"""In that time, as the server below counts them."""
LOOK_TICKS: Final = 5 * TICKS
MOST_HELD_BYTES: Final = 64 * 1024
"""A longer body is read while it comes."""
HELD_S: Final = 1.0
LEAST_RATE: Final = 8 * 1024
"""Bytes per second of a body that is not too slow."""
CLOSING_S: Final = 5
PARTING_S: Final = 2.0
"""How long a caller may go on sending what nobody wants, so that it comes to read the answer."""
_BACKLOG: Final = 2048
_PER_HEADER: Final = len(": \r\n")
_LENGTH: Final = len("content-length")
_CODING: Final = len("transfer-encoding")
_DIGITS: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a caller may send, and how long it may take."""

    head_bytes: int = MOST_HEAD_BYTES
    head_fields: int | None = None
    body_s: float | None = None
    """How long a body may take to come, and a second more for each 8 KiB of it; none: as long as
    the route lets it."""
    request_s: float = REQUEST_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Sockets:
    """How WebSockets are spoken; without these none is."""

    most_bytes: int
    """Of one message."""
    ping_s: float


class Settings(uvicorn.Config):
    """What the HTTP server is told."""

    bounds: Bounds = Bounds()


class PortTaken(NoetlError):
    """The address cannot be listened on."""

    code = "address_unavailable"


class _Ending(asyncio.Transport):
    """How a request writes whose body has not come whole; whoever closes it does so with care."""

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        super().__init__()
        self._transport = transport
        self._close = close

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        self._close()


class Connection(HttpToolsProtocol):
    """One connection of a caller."""

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - as the class below
        super().__init__(*args, **named)
        self._bounds: Bounds = getattr(self.config, "bounds", Bounds())
        self._head_bytes = 0
        self._header_bytes = 0
        self._fields = 0
        self._came_bytes = 0
        self._is_refused = False
        self._parting: asyncio.TimerHandle | None = None
        self._head_timer: asyncio.TimerHandle | None = None
        self._running: tuple[RequestResponseCycle, asyncio.Task[None]] | None = None
        self._began = 0.0
        self._held: tuple[RequestResponseCycle, ASGI3Application] | None = None
        self._held_timer: asyncio.TimerHandle | None = None
        self._body_bytes = 0
        self._idle_since: float | None = None
        self._slow_s = 0.0
        self._slow_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as the class below
        """Count a connection that never says anything as idle."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what nobody waits for any more."""
        self._head_ends()
        self._held_ends()
        if self._slow_timer is not None:
            self._slow_timer.cancel()
        if self._parting is not None:
            self._parting.cancel()
        if self._running is not None:
            cycle, task = self._running
            self._running = None
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.scope[GONE] = True  # type: ignore[typeddict-unknown-key] # an extension of ours
                task.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read; a head that does not end is refused by size and by time."""
        if self._parting is not None:
            return
        self._head_bytes += len(data)
        super().data_received(data)
        if self._held is not None and self._held_timer is None:
            self._held_timer = self.loop.call_later(HELD_S, self._release)
        if self._is_refused or self.transport.is_closing():
            return
        if self._head_bytes > self._bounds.head_bytes:
            self._refuse(self._too_large())
        elif self._head_bytes and self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self._head_late)

    def on_message_begin(self) -> None:
        """Count anew."""
        super().on_message_begin()
        self._header_bytes = self._body_bytes = self._fields = self._came_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Count the address that came at once."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the headers that came at once."""
        super().on_header(name, value)
        if len(name) == _LENGTH and name.lower() == b"content-length" and value.isdigit():
            self._body_bytes = int(value[:_DIGITS])
        elif len(name) == _CODING and name.lower() == b"transfer-encoding":
            self._body_bytes = MOST_HELD_BYTES + 1
        self._fields += 1
        self._count(len(name) + len(value) + _PER_HEADER)

    def _count(self, size: int) -> None:
        self._header_bytes += size
        most = self._bounds.head_fields
        if self._header_bytes > self._bounds.head_bytes or self._fields > (most or self._fields):
            self._refuse(self._too_large())
            raise HeadersTooLarge("refused")  # ends the work of the parser

    def _too_large(self) -> HeadersTooLarge:
        most = self._bounds.head_fields
        told = "" if most is None else f", or more than {most} fields"
        return HeadersTooLarge(f"the headers have more than {self._bounds.head_bytes} bytes{told}")

    def _head_late(self) -> None:
        if not self.transport.is_closing():
            self._refuse(RequestTimeout("the request came too slowly", hint="send it at once"))

    def on_headers_complete(self) -> None:
        """Begin the request."""
        super().on_headers_complete()
        self._head_ends()

    def on_body(self, body: bytes) -> None:
        """Bytes of a body are no head."""
        super().on_body(body)
        self._head_bytes = 0
        self._came_bytes += len(body)

    def on_message_complete(self) -> None:
        """Begin what waited for its body, and wait for the next request."""
        super().on_message_complete()
        self._head_bytes = 0
        if self._held is not None:
            self._release()

    def send_400_response(self, msg: str) -> None:
        """Say that it is no HTTP, once."""
        if not self._is_refused:
            super().send_400_response(msg)

    def on_response_complete(self) -> None:
        """Begin the next of the requests that came together, or wait for one."""
        self.server_state.total_requests += 1
        if self._parting is not None:
            return
        if not self._slow_s:
            self._go_on()
        elif not self.transport.is_closing():
            self.flow.pause_reading()
            self._slow_timer = self.loop.call_later(self._slow_s, self._go_on)

    def _go_on(self) -> None:
        self._slow_s = 0.0
        if self.transport.is_closing():
            return
        following = self.pipeline.pop() if self.pipeline else None
        if not self.pipeline:  # else each answer would let in as many more as fit into one read
            self.flow.resume_reading()
        if following is not None:
            self._start_asgi_task(*following)
        else:
            self._idle_since = self.loop.time()

    def _slow(self, seconds: float) -> None:
        self._slow_s = seconds

    def _unset_keepalive_if_required(self) -> None:
        self._idle_since = None

    def look(self, now: float) -> None:
        """End what takes too long: a request without an answer, a connection without a request."""
        if self._idle_since is not None and now - self._idle_since >= self.timeout_keep_alive:
            self.timeout_keep_alive_handler()
        if self._running is not None:
            cycle, task = self._running
            if not cycle.response_started and self._is_late(cycle, now - self._began):
                cycle.scope[LATE] = True  # type: ignore[typeddict-unknown-key] # an extension of ours
                task.cancel()

    def _is_late(self, cycle: RequestResponseCycle, passed_s: float) -> bool:
        """Whether an answer takes too long, or the body that it needs."""
        bounds = self._bounds
        if passed_s >= bounds.request_s and PATIENT not in cycle.scope:
            return True
        if bounds.body_s is None or not cycle.more_body or self.flow.read_paused:
            return False
        return passed_s >= bounds.body_s + self._came_bytes / LEAST_RATE

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        is_short = self._body_bytes <= MOST_HELD_BYTES and not cycle.waiting_for_100_continue
        if cycle.more_body and is_short and cycle is self.cycle:
            self._held = (cycle, app)
        else:
            self._begin(cycle, app)

    def _release(self) -> None:
        """Begin a request whose body has come, or does not come at once."""
        held = self._held
        self._held_ends()
        if held is not None:
            self._begin(*held)

    def _held_ends(self) -> None:
        self._held = None
        if self._held_timer is not None:
            self._held_timer.cancel()
            self._held_timer = None

    def _begin(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        scope: dict[str, Any] = cycle.scope  # type: ignore[assignment] # extensions of ours
        scope[ABORT] = self.transport.abort
        scope[SLOW] = self._slow
        if not cycle.more_body:
            scope[BODY] = bytes(cycle.body)
            scope[REPLY] = functools.partial(self._reply, cycle)
        else:
            cycle.transport = _Ending(self.transport, functools.partial(self._end, cycle))
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        self._began = self.loop.time()
        self._running = (cycle, task)

    def _reply(
        self,
        cycle: RequestResponseCycle,
        status: int,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
    ) -> bool:
        """Write a whole answer; false, and nothing written, when the slow way is needed."""
        if cycle.disconnected:
            return True
        if self.flow.write_paused or cycle.response_started:
            return False
        parts = [STATUS_LINE[status]]
        for name, value in (*cycle.default_headers, *headers):
            if b"\r" in value or b"\n" in value or name == b"connection":
                return False
            parts += (name, b": ", value, b"\r\n")
        parts.append(b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n")
        if cycle.scope["method"] != "HEAD":
            parts.append(body)
        self.transport.write(b"".join(parts))
        cycle.response_started = cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()
        return True

    def _end(self, cycle: RequestResponseCycle) -> None:
        """Close after an answer; a caller that still sends the body reads it first."""
        if cycle.more_body:
            self._part()
        else:
            self.transport.close()

    def _part(self) -> None:
        """Say no more, and read on for a moment.

        Bytes that lie unread when a connection is closed reset it, and the caller loses the answer
        that it has not read yet.
        """
        if self._parting is not None or self.transport.is_closing():
            return
        self._parting = self.loop.call_later(PARTING_S, self.transport.close)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()

    def _head_ends(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, refusal: NoetlError) -> None:
        """Answer a request that no app has seen, and end the connection."""
        self._is_refused = True
        self._head_ends()
        request_id = f"r-{random_key()}"
        body = msgspec.json.encode(problem_of(refusal, request_id))
        head = (
            f"content-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
            f"x-request-id: {request_id}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(STATUS_LINE[refusal.status] + head.encode() + body)
        self._part()


class Listener(uvicorn.Server):
    """A server that leaves the signals of the process to the process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.heard = asyncio.Event()
        """Set when callers are heard."""
        self._stopped = asyncio.Event()

    async def main_loop(self) -> None:
        """Tick once a second, until it is to end."""
        ticks = 0
        while not await self.on_tick(ticks):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._stopped.wait()
            ticks = (ticks + TICKS) % LOOK_TICKS

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to hear."""
        await super().startup(sockets)
        self.heard.set()

    async def on_tick(self, counter: int) -> bool:
        """Now and then look for what takes too long."""
        if counter % LOOK_TICKS == 0:
            now = asyncio.get_running_loop().time()
            for one in list(self.server_state.connections):
                if isinstance(one, Connection):
                    one.look(now)
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        yield

    def stop(self) -> None:
        """Finish what is under way, then end."""
        self.should_exit = True
        self._stopped.set()


def listener(  # noqa: PLR0913 - each a fact about how callers are heard
    app: ASGIApp,
    *,
    tls_cert: str = "",
    tls_key: str = "",
    tls_client_ca: str = "",
    bounds: Bounds | None = None,
    sockets: Sockets | None = None,
    closing_s: int = CLOSING_S,
) -> Listener:
    """The HTTP server of an app, on whatever socket it is given."""
    config = Settings(
        app,
        http=Connection,
        ws="none" if sockets is None else Socket,
        ws_max_size=0 if sockets is None else sockets.most_bytes,
        ws_ping_interval=None if sockets is None else sockets.ping_s,
        ws_ping_timeout=None,
        ws_per_message_deflate=False,
        lifespan="off",
        interface="asgi3",
        loop="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=closing_s,
        ssl_certfile=tls_cert or None,
        ssl_keyfile=tls_key or None,
        ssl_ca_certs=tls_client_ca or None,
        ssl_cert_reqs=ssl.CERT_REQUIRED if tls_client_ca else ssl.CERT_NONE,
    )
    config.bounds = bounds or Bounds()
    return Listener(config)


def bound(host: str, port: int) -> socket.socket:
    """A socket of an address, on which nobody is heard yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, so that the loop lets small parts go at once: it looks at the name.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.setblocking(False)  # noqa: FBT003 - as the socket has it
    except OSError as fault:
        made.close()
        raise PortTaken(
            f"the address {host}:{port} cannot be listened on: {fault.strerror}",
            hint="is another server running there? choose another with NOETL_PORT or --port",
        ) from fault
    return made
