"""Events of runs that somebody waits for, on NATS: one consumer that all gateways share.

Most runs have no request, and the broker cannot tell by a header. Their messages are known by it
here and acknowledged undecoded, each with one word that nobody waits for. An acknowledgement of
all before a message would be cheaper, but it would speak for what other gateways still hold.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from noetl.bus import subjects
from noetl.bus.pulls import Pool
from noetl.bus.streams import FEED

if TYPE_CHECKING:
    from noetl.bus.broker import Broker
    from noetl.bus.clients import FedMessage
    from noetl.bus.pulls import Delivered
    from noetl.bus.streams import Consumer


class _Fed:
    """One delivery."""

    __slots__ = ("_delivered", "request_id")

    def __init__(self, request_id: str, delivered: Delivered) -> None:
        self.request_id = request_id
        self._delivered = delivered

    @property
    def payload(self) -> bytes:
        """What the commit published."""
        return self._delivered.payload

    async def ack(self) -> None:
        """It needs no further delivery."""
        await self._delivered.ack()

    async def nak(self, delay_s: float = 0.0) -> None:
        """Deliver it again, after a while."""
        await self._delivered.nak(delay_s)


class NatsFeed:
    """What commits publish about requests, from the time on at which the first gateway asked."""

    def __init__(self, broker: Broker, consumer: Consumer = FEED) -> None:
        self._pool = Pool(consumer, broker)

    async def fetch(self, limit: int, timeout_s: float) -> list[FedMessage]:
        """At least one as soon as there is one, else none after the time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            rest_s = max(0.0, deadline - loop.time())
            found: list[FedMessage] = []
            for each in await self._pool.delivered(limit, rest_s):
                request_id = each.headers.get(subjects.REQUEST_HEADER)
                if request_id:
                    found.append(_Fed(request_id, each))
                else:
                    await each.ack()
            if found or loop.time() >= deadline:
                return found
