"""Events of runs that somebody waits for, inside one process: delivered until acknowledged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from noetl.bus.memory import Consumer, Kept
from noetl.bus.streams import FEED_RULES

if TYPE_CHECKING:
    from noetl.bus.base import Delivery, Message
    from noetl.bus.clients import FedMessage


class _Fed:
    """One delivery."""

    __slots__ = ("_message",)

    def __init__(self, message: Message) -> None:
        self._message = message

    @property
    def request_id(self) -> str:
        """The request of the run."""
        return self._message.subject

    @property
    def payload(self) -> bytes:
        """What the commit published."""
        return self._message.payload

    async def ack(self) -> None:
        """It needs no further delivery."""
        await self._message.ack()

    async def nak(self, delay_s: float = 0.0) -> None:
        """Deliver it again, after a while."""
        await self._message.nak(delay_s)


class MemoryFeed:
    """What a bus of this process publishes about requests."""

    def __init__(self, rules: Delivery = FEED_RULES) -> None:
        self._rules = rules
        self._consumer = Consumer(rules)

    def put(self, request_id: str, payload: bytes) -> None:
        """Deliver a commit of a request's run."""
        now = asyncio.get_running_loop().time()
        self._consumer.add(Kept(request_id, payload, now + self._rules.max_age_s), now)

    async def fetch(self, limit: int, timeout_s: float) -> list[FedMessage]:
        """At least one as soon as there is one, else none after the time."""
        return [_Fed(message) for message in await self._consumer.fetch(limit, timeout_s)]

    def close(self) -> None:
        """Whoever waits gets `BusGone`."""
        self._consumer.close()
