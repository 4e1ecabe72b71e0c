"""Connections to brokers, one per address and login, kept while they are used."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from noetl.sources.base import SourceError
from noetl.tools.base import ToolError, remedied
from noetl.tools.keeping import IDLE_S, Care, Keeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client

    from noetl.bus.address import Address
    from noetl.tools.http.egress import Guard

CLOSE_S: Final = 2.0


class Connections:
    """The connections of one process; their hosts obey the guard."""

    def __init__(self, guard: Guard, idle_s: float = IDLE_S) -> None:
        self.guard = guard
        care = Care(open=self._connected, close=_ended, is_alive=_is_alive)
        self._kept: Keeper[Address, Client] = Keeper(care, idle_s)

    def __len__(self) -> int:
        """How many are open."""
        return len(self._kept)

    @asynccontextmanager
    async def use(self, place: Address) -> AsyncIterator[Client]:
        """The connection of a place."""
        try:
            async with self._kept.use(place) as client:
                yield client
        except SourceError as fault:
            raise translated(fault) from fault

    async def close(self) -> None:
        """End every connection."""
        await self._kept.close()

    async def _connected(self, place: Address) -> Client:
        # The client of NATS is imported with the first task that needs it.
        from noetl.sources.connecting import connect  # noqa: PLC0415 - see above

        return await connect(place, self.guard.addresses)


def _is_alive(client: Client) -> bool:
    return client.is_connected


async def _ended(client: Client) -> None:
    from nats.errors import Error  # noqa: PLC0415 - as above

    try:
        async with asyncio.timeout(CLOSE_S):
            await client.close()
    except (OSError, Error, TimeoutError):
        return  # it is gone either way


def translated(fault: SourceError) -> ToolError:
    """A fault of a source as an error of the task."""
    error = ToolError(fault.kind, fault.code, fault.message, retryable=fault.is_retryable)
    return remedied(error)
