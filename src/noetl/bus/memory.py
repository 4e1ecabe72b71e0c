"""A bus inside one process, with the rules of the real one: redelivery, limits, windows.

Nobody polls: a fetch sleeps until something is published, or until the next message is due again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from noetl.bus.base import BusGone, Delivery, Told
from noetl.bus.inbox import Inbox
from noetl.bus.subjects import REQUEST_HEADER, matches, pool_of, token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from noetl.bus.base import Hints, Letter, Message

_NEVER: Final = float("inf")


@dataclass(slots=True, eq=False)
class Kept:
    """A message of the stream."""

    subject: str
    payload: bytes
    expires_at: float
    deliveries: int = 0
    is_out: bool = False
    is_done: bool = False


class Delivered:
    """One delivery of a message."""

    __slots__ = ("_consumer", "_is_settled", "_kept", "deliveries")

    def __init__(self, consumer: Consumer, kept: Kept) -> None:
        self._consumer = consumer
        self._kept = kept
        self._is_settled = False
        self.deliveries = kept.deliveries

    @property
    def subject(self) -> str:
        """Where it was published."""
        return self._kept.subject

    @property
    def payload(self) -> bytes:
        """What was published."""
        return self._kept.payload

    async def ack(self) -> None:
        """It needs no further delivery."""
        if self._settle():
            self._consumer.done(self._kept)

    async def nak(self, delay_s: float = 0.0) -> None:
        """Deliver it again, after a while."""
        # Whoever comes too late speaks for a delivery that is no longer the last one.
        if self._settle() and self.deliveries == self._kept.deliveries and self._kept.is_out:
            self._consumer.again(self._kept, delay_s)

    async def term(self) -> None:
        """Never deliver it again."""
        await self.ack()

    def _settle(self) -> bool:
        was_settled, self._is_settled = self._is_settled, True
        return not was_settled


@dataclass(slots=True, eq=False)
class Consumer:
    """A durable consumer: who gets what when."""

    rules: Delivery
    queue: list[tuple[float, int, Kept]] = field(default_factory=list)
    """What is to be delivered, by the time from which it may be."""
    deadlines: list[tuple[float, int, int, Kept]] = field(default_factory=list)
    """What is out, by the time until which it may be, with the number of that delivery."""
    waiters: deque[asyncio.Future[None]] = field(default_factory=deque)
    entries: int = 0
    out: int = 0
    is_closed: bool = False

    async def fetch(self, limit: int, timeout_s: float) -> list[Message]:
        """At least one message as soon as there is one, else none after the time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        try:
            while True:
                if self.is_closed:
                    raise BusGone("the bus was closed")
                now = loop.time()
                taken = self._take(limit, now)
                if taken or now >= deadline:
                    return taken
                await self._woken(min(deadline, self._next_due()))
        finally:
            # Whoever leaves hands on its watch: it may have been the only one that was woken.
            self._wake()

    def add(self, kept: Kept, due_at: float) -> None:
        """A message to be delivered from then on."""
        self._forget_old(asyncio.get_running_loop().time())
        self.entries += 1
        heappush(self.queue, (due_at, self.entries, kept))
        self._wake()

    def done(self, kept: Kept) -> None:
        """A message that is needed no more."""
        kept.is_done = True
        self._back(kept)
        self._wake()

    def again(self, kept: Kept, delay_s: float) -> None:
        """A message to be delivered once more."""
        self._back(kept)
        self.add(kept, asyncio.get_running_loop().time() + delay_s)

    def close(self) -> None:
        """Let everyone who waits go."""
        self.is_closed = True
        self._wake()

    def _take(self, limit: int, now: float) -> list[Message]:
        self._recall(now)
        taken: list[Message] = []
        while self.queue and self.queue[0][0] <= now and len(taken) < limit and self._has_room():
            _, _, kept = heappop(self.queue)
            is_spent = kept.deliveries >= self.rules.max_deliver
            if kept.is_done or is_spent or now >= kept.expires_at:
                continue
            kept.deliveries += 1
            kept.is_out = True
            self.out += 1
            self.entries += 1
            deadline = now + self.rules.ack_wait_s
            heappush(self.deadlines, (deadline, self.entries, kept.deliveries, kept))
            taken.append(Delivered(self, kept))
        return taken

    def _recall(self, now: float) -> None:
        """Deliver again what was out for too long."""
        while self._first_deadline() <= now:
            deadline, _, _, kept = heappop(self.deadlines)
            self._back(kept)
            self.entries += 1
            heappush(self.queue, (deadline, self.entries, kept))

    def _has_room(self) -> bool:
        return self.out < self.rules.max_ack_pending

    def _back(self, kept: Kept) -> None:
        if kept.is_out:
            kept.is_out = False
            self.out -= 1

    def _next_due(self) -> float:
        """When time alone makes a message deliverable."""
        self._forget_old(asyncio.get_running_loop().time())
        ready_at = self.queue[0][0] if self.queue and self._has_room() else _NEVER
        return min(ready_at, self._first_deadline())

    def _forget_old(self, now: float) -> None:
        while self.queue and (self.queue[0][2].is_done or now >= self.queue[0][2].expires_at):
            heappop(self.queue)

    def _first_deadline(self) -> float:
        while self.deadlines:
            deadline, _, delivery, kept = self.deadlines[0]
            if kept.is_out and kept.deliveries == delivery:
                return deadline
            heappop(self.deadlines)
        return _NEVER

    def _wake(self) -> None:
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    async def _woken(self, until: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            async with asyncio.timeout_at(None if until == _NEVER else until):
                await waiter
        except TimeoutError:
            pass
        finally:
            if waiter in self.waiters:
                self.waiters.remove(waiter)


class MemoryBus:
    """Streams, consumers and listeners of one process."""

    def __init__(self, rules: Delivery | None = None) -> None:
        self.on_request: Callable[[str, bytes], None] | None = None
        """Is given the request and the payload of what is published about one."""
        self._rules = rules or Delivery()
        self._consumers: dict[str, Consumer] = {}
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._listeners: dict[object, tuple[str, Inbox[Told]]] = {}
        self._is_closed = False

    async def publish(self, subject: str, payload: bytes, msg_id: str) -> bool:
        """Keep a message until it is acknowledged; false for an id seen in the window before."""
        await self.tell(subject, payload)
        now = asyncio.get_running_loop().time()
        while self._seen and next(iter(self._seen.values())) <= now:
            self._seen.popitem(last=False)
        if msg_id in self._seen:
            return False
        self._seen[msg_id] = now + self._rules.duplicate_window_s
        pool = pool_of(subject)
        if pool is not None:
            kept = Kept(subject, payload, now + self._rules.max_age_s)
            self._consumer(pool).add(kept, now)
        return True

    async def publish_many(self, letters: Sequence[Letter]) -> int:
        """Publish messages in order; how many ids were new."""
        kept = 0
        for each in letters:
            is_new = await self.publish(each.subject, each.payload, each.msg_id)
            kept += is_new
            request_id = dict(each.headers).get(REQUEST_HEADER)
            if is_new and request_id and self.on_request is not None:
                self.on_request(request_id, each.payload)
        return kept

    def hints(self, pool: str) -> Hints:
        """The hints of a pool, also those published before anyone asked."""
        return self._consumer(token(pool))

    async def lag(self, pool: str) -> int:
        """How many hints of a pool nobody has fetched yet."""
        return len(self._consumer(pool).queue)

    async def tell(self, subject: str, payload: bytes) -> None:
        """Tell whoever listens now."""
        if self._is_closed:
            raise BusGone("the bus was closed")
        for pattern, inbox in self._listeners.values():
            if matches(pattern, subject):
                inbox.put(Told(subject, payload))

    @asynccontextmanager
    async def listen(self, subject: str) -> AsyncIterator[AsyncIterator[Told]]:
        """Hear what is told or published under a subject (`*` one token, `>` the rest)."""
        if self._is_closed:
            raise BusGone("the bus was closed")
        inbox: Inbox[Told] = Inbox()
        name = object()
        self._listeners[name] = (subject, inbox)
        try:
            yield inbox.words()
        finally:
            self._listeners.pop(name, None)
            inbox.close()

    async def close(self) -> None:
        """Let go; whoever waits gets `BusGone`, whoever listens comes to an end."""
        self._is_closed = True
        for consumer in self._consumers.values():
            consumer.close()
        for _, inbox in self._listeners.values():
            inbox.close()

    def _consumer(self, pool: str) -> Consumer:
        found = self._consumers.get(pool)
        if found is None:
            found = self._consumers[pool] = Consumer(self._rules, is_closed=self._is_closed)
        return found
