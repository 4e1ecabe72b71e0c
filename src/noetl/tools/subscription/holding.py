"""Sources that stay open between tasks.

A Kafka group is divided anew whenever a member comes or goes, which takes seconds. So a worker
keeps its membership for a minute after its last task: ids of a poll settle in later steps, and
what nobody settles in a minute is given again. NATS connections are shared with the kind `nats`.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from noetl.sources.base import SourceError
from noetl.sources.opening import LastingSource, opened
from noetl.sources.places import NatsPlace
from noetl.tools.keeping import Care, Keeper
from noetl.tools.nats.connections import translated
from noetl.tools.subscription.places import address_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from noetl.clock import Clock
    from noetl.sources.base import Source
    from noetl.sources.places import Place
    from noetl.tools.nats.connections import Connections

IDLE_S: Final = 60.0
ACK_WAIT_S: Final = 60.0


class Holding:
    """The open sources of one worker."""

    def __init__(self, connections: Connections, clock: Clock, idle_s: float = IDLE_S) -> None:
        self._connections = connections
        self._clock = clock
        care = Care(open=self._opened, close=LastingSource.close, is_alive=lambda _: True)
        self._kept: Keeper[Place, LastingSource] = Keeper(care, idle_s)

    def __len__(self) -> int:
        """How many are kept open."""
        return len(self._kept)

    @asynccontextmanager
    async def polling(self, place: Place) -> AsyncIterator[Source]:
        """The source of a place, to be polled."""
        if isinstance(place, NatsPlace):
            from noetl.sources.nats import NatsSource  # noqa: PLC0415 - its client comes with the first poll

            async with self._connections.use(address_of(place)) as client:
                yield await NatsSource.open(client, place.stream, place.consumer, self._clock)
            return
        async with self._use(place) as source:
            yield source

    @asynccontextmanager
    async def settling(self, place: Place, ack_ids: Sequence[str]) -> AsyncIterator[Source]:
        """The source of a place, to be told what became of messages."""
        if isinstance(place, NatsPlace):
            from noetl.sources.nats import NatsSource  # noqa: PLC0415 - as above

            async with self._connections.use(address_of(place)) as client:
                yield NatsSource(client, "", "", self._clock)
            return
        async with self._use(place) as source:
            take_over = getattr(await source.open(), "take_over", None)
            if take_over is not None:
                await take_over(ack_ids)
            yield source

    async def close(self) -> None:
        """Let go of every source."""
        await self._kept.close()

    @asynccontextmanager
    async def _use(self, place: Place) -> AsyncIterator[LastingSource]:
        try:
            async with self._kept.use(place) as source:
                yield source
        except SourceError as fault:
            raise translated(fault) from fault

    async def _opened(self, place: Place) -> LastingSource:
        source = LastingSource(
            lambda: opened(
                place, self._clock, self._connections.guard.addresses, ack_wait_s=ACK_WAIT_S
            )
        )
        await source.open()
        return source
