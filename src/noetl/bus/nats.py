"""The bus on NATS: a connection that is made again for ever, and streams that are made again too.

While the broker is away every call fails at once with `BusGone`; nobody is kept waiting, and
nothing has to be opened again by those who use the bus.
"""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.bus import streams, subjects
from noetl.bus.address import Address
from noetl.bus.base import BusGone, Delivery, Letter, Told
from noetl.bus.inbox import Inbox
from noetl.bus.link import Link
from noetl.bus.publishing import Unanswered, publish
from noetl.bus.pulls import Pool
from noetl.bus.streams import StreamDrift
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Sequence

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from noetl.bus.base import Hints
    from noetl.bus.streams import Stream

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
SETTLE_S: Final = 10.0
"""Connecting and declaring that take longer are begun anew."""
MOST_SILENCES: Final = 3
"""A stream that kept nothing so often in a row is broken: it is made anew."""

_log = logging.getLogger("noetl.bus")


@dataclass(slots=True, eq=False)
class _Ear:
    """Somebody who listens, on whichever connection there is."""

    subject: str
    inbox: Inbox
    link: Link | None = None
    subscription: Subscription | None = None

    async def attach(self, link: Link) -> None:
        """Hear on this connection."""
        self.subscription = await link.hear(self.subject, self._hear)
        self.link = link

    async def detach(self) -> None:
        """Hear no more."""
        self.inbox.close()
        if self.link is not None and self.subscription is not None:
            await self.link.unhear(self.subscription)

    async def _hear(self, msg: Msg) -> None:
        self.inbox.put(Told(msg.subject, msg.data))


