"""Connections that are kept for the next request to the same place.

The pool of the client looks at every connection for every request, so a hundred requests at once
would wait for each other; here a request takes one connection and looks at no other.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import httpcore

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

MOST_IDLE: Final = 64
IDLE_S: Final = 30.0


class Pool:
    """Connections of one way to treat certificates; as many as there are requests."""

    def __init__(
        self, backend: httpcore.AsyncNetworkBackend, context: ssl.SSLContext | None
    ) -> None:
        self.used = 0
        """How many requests are under way."""
        self._backend = backend
        self._context = context
        self._idle: list[tuple[httpcore.Origin, httpcore.AsyncHTTPConnection]] = []

    @asynccontextmanager
    async def lend(self, origin: httpcore.Origin) -> AsyncIterator[httpcore.AsyncHTTPConnection]:
        """A connection to a place for one request."""
        self.used += 1
        try:
            connection = await self._taken(origin)
            try:
                yield connection
            finally:
                await self._back(origin, connection)
        finally:
            self.used -= 1

    async def _taken(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        for at in range(len(self._idle) - 1, -1, -1):  # the last that was used lives longest
            if self._idle[at][0] != origin:
                continue
            connection = self._idle.pop(at)[1]
            if not connection.has_expired():
                return connection
            await connection.aclose()
            return await self._taken(origin)
        return httpcore.AsyncHTTPConnection(
            origin,
            ssl_context=self._context,
            keepalive_expiry=IDLE_S,
            network_backend=self._backend,
        )

    async def _back(
        self, origin: httpcore.Origin, connection: httpcore.AsyncHTTPConnection
    ) -> None:
        if not connection.is_idle() or connection.is_closed():
            await connection.aclose()
            return
        self._idle.append((origin, connection))
        while self._idle and (len(self._idle) > MOST_IDLE or self._idle[0][1].has_expired()):
            await self._idle.pop(0)[1].aclose()

    async def close(self) -> None:
        """Close what nobody uses."""
        idle, self._idle = self._idle, []
        for _, connection in idle:
            await connection.aclose()
