"""Fetching from a consumer: one request brings what is there, or the next ones to come.

A request is answered in full or ended by a status, so nothing is under way when a fetch returns;
one that is given up before hands back what arrives too late.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.bus import streams
from noetl.bus.base import BusGone
from noetl.bus.link import status

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from noetl.bus.base import Message
    from noetl.bus.broker import Broker
    from noetl.bus.link import Link
    from noetl.bus.streams import Consumer

HEARTBEAT_S: Final = 5.0
SILENCE_S: Final = 15.0
"""A request that should be heard of and is not, for so long, is no longer there."""
GRACE_S: Final = 5.0
GATHER_S: Final = 0.25
"""After the first message the others follow at once, or too many are out."""
MOST_REPAIRS: Final = 3
_LEAST_WAIT_S: Final = 0.001
_NANOS: Final = 1_000_000_000
_ALIVE: Final = "100"
_UNAVAILABLE: Final = "503"
_CONFLICT: Final = "409"
_BAD: Final = "400"
_DELETED: Final = "deleted"
_MISSING: Final = "missing"
_EMPTY: Final = "empty"
_SILENT: Final = "silent"
_encode: Final = msgspec.json.Encoder().encode


class Delivered:
    """One delivery of a message."""

    __slots__ = ("_is_settled", "_link", "_reply", "headers", "payload", "subject")

    def __init__(self, link: Link, msg: Msg) -> None:
        self._link = link
        self._reply = msg.reply
        self._is_settled = False
        self.subject = msg.subject
        self.headers: dict[str, str] = msg.headers or {}
        self.payload = msg.data

    @property
    def deliveries(self) -> int:
        """How often it was delivered, this time included."""
        # `$JS.ACK.<stream>.<consumer>.<deliveries>...`, behind domain and account on newer brokers
        tokens = self._reply.split(".")
        return int(tokens[4] if len(tokens) == 9 else tokens[6])  # noqa: PLR2004 - tokens of the short form

    async def ack(self) -> None:
        """It needs no further delivery."""
        await self._settle(b"+ACK")

    async def nak(self, delay_s: float = 0.0) -> None:
        """Deliver it again, after a while."""
        delay = b' {"delay": %d}' % round(delay_s * _NANOS) if delay_s > 0 else b""
        await self._settle(b"-NAK" + delay)

    async def term(self) -> None:
        """Never deliver it again."""
        await self._settle(b"+TERM")

    async def _settle(self, answer: bytes) -> None:
        was_settled, self._is_settled = self._is_settled, True
        if was_settled:
            return
        try:
            await self._link.send(self._reply, answer)
        except BusGone:
            return  # the broker delivers it again: the answer is only a matter of time


class _Lane:
    """A subscription that one fetch at a time uses."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._inbox = link.new_inbox()
        self._heard: asyncio.Queue[Msg | None] = asyncio.Queue()
        self._found: list[Msg] = []
        self._subscription: Subscription | None = None
        self._is_abandoned = False

    async def open(self) -> None:
        """Begin to hear."""
        self.link.when_gone.add(self._lost)
        self._subscription = await self.link.hear(self._inbox, self._hear)

    async def pull(
        self, consumer: Consumer, batch: int, wait_s: float, *, is_patient: bool
    ) -> tuple[list[Msg], str]:
        """Ask for messages; what came, and how the request ended.

        A patient request stands in line; any other one is sent away where the line is long.
        """
        asked: dict[str, Any] = {"batch": batch, "expires": round(wait_s * _NANOS)}
        if not is_patient:
            asked["no_wait"] = True
        silence_s = wait_s + GRACE_S
        if wait_s > 2 * HEARTBEAT_S:
            asked["idle_heartbeat"] = round(HEARTBEAT_S * _NANOS)
            silence_s = SILENCE_S
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{consumer.stream}.{consumer.name}"
        await self.link.send(subject, _encode(asked), reply=self._inbox)
        found = self._found = []
        while len(found) < batch:
            try:
                async with asyncio.timeout(GATHER_S if found else silence_s):
                    msg = await self._heard.get()
            except TimeoutError:
                return found, _SILENT
            if msg is None:
                if found:
                    return found, _SILENT
                raise BusGone("the connection to the broker was lost while waiting for hints")
            word = "" if msg.reply else status(msg)
            if not word:
                found.append(msg)
            elif word != _ALIVE:
                return found, _meaning(word, msg)
        return found, ""

    async def give_up(self, *, is_taken: bool) -> None:
        """Hear no more; what came or is under way and is not taken goes back."""
        self._is_abandoned = True
        self.link.when_gone.discard(self._lost)
        waiting = [] if is_taken else list(self._found)
        while not self._heard.empty():
            if (msg := self._heard.get_nowait()) is not None:
                waiting.append(msg)
        for msg in waiting:
            await self._hand_back(msg)
        if self._subscription is not None:
            await self.link.unhear(self._subscription, is_idle=False)

    async def _hear(self, msg: Msg) -> None:
        if self._is_abandoned:
            await self._hand_back(msg)
        else:
            self._heard.put_nowait(msg)

    async def _hand_back(self, msg: Msg) -> None:
        if msg.reply:
            await Delivered(self.link, msg).nak()

    def _lost(self) -> None:
        self._heard.put_nowait(None)


