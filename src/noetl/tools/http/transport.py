"""The one door out: pooled connections, each to an address that the guard let pass."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import httpcore

from noetl.tools.base import ToolError
from noetl.tools.http.bodies import Streamed
from noetl.tools.http.dial import dialled, no_socket
from noetl.tools.http.failures import translated
from noetl.tools.http.pool import Pool
from noetl.tools.http.tally import Tally
from noetl.tools.http.tls import certificates

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from noetl.tools.http.egress import Guard
    from noetl.tools.http.request import Request

MOST_POOLS: Final = 16

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
        return await dialled(
            self._guard,
            (host, port, timeout),
            lambda address: self._network.connect_tcp(
                address, port, timeout, local_address, socket_options
            ),
            late=httpcore.ConnectTimeout,
            failed=(httpcore.ConnectError, httpcore.ConnectTimeout),
        )

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of httpcore
        socket_options: Iterable[SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Refuse: there is no such door."""
        del path, timeout, socket_options
        raise no_socket()

    async def sleep(self, seconds: float) -> None:
        """Wait between two tries of a connection."""
        await asyncio.sleep(seconds)


class Door:
    """The connections of one process; one pool per way to treat certificates, or their lack."""

    def __init__(self, guard: Guard, tally: Tally | None = None, *, authority: str = "") -> None:
        self._guard = guard
        self._tally = tally or Tally()
        self._authority = authority
        self._pools: dict[str, Pool] = {}
        self._making = asyncio.Lock()

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
        content, pool = request.content, await self._pool(request)
        try:
            async with (
                pool.lend(target.origin) as connection,
                connection.stream(
                    request.method,
                    target,
                    headers=request.raw_headers,
                    content=aiter(content) if isinstance(content, Streamed) else content,
                    extensions={"timeout": dict(request.timeout)},
                ) as response,
            ):
                yield response
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as fault:
            raise translated(fault) from fault
        finally:
            if len(self._pools) > MOST_POOLS:
                await self._forget()

    async def _pool(self, request: Request) -> Pool:
        is_plain = request.url.scheme == "http"
        tls = None if is_plain else request.tls
        key = "plain" if is_plain else f"verify {request.verify} {'' if tls is None else tls.key}"
        if key not in self._pools:
            async with self._making:
                if key not in self._pools:
                    context = None
                    if not is_plain:  # loading certificates takes longer than many a request
                        context = await asyncio.to_thread(
                            certificates, verify=request.verify, authority=self._authority, tls=tls
                        )
                    self._pools[key] = Pool(_Guarded(self._guard), context)
        found = self._pools[key] = self._pools.pop(key)  # the last one is the last that was used
        return found

    async def _forget(self) -> None:
        """Close the pool that was not used for the longest time."""
        key = next((key for key, pool in self._pools.items() if not pool.used), None)
        if key is not None:
            await self._pools.pop(key).close()

    async def close(self) -> None:
        """Close every connection."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()
