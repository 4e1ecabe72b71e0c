"""The HTTP server under the door: the one place that knows which one it is.

A connection that grows its headers for ever is refused, one that says nothing is closed, and a
request whose caller has left is cancelled: nobody would read its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any, Final

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from noetl.errors import NoetlError
from noetl.server.door import GONE
from noetl.server.errors import HeadersTooLarge
from noetl.server.problems import MEDIA_TYPE, problem_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp
    from uvicorn._types import ASGI3Application

MOST_HEAD_BYTES: Final = 32 * 1024
HEAD_S: Final = 10.0
KEEP_ALIVE_S: Final = 75
CLOSING_S: Final = 5
_BACKLOG: Final = 2048
_PER_HEADER: Final = len(": \r\n")


class PortTaken(NoetlError):
    """The address cannot be listened on."""

    code = "address_unavailable"


class Connection(HttpToolsProtocol):
    """One connection of a caller."""

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - as the class below
        super().__init__(*args, **named)
        self._head_bytes = 0
        self._header_bytes = 0
        self._is_refused = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._running: tuple[RequestResponseCycle, asyncio.Task[None]] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as the class below
        """Close a connection that never says anything."""
        super().connection_made(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what nobody waits for any more."""
        self._head_ends()
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
        self._head_bytes += len(data)
        super().data_received(data)
        if self._is_refused or self.transport.is_closing():
            return
        if self._head_bytes > MOST_HEAD_BYTES:
            self._refuse()
        elif self._head_bytes and self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self.transport.close)

    def on_message_begin(self) -> None:
        """Count anew."""
        super().on_message_begin()
        self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Count the address that came at once."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count the headers that came at once."""
        super().on_header(name, value)
        self._count(len(name) + len(value) + _PER_HEADER)

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MOST_HEAD_BYTES:
            self._refuse()
            raise HeadersTooLarge("refused")  # ends the work of the parser

    def on_headers_complete(self) -> None:
        """Begin the request."""
        super().on_headers_complete()
        self._head_ends()

    def on_body(self, body: bytes) -> None:
        """Bytes of a body are no head."""
        super().on_body(body)
        self._head_bytes = 0

    def on_message_complete(self) -> None:
        """Wait for the next request."""
        super().on_message_complete()
        self._head_bytes = 0

    def send_400_response(self, msg: str) -> None:
        """Say that it is no HTTP, once."""
        if not self._is_refused:
            super().send_400_response(msg)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        task = self.loop.create_task(cycle.run_asgi(app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)
        self._running = (cycle, task)

    def _head_ends(self) -> None:
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self) -> None:
        self._is_refused = True
        self._head_ends()
        problem = problem_of(HeadersTooLarge(f"the headers have more than {MOST_HEAD_BYTES} bytes"))
        body = msgspec.json.encode(problem)
        head = (
            f"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


class Listener(uvicorn.Server):
    """A server that leaves the signals of the process to the process."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.heard = asyncio.Event()
        """Set when callers are heard."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to hear."""
        await super().startup(sockets)
        self.heard.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        yield

    def stop(self) -> None:
        """Finish what is under way, then end."""
        self.should_exit = True


def listener(app: ASGIApp, *, tls_cert: str = "", tls_key: str = "") -> Listener:
    """The HTTP server of an app, on whatever socket it is given."""
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        loop="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CLOSING_S,
        ssl_certfile=tls_cert or None,
        ssl_keyfile=tls_key or None,
    )
    return Listener(config)


def bound(host: str, port: int) -> socket.socket:
    """A socket of an address, on which nobody is heard yet."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
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