def _meaning(word: str, msg: Msg) -> str:
    """What a status says about the consumer."""
    described = (msg.headers or {}).get("Description", "").lower()
    if word == _UNAVAILABLE or (word == _CONFLICT and _DELETED in described):
        return _MISSING
    if word == _BAD:
        raise BusGone(f"the broker refused to deliver hints: {described}")
    return _EMPTY


class Pool:
    """What one consumer delivers; all who use it share that."""

    def __init__(self, consumer: Consumer, broker: Broker) -> None:
        self._consumer = consumer
        self._broker = broker
        self._joined: Link | None = None
        self._idle: list[_Lane] = []

    async def fetch(self, limit: int, timeout_s: float) -> list[Message]:
        """At least one message as soon as there is one, else none after the time."""
        return list(await self.delivered(limit, timeout_s))

    async def delivered(self, limit: int, timeout_s: float) -> list[Delivered]:
        """What `fetch` brings, with the headers of each."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        is_patient, repairs = False, 0
        while True:
            link = self._broker.here()
            await self._join(link)
            wait_s = max(_LEAST_WAIT_S, deadline - loop.time())
            found, end = await self._pull(link, limit, wait_s, is_patient=is_patient)
            if found:
                return [Delivered(link, msg) for msg in found]
            if end == _EMPTY:
                is_patient = True
            else:
                repairs += 1
                await self._rejoin(link, end, repairs)
            if loop.time() >= deadline and end != _MISSING:
                return []

    async def _rejoin(self, link: Link, end: str, repairs: int) -> None:
        """The consumer was not heard of, or is not there: it is declared again."""
        self._joined = None
        if repairs > MOST_REPAIRS:
            raise BusGone(f"the consumer {self._consumer.name} does not come back")
        if end == _MISSING:
            await self._broker.repair(link)

    async def _join(self, link: Link) -> None:
        if self._joined is link:
            return
        try:
            await streams.join(link, self._consumer)
        except streams.ApiFault:  # the stream is gone
            await self._broker.repair(link)
            await streams.join(link, self._consumer)
        self._joined = link

    async def _pull(
        self, link: Link, limit: int, wait_s: float, *, is_patient: bool
    ) -> tuple[list[Msg], str]:
        lane = await self._lane(link)
        batch = 1 if is_patient else limit
        try:
            found, end = await lane.pull(self._consumer, batch, wait_s, is_patient=is_patient)
        except BaseException:
            self._broker.later(lane.give_up(is_taken=False))
            raise
        if end == _SILENT:
            self._broker.later(lane.give_up(is_taken=True))
        else:
            self._idle.append(lane)
        return found, end

    async def _lane(self, link: Link) -> _Lane:
        self._idle = [lane for lane in self._idle if lane.link is link]
        if self._idle:
            return self._idle.pop()
        lane = _Lane(link)
        await lane.open()
        return lane
