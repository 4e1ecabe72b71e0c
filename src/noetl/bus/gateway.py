"""Everything that a gateway has on the bus, over one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.bus import streams, subjects
from noetl.bus.address import Address
from noetl.bus.broker import Broker
from noetl.bus.memory import MemoryBus
from noetl.bus.memory_clients import MemoryClients
from noetl.bus.memory_feed import MemoryFeed
from noetl.bus.memory_keys import MemoryKeys
from noetl.bus.memory_objects import MemoryObjects
from noetl.bus.nats import NatsBus
from noetl.bus.nats_clients import NatsClients
from noetl.bus.nats_feed import NatsFeed
from noetl.bus.nats_keys import NatsKeys
from noetl.bus.objects import NatsObjects

if TYPE_CHECKING:
    from noetl.bus.base import Bus
    from noetl.bus.clients import ClientLog, RequestFeed
    from noetl.bus.keys import Keys
    from noetl.clock import Clock

LEAST_VERSION: Final = (2, 11)
"""The first nats-server whose keys have a time to live of their own."""


class GatewayBus:
    """The bus, the buckets, the log of clients and the feed of requests, on NATS."""

    def __init__(self, broker: Broker, sessions_bucket: str, requests_bucket: str) -> None:
        self.bus: Bus = NatsBus(broker)
        self.sessions: Keys = NatsKeys(broker, sessions_bucket)
        self.requests: Keys = NatsKeys(broker, requests_bucket)
        self.circuits: Keys = NatsKeys(broker, subjects.CIRCUITS_BUCKET)
        self.clients: ClientLog = NatsClients(broker)
        self.feed: RequestFeed = NatsFeed(broker)
        self._broker = broker

    @classmethod
    async def open(  # noqa: PLR0913 - the ways to say who we are, each a setting of its own
        cls,
        url: str,
        *,
        user: str = "",
        password: str = "",
        token: str = "",
        creds: str = "",
        sessions_bucket: str = subjects.SESSIONS_BUCKET,
        requests_bucket: str = subjects.REQUESTS_BUCKET,
    ) -> GatewayBus:
        """Begin to connect; `ready` waits for it, everybody else finds the bus away until then."""
        address = Address.of(url, user=user, password=password, token=token, creds=creds)
        buckets = {sessions_bucket, requests_bucket, subjects.CIRCUITS_BUCKET}
        # The stream of commands is not among them: only its users know its settings.
        wanted = (streams.EVENTS, streams.CLIENTS, *map(streams.bucket, sorted(buckets)))
        broker = Broker(address, wanted, LEAST_VERSION)
        broker.start()
        return cls(broker, sessions_bucket, requests_bucket)

    def messages(self, bucket: str) -> NatsObjects:
        """The messages of a store of objects."""
        return NatsObjects(self._broker, bucket)

    @property
    def is_connected(self) -> bool:
        """Whether the broker is there, with everything declared."""
        return self._broker.is_connected

    @property
    def connections(self) -> int:
        """How often a connection was made."""
        return self._broker.connections

    async def ready(self, timeout_s: float) -> None:
        """Wait until it is there; `StreamDrift`, `BrokerTooOld` at once, `BusGone` in the end."""
        await self._broker.ready(timeout_s)

    async def close(self) -> None:
        """Let go; whoever waits gets `BusGone`, whoever listens comes to an end."""
        await self._broker.close()


class MemoryGatewayBus:
    """The same inside one process; a server there may share its bus, so that its events come."""

    def __init__(self, bus: MemoryBus | None = None, clock: Clock | None = None) -> None:
        self._bus = bus or MemoryBus()
        self._is_shared = bus is not None
        self._sessions, self._requests, self._circuits = (MemoryKeys(clock) for _ in range(3))
        self._clients = MemoryClients(clock)
        self._feed = MemoryFeed()
        self._bus.on_request = self._feed.put
        self.bus: Bus = self._bus
        self.sessions: Keys = self._sessions
        self.requests: Keys = self._requests
        self.circuits: Keys = self._circuits
        self.clients: ClientLog = self._clients
        self.feed: RequestFeed = self._feed
        self._objects: dict[str, MemoryObjects] = {}
        self.connections = 1
        """How often a connection was made."""
        self.is_connected = True
        """Whether it was not closed yet."""

    def messages(self, bucket: str) -> MemoryObjects:
        """The messages of a store of objects."""
        return self._objects.setdefault(bucket, MemoryObjects(bucket))

    async def ready(self, timeout_s: float) -> None:
        """It always is."""

    async def close(self) -> None:
        """Let go; whoever waits gets `BusGone`, whoever listens comes to an end."""
        self.is_connected = False
        self._bus.on_request = None
        if not self._is_shared:
            await self._bus.close()
        for part in (self._sessions, self._requests, self._circuits, self._clients, self._feed):
            part.close()
