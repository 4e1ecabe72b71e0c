"""Gateways that are alive, and the way to them: what a server has them do."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, ClassVar, Final

from noetl.api.http import Late, NoAnswer
from noetl.api.sockets import BadAddress, SocketTransport
from noetl.edge.moments import from_now
from noetl.errors import NoetlError
from noetl.server.fleet.workers import SILENT_AFTER_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from noetl.api.http import Answer, Transport
    from noetl.clock import Clock
    from noetl.server.access.bearers import InternalToken
    from noetl.store.base import Runtimes

KIND: Final = "gateway"
ANSWER_S: Final = 15.0
"""A gateway answers a delivery within eight seconds."""


class NoGateway(NoetlError):
    """No gateway that takes deliveries is known, or none answers."""

    code = "no_gateway"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 5.0


class Gateways:
    """Asks one of the gateways that were heard of lately."""

    def __init__(
        self,
        runtimes: Runtimes,
        clock: Clock,
        token: InternalToken,
        way: Callable[[str], AbstractAsyncContextManager[Transport]] | None,
    ) -> None:
        self._runtimes = runtimes
        self._clock = clock
        self._token = token
        self._way = way

    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str], *, as_service: bool = False
    ) -> Answer:
        """What a gateway answers; with the bearer of our own processes, if it is to know us.

        One that cannot be reached is passed over. One that is late may have done it.
        """
        if as_service and (token := self._token.current):
            headers = {**headers, "authorization": f"Bearer {token}"}
        for uri in await self._alive():
            try:
                async with self._to(uri) as way:
                    return await way.request("POST", path, body, headers)
            except Late:
                raise NoGateway("the gateway did not answer in time", hint="try again") from None
            except (NoAnswer, BadAddress):
                continue
        raise NoGateway("no gateway can be reached", hint="start one with `noetl gateway`")

    def _to(self, uri: str) -> AbstractAsyncContextManager[Transport]:
        if self._way is None:
            raise NoGateway("this server has no way to gateways")
        return self._way(uri)

    async def _alive(self) -> list[str]:
        """Where gateways are that were heard of lately, the latest first."""
        since = from_now(self._clock, -SILENT_AFTER_S)
        rows = [row for row in await self._runtimes.listed(KIND) if row.heartbeat >= since]
        rows.sort(key=lambda row: row.heartbeat, reverse=True)
        return [row.uri for row in rows if row.uri and row.status != "draining"]


@asynccontextmanager
async def over_sockets(uri: str) -> AsyncIterator[Transport]:
    """The way to a gateway at an address, for a request or a few."""
    way = SocketTransport(uri, timeout_s=ANSWER_S, connections=1)
    try:
        yield way
    finally:
        await way.close()