class NatsBus:
    """Streams, consumers and listeners of a NATS server or cluster."""

    def __init__(self, address: Address, rules: Delivery | None = None) -> None:
        self.connections = 0
        """How often a connection was made."""
        self._address = address
        self._rules = rules or Delivery()
        self._streams: tuple[Stream, ...] = streams.core(self._rules)
        self._link: Link | None = None
        self._fault: Exception | None = None
        self._changed = asyncio.Event()
        self._pools: dict[str, Pool] = {}
        self._ears: set[_Ear] = set()
        self._silences: dict[str, int] = {}
        self._repairs: dict[Link, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._is_closed = False

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
        bus = cls(address, rules)
        bus._keeper = asyncio.create_task(bus._keep(), name="bus")
        return bus

    @property
    def is_connected(self) -> bool:
        """Whether the bus is there, with everything declared."""
        return self._link is not None and not self._link.gone.is_set()

    async def ready(self, timeout_s: float) -> None:
        """Wait until it is there; `StreamDrift` at once when the broker refuses our streams."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.is_connected:
                    if isinstance(self._fault, StreamDrift):
                        raise self._fault
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as fault:
            raise self._away() from fault

    async def publish(self, subject: str, payload: bytes, msg_id: str) -> bool:
        """Keep a message until it is acknowledged; false for an id seen in the window before."""
        return await self.publish_many((Letter(subject, payload, msg_id),)) == 1

    async def publish_many(self, letters: Sequence[Letter]) -> int:
        """Publish messages in order without waiting in between; how many ids were new."""
        link = self._here()
        stream = self._stream_of(letters[0].subject) if letters else ""
        try:
            kept, homeless = await publish(link, letters)
            if homeless:
                await self._repair(link)
                more, homeless = await publish(link, homeless)
                kept += more
        except Unanswered:
            await self._doubt(link, stream)
            raise
        self._silences.pop(stream, None)
        if homeless:
            raise BusGone(f"no stream of the broker takes {homeless[0].subject}")
        return kept

    def hints(self, pool: str) -> Hints:
        """The hints of a pool, also those published before anyone asked."""
        name = subjects.token(pool)
        found = self._pools.get(name)
        if found is None:
            consumer = streams.consumer(pool, self._rules)
            found = Pool(consumer, self._here, self._repair, self._later)
            self._pools[name] = found
        return found

    async def lag(self, pool: str) -> int:
        """How many hints of a pool nobody has fetched yet; a pool without a worker has none."""
        name = f"{subjects.COMMANDS_STREAM}.{subjects.consumer(pool)}"
        try:
            found = await self._here().call(f"CONSUMER.INFO.{name}")
        except streams.ApiFault as refusal:
            if refusal.err_code == streams.NO_CONSUMER:
                return 0
            raise
        return int(found["num_pending"])

    async def tell(self, subject: str, payload: bytes) -> None:
        """Tell whoever listens now."""
        await self._here().send(subject, payload)

    @asynccontextmanager
    async def listen(self, subject: str) -> AsyncIterator[AsyncIterator[Told]]:
        """Hear what is told or published under a subject, over lost connections too."""
        link = self._here()
        ear = _Ear(subject, Inbox())
        self._ears.add(ear)
        try:
            await ear.attach(link)
            await link.flush()
            yield ear.inbox.words()
        finally:
            self._ears.discard(ear)
            await ear.detach()

    async def close(self) -> None:
        """Let go; whoever waits gets `BusGone`, whoever listens comes to an end."""
        self._is_closed = True
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        for ear in self._ears:
            ear.inbox.close()
        tasks = [*self._tasks, *self._repairs.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._changed.set()

    async def _keep(self) -> None:
        """Have a connection, for ever."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                async with asyncio.timeout(SETTLE_S):
                    link = await self._connect()
            except Exception as fault:  # noqa: BLE001 - the border: whatever it was, try again
                self._missed(fault)
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, hides nothing
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
                continue
            pause_s = FIRST_PAUSE_S
            try:
                await link.ended()
                _log.warning("the bus is away", extra={"broker": self._address.shown})
            finally:
                self._link = None
                await link.close()

    async def _connect(self) -> Link:
        link = await Link.open(self._address)
        try:
            for done in await streams.declare(link, self._streams):
                _log.info("the bus was set up", extra={"done": done})
            for ear in list(self._ears):
                if ear in self._ears:
                    await ear.attach(link)
        except BaseException:
            await link.close()
            raise
        self._link, self._fault = link, None
        self.connections += 1
        self._changed.set()
        return link

    def _missed(self, fault: Exception) -> None:
        """Remember why there is no bus; each reason is logged once."""
        if str(fault) != str(self._fault):
            _log.warning("the bus is away", extra={"reason": str(fault)})
        self._fault = fault
        self._changed.set()

    def _here(self) -> Link:
        if self._link is None or self._link.gone.is_set():
            raise self._away()
        return self._link

    def _away(self) -> BusGone:
        if self._is_closed:
            return BusGone("the bus was closed")
        if isinstance(self._fault, NoetlError):
            return BusGone(self._fault.message, hint=self._fault.hint)
        reason = f": {self._fault}" if self._fault else ""
        return BusGone(f"the broker at {self._address.shown} is away{reason}")

    async def _repair(self, link: Link) -> None:
        """Declare the streams again, once for all who miss them."""
        task = self._repairs.get(link)
        if task is None:
            task = asyncio.create_task(self._declare(link))
            self._repairs[link] = task
            task.add_done_callback(lambda _: self._repairs.pop(link, None))
        await asyncio.wait([task])
        if task.cancelled():
            raise self._away()
        if (fault := task.exception()) is not None:
            raise BusGone(f"the streams cannot be made again: {fault}") from fault

    def _stream_of(self, subject: str) -> str:
        for stream in self._streams:
            if any(subjects.matches(pattern, subject) for pattern in stream.subjects):
                return stream.name
        return ""

    async def _doubt(self, link: Link, stream: str) -> None:
        """A stream kept nothing while its broker was there: its files may be gone or full.

        Nothing on the bus is the only copy, so it is better lost than silent for ever.
        """
        silences = self._silences[stream] = self._silences.get(stream, 0) + 1
        if silences < MOST_SILENCES or not stream:
            return
        self._silences[stream] = 0
        _log.error("a stream keeps nothing: it is made anew", extra={"stream": stream})
        await link.call(f"STREAM.DELETE.{stream}")
        await self._repair(link)

    async def _declare(self, link: Link) -> None:
        for done in await streams.declare(link, self._streams):
            _log.warning("the bus was repaired", extra={"done": done})

    def _later(self, work: Awaitable[None]) -> None:
        """Finish something that nobody waits for."""

        async def finish() -> None:
            await work

        task = asyncio.create_task(finish())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
