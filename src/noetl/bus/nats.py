"""The bus on NATS."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from noetl.bus import streams, subjects
from noetl.bus.address import Address
from noetl.bus.base import Delivery, Letter, Told
from noetl.bus.broker import Broker
from noetl.bus.objects import NatsObjects
from noetl.bus.pulls import Pool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from nats.aio.msg import Msg

    from noetl.bus.base import Hints


class NatsBus:
    """Streams, consumers and listeners of a NATS server or cluster."""

    def __init__(self, broker: Broker, rules: Delivery | None = None) -> None:
        self._broker = broker
        self._rules = rules or Delivery()
        self._pools: dict[str, Pool] = {}

    @classmethod
    async def open(  # noqa: PLR0913 - the ways to say who we are, each a setting of its own
        cls,
        url: str,
        *,
        user: str = "",
        password: str = "",
        token: str = "",
        creds: str = "",
        rules: Delivery | None = None,
    ) -> NatsBus:
        """Begin to connect; `ready` waits for it, everybody else finds the bus away until then."""
        address = Address.of(url, user=user, password=password, token=token, creds=creds)
        broker = Broker(address, streams.core(rules))
        broker.start()
        return cls(broker, rules)

    @property
    def connections(self) -> int:
        """How often a connection was made."""
        return self._broker.connections

    @property
    def is_connected(self) -> bool:
        """Whether the bus is there, with everything declared."""
        return self._broker.is_connected

    async def ready(self, timeout_s: float) -> None:
        """Wait until it is there; `StreamDrift` at once when the broker refuses our streams."""
        await self._broker.ready(timeout_s)

    async def publish(self, subject: str, payload: bytes, msg_id: str) -> bool:
        """Keep a message until it is acknowledged; false for an id seen in the window before."""
        return await self.publish_many((Letter(subject, payload, msg_id),)) == 1

    async def publish_many(self, letters: Sequence[Letter]) -> int:
        """Publish messages in order without waiting in between; how many ids were new."""
        return sum(not ack.duplicate for ack in await self._broker.publish(letters))

    def hints(self, pool: str) -> Hints:
        """The hints of a pool, also those published before anyone asked."""
        name = subjects.token(pool)
        found = self._pools.get(name)
        if found is None:
            found = Pool(streams.consumer(pool, self._rules), self._broker)
            self._pools[name] = found
        return found

    async def lag(self, pool: str) -> int:
        """How many hints of a pool nobody has fetched yet; a pool without a worker has none."""
        name = f"{subjects.COMMANDS_STREAM}.{subjects.consumer(pool)}"
        try:
            found = await self._broker.here().call(f"CONSUMER.INFO.{name}")
        except streams.ApiFault as refusal:
            if refusal.err_code == streams.NO_CONSUMER:
                return 0
            raise
        return int(found["num_pending"])

    async def tell(self, subject: str, payload: bytes) -> None:
        """Tell whoever listens now."""
        await self._broker.here().send(subject, payload)

    @asynccontextmanager
    async def listen(self, subject: str) -> AsyncIterator[AsyncIterator[Told]]:
        """Hear what is told or published under a subject, over lost connections too."""
        async with self._broker.listen(subject, _told) as words:
            yield words

    def messages(self, bucket: str) -> NatsObjects:
        """The messages of a store of objects."""
        return NatsObjects(self._broker, bucket)

    async def close(self) -> None:
        """Let go; whoever waits gets `BusGone`, whoever listens comes to an end."""
        await self._broker.close()


def _told(msg: Msg) -> Told:
    return Told(msg.subject, msg.data)
