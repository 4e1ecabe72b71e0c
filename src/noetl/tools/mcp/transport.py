"""The door out for the client of MCP: connections to addresses that the guard let pass."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Final

import httpcore2
import httpx2

from noetl.tools.base import ToolError, remedied, remedy_of
from noetl.tools.http.dial import dialled, no_socket
from noetl.tools.http.failures import kind_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from noetl.tools.http.egress import Guard

CONNECT_S: Final = 10.0
_REFUSED: Final = 400

SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)


class _Guarded(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that were judged, never to names: TLS still checks the name."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of httpcore2
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Try the addresses of the host in their order."""
        return await dialled(
            self._guard,
            (host, port, timeout),
            lambda address: self._network.connect_tcp(
                address, port, timeout, local_address, socket_options
            ),
            late=httpcore2.ConnectTimeout,
            failed=(httpcore2.ConnectError, httpcore2.ConnectTimeout),
        )

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of httpcore2
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Refuse: there is no such door."""
        del path, timeout, socket_options
        raise no_socket()

    async def sleep(self, seconds: float) -> None:
        """Wait between two tries of a connection."""
        await asyncio.sleep(seconds)


class _Body(httpx2.AsyncByteStream):
    """The body of an answer as it comes."""

    def __init__(self, response: httpcore2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._response.aiter_stream():
            yield part

    async def aclose(self) -> None:
        """Let the connection go."""
        await self._response.aclose()


class Guarded(httpx2.AsyncBaseTransport):
    """Connections of one session, and why its last request failed."""

    def __init__(self, guard: Guard) -> None:
        self.fault: ToolError | None = None
        self._guard = guard
        self._pools: dict[str, httpcore2.AsyncConnectionPool] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; what goes wrong is kept for whoever asks the session."""
        url = request.url
        try:
            self._guard.egress.refuse_url(url.scheme, bool(url.userinfo), url.host)
            answer = await self._pool(url.scheme).handle_async_request(
                httpcore2.Request(
                    method=request.method,
                    url=httpcore2.URL(
                        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        except ToolError as fault:
            self.fault = fault
            raise
        except (
            httpcore2.NetworkError,
            httpcore2.ProtocolError,
            httpcore2.TimeoutException,
        ) as fault:
            self.fault = _translated(fault)
            raise httpx2.TransportError(str(fault)) from fault
        if answer.status >= _REFUSED:
            self.fault = refused(answer.status)
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close every connection."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.aclose()

    def _pool(self, scheme: str) -> httpcore2.AsyncConnectionPool:
        if scheme not in self._pools:
            context = httpx2.create_ssl_context(trust_env=False) if scheme == "https" else None
            self._pools[scheme] = httpcore2.AsyncConnectionPool(
                ssl_context=context, network_backend=_Guarded(self._guard), max_connections=None
            )
        return self._pools[scheme]


def refused(status: int) -> ToolError:
    """The error of an answer that is not ok."""
    message = f"the MCP server answered {status}: {remedy_of(status)}"
    return ToolError(kind_of(status), f"http_{status}", message, status_code=status)


def _translated(fault: Exception) -> ToolError:
    """The error of a connection that failed."""
    said = str(fault) or type(fault).__name__
    if isinstance(fault, httpcore2.TimeoutException):
        return remedied(ToolError("timeout", "CONN_TIMEOUT", said))
    here: BaseException | None = fault
    while here is not None:
        if isinstance(here, ToolError):
            return here
        if isinstance(here, ssl.SSLError):
            return remedied(ToolError("connection", "TLS_ERROR", str(here), retryable=False))
        if isinstance(here, socket.gaierror):
            return remedied(ToolError("connection", "DNS_ERROR", said))
        here = here.__cause__ or here.__context__
    code = "CONN_REFUSED" if isinstance(fault, httpcore2.ConnectError) else "CONN_RESET"
    return remedied(ToolError("connection", code, said))
