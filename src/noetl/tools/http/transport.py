"""The one door out: pooled connections, each to an address that the guard let pass."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import httpcore
import httpx

from noetl.tools.base import ToolError
from noetl.tools.http.failures import translated
from noetl.tools.http.tally import Tally

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Iterable

    from noetl.tools.http.egress import Guard
    from noetl.tools.http.request import Request

MOST_CONNECTIONS: Final = 64
MOST_IDLE: Final = 16
IDLE_S: Final = 30.0

SocketOption = (
    tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
)


class _Guarded(httpcore.AsyncNetworkBackend):
    """Connects to addresses that were judged, never to names: TLS still checks the name."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of httpcore
        local_address: str | None = None,
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Try the addresses of the host in their order."""
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._guard.addresses(host, port)
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"{host}: the name was not resolved in time") from None
        for index, address in enumerate(addresses):
            try:
                return await self._network.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if index == len(addresses) - 1:
                    raise
        raise AssertionError("the guard answers with an address or raises")

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of httpcore
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Refuse: there is no such door."""
        del path, timeout, socket_options
        raise ToolError("egress", "egress_denied", "requests to local sockets are refused")

    async def sleep(self, seconds: float) -> None:
        """Wait between two tries of a connection."""
        await asyncio.sleep(seconds)


class Door:
    """The connections of one process; one pool per way to treat certificates, or their lack."""

    def __init__(self, guard: Guard, tally: Tally | None = None) -> None:
        self._guard = guard
        self._tally = tally or Tally()
        self._pools: dict[str, httpcore.AsyncConnectionPool] = {}

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncIterator[httpcore.Response]:
        """Send one request; the answer's body is read inside the block."""
        try:
            async with self._sent(request) as response:
                self._tally.answered(response.status)
                yield response
        except ToolError as fault:
            self._tally.failed(fault)
            raise

    @asynccontextmanager
    async def _sent(self, request: Request) -> AsyncIterator[httpcore.Response]:
        url = request.url
        self._guard.egress.refuse_url(url.scheme, bool(url.userinfo), url.host)
        target = httpcore.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        try:
            async with self._pool(url.scheme, verify=request.verify).stream(
                request.method,
                target,
                headers=request.raw_headers,
                content=request.content,
                extensions={"timeout": dict(request.timeout)},
            ) as response:
                yield response
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as fault:
            raise translated(fault) from fault

    def _pool(self, scheme: str, *, verify: bool) -> httpcore.AsyncConnectionPool:
        is_plain = scheme == "http"  # loading certificates takes longer than a local request
        key = "plain" if is_plain else f"verify {verify}"
        if key not in self._pools:
            self._pools[key] = httpcore.AsyncConnectionPool(
                ssl_context=None if is_plain else _certificates(verify=verify),
                max_connections=MOST_CONNECTIONS,
                max_keepalive_connections=MOST_IDLE,
                keepalive_expiry=IDLE_S,
                network_backend=_Guarded(self._guard),
            )
        return self._pools[key]

    async def close(self) -> None:
        """Close every connection."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.aclose()


def _certificates(*, verify: bool) -> ssl.SSLContext:
    """Roots that come along and those of the machine, or no check at all."""
    context = httpx.create_ssl_context(verify=verify, trust_env=False)
    if verify:
        context.load_default_certs()
    return context
