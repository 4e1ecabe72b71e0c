"""Messages of a durable pull consumer of NATS JetStream."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import msgspec
from nats.errors import Error, NoRespondersError
from nats.errors import TimeoutError as NatsTimeout

from noetl.clock import rfc3339
from noetl.sources.base import (
    AckReport,
    Facts,
    PolledMessage,
    SourceError,
    body_of,
    lowered,
    report_of,
)
from noetl.sources.connecting import GRACE_S, Headers, connect, end, forbidden, refusals
from noetl.sources.places import as_written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from noetl.clock import Clock
    from noetl.sources.places import Addresses, NatsPlace

ANSWER_S: Final = 5.0
LOOK_S: Final = 0.25
"""How often a consumer is looked at whose messages are in the hands of others."""
LATE_S: Final = 0.25
"""What the broker may take to find that nobody has settled a message in time."""
AT_ONCE: Final = 64
"""Messages that are settled at the same time."""
_NANOS: Final = 1_000_000_000
_API: Final = "$JS.API."
_EMPTY: Final = frozenset({"404", "408"})
_NO_STREAM: Final = 10059
_NO_CONSUMER: Final = 10014
_ACK: Final = re.compile(r"\$JS\.ACK(?:\.[^.\s*>]+){7}(?:(?:\.[^.\s*>]+){2,3})?")
_PLAIN_ACK_TOKENS: Final = 9
_encode: Final = msgspec.json.Encoder().encode


def stream_of(ack_id: str) -> str:
    """The stream of a message by the id that settles it; `SourceError` for what is no such id."""
    if not _ACK.fullmatch(ack_id):
        message = f"`{ack_id[:100]}` does not name a message: an id is what a poll returned"
        raise SourceError("config", "invalid_config", message)
    tokens = ack_id.split(".")
    return tokens[2] if len(tokens) == _PLAIN_ACK_TOKENS else tokens[4]


class NatsSource:
    """The messages of one durable consumer."""

    def __init__(self, client: Client, stream: str, consumer: str, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._stream = stream
        self._consumer = consumer
        self._facts = Facts()
        self.is_owner = False
        """Whether the connection ends with it."""
        self._inherits_until: float | None = None
        self._inherited: deque[Msg] = deque()
        """What others had fetched, in the order of the stream."""

    @classmethod
    async def at(
        cls, place: NatsPlace, clock: Clock, *, addresses: Addresses = as_written
    ) -> NatsSource:
        """The source on a connection of its own, which ends with it."""
        client = await connect(place, addresses)
        try:
            source = await cls.open(client, place.stream, place.consumer, clock)
            await source.learn()
        except BaseException:
            await end(client)
            raise
        source.is_owner = True
        return source

    @classmethod
    async def open(cls, client: Client, stream: str, consumer: str, clock: Clock) -> NatsSource:
        """The source, after a look at its consumer: it is there, and its acks are explicit."""
        source = cls(client, stream, consumer, clock)
        config = (await source._info())["config"]
        policy = config.get("ack_policy")
        if policy != "explicit":
            message = (
                f"the consumer {consumer} of the stream {stream} has ack_policy {policy}, "
                "and explicit is needed"
            )
            raise SourceError("config", "ack_policy_invalid", message)
        source._facts = Facts(
            max_deliver=most if (most := int(config.get("max_deliver", -1))) > 0 else None,
            ack_wait_s=config.get("ack_wait", 0) / _NANOS or None,
        )
        return source

    def inherit(self) -> None:
        """Fetch nothing new until what others have fetched is settled, or is delivered again."""
        wait_s = (self._facts.ack_wait_s or 0.0) + LATE_S
        self._inherits_until = self._clock.monotonic() + wait_s

    async def poll(self, batch: int, timeout_ms: int) -> list[PolledMessage]:
        """What waits now; else the first that comes within the time, and what comes with it."""
        if self._inherits_until is not None and not await self._inherit(batch, timeout_ms / 1000):
            return []
        found = [self._inherited.popleft() for _ in range(min(batch, len(self._inherited)))]
        found = found or await self._pull(batch, 0.0)
        if not found and timeout_ms > 0:
            found = await self._pull(1, timeout_ms / 1000)
            if found and batch > 1:
                found += await self._pull(batch - 1, 0.0)
        received = rfc3339(self._clock.now())
        return [message_of(msg, received) for msg in found]

    async def ack(self, ack_ids: Sequence[str]) -> AckReport:
        """They need no further delivery; each is confirmed by the broker."""
        return await self._settle(ack_ids, b"")

    async def nack(self, ack_ids: Sequence[str], delay_ms: int = 0) -> AckReport:
        """Deliver them again, after a while."""
        body = b"-NAK " + _encode({"delay": delay_ms * 1_000_000}) if delay_ms else b"-NAK"
        return await self._settle(ack_ids, body)

    async def term(self, ack_ids: Sequence[str]) -> AckReport:
        """Never deliver them again."""
        return await self._settle(ack_ids, b"+TERM")

    async def extend(self, ack_ids: Sequence[str]) -> AckReport:
        """Somebody still works at them."""
        return await self._settle(ack_ids, b"+WPI")

    async def backlog(self) -> int | None:
        """Messages that nobody has fetched, and those that nobody has settled."""
        info = await self._info()
        return int(info["num_pending"]) + int(info["num_ack_pending"])

    def facts(self) -> Facts:
        """As consumer and stream say."""
        return self._facts

    async def close(self) -> None:
        """A connection of its own ends; what was not settled is delivered again."""
        if self.is_owner:
            await end(self._client)

    async def _inherit(self, batch: int, timeout_s: float) -> bool:
        """Whether nothing is in the hands of others any more; what was is fetched as a whole.

        The broker brings back first what somebody had longest, which need not be the oldest.
        """
        due = self._inherits_until or 0.0
        until = self._clock.monotonic() + timeout_s
        while held := int((await self._info())["num_ack_pending"]):
            now = self._clock.monotonic()
            if now >= due:
                found = await self._pull(max(held, batch), 0.0)
                found.sort(key=lambda msg: msg.metadata.sequence.stream)
                self._inherited.extend(found)
                break
            if now >= until:
                return False
            await asyncio.sleep(min(LOOK_S, due - now, until - now))
        self._inherits_until = None
        return True

    # ------------------------------------------------------------------ asking the broker

    async def _ask(self, subject: str) -> dict[str, Any]:
        before = refusals(self._client)
        try:
            answer = await self._client.request(subject, b"", timeout=ANSWER_S)
        except (OSError, Error, NatsTimeout) as fault:
            raise forbidden(self._client, before, self._stream) or _lost(fault) from fault
        told: dict[str, Any] = msgspec.json.decode(answer.data)
        return told

    async def learn(self) -> None:
        """How old messages of the stream become, where we may ask."""
        told = await self._ask(f"{_API}STREAM.INFO.{self._stream}")
        age_s = told.get("config", {}).get("max_age", 0) / _NANOS
        self._facts = msgspec.structs.replace(self._facts, max_age_s=age_s or None)

    async def _info(self) -> dict[str, Any]:
        told = await self._ask(f"{_API}CONSUMER.INFO.{self._stream}.{self._consumer}")
        error = told.get("error")
        if error is None:
            return told
        if error.get("err_code") in {_NO_STREAM, _NO_CONSUMER}:
            raise self._missing()
        message = f"the broker refuses the consumer {self._consumer}: {error.get('description')}"
        raise SourceError("client_error", "consumer_refused", message)

    def _missing(self) -> SourceError:
        message = f"there is no consumer {self._consumer} of a stream {self._stream}"
        return SourceError("not_found", "consumer_not_found", message)

    async def _pull(self, batch: int, wait_s: float) -> list[Msg]:
        """One request; without a wait only what is there already."""
        heard: asyncio.Queue[Msg] = asyncio.Queue()
        asked: dict[str, Any] = {"batch": batch}
        asked |= {"expires": round(wait_s * _NANOS)} if wait_s else {"no_wait": True}
        found: list[Msg] = []
        subscription: Subscription | None = None
        try:
            inbox = self._client.new_inbox()
            subscription = await self._client.subscribe(inbox, cb=heard.put)
            subject = f"{_API}CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
            await self._client.publish(subject, _encode(asked), reply=inbox)
            async with asyncio.timeout(wait_s + GRACE_S):
                while len(found) < batch:
                    msg = await heard.get()
                    word = "" if msg.reply else (msg.headers or {}).get("Status", "")
                    if not word:
                        found.append(msg)
                    elif word in _EMPTY:
                        break
                    else:
                        self._judge(word, msg)
                        break
        except TimeoutError as fault:
            if not found:
                raise _lost(TimeoutError("the broker does not answer")) from fault
        except (OSError, Error) as fault:
            raise _lost(fault) from fault
        finally:
            if subscription is not None and self._client.is_connected:
                await subscription.unsubscribe()
        return found

    def _judge(self, word: str, msg: Msg) -> None:
        """Raise what a request that was refused means."""
        described = (msg.headers or {}).get("Description", "")
        if word == "503" or "deleted" in described.lower():
            raise self._missing()
        if word != "409":
            message = f"the broker refused to deliver: {word} {described}"
            raise SourceError("client_error", "consumer_refused", message)

    async def _settle(self, ack_ids: Sequence[str], body: bytes) -> AckReport:
        for ack_id in ack_ids:
            stream_of(ack_id)
        faults: dict[str, tuple[str, str]] = {}

        async def one(ack_id: str) -> None:
            try:
                await self._client.request(ack_id, body, timeout=ANSWER_S)
            except NoRespondersError:
                faults[ack_id] = ("stale", "its consumer is gone")
            except NatsTimeout:
                faults[ack_id] = ("ack_timeout", f"not confirmed in {ANSWER_S:g} s")
            except (OSError, Error) as fault:
                faults[ack_id] = ("connection", str(_lost(fault)))

        for start in range(0, len(ack_ids), AT_ONCE):
            await asyncio.gather(*(one(ack_id) for ack_id in ack_ids[start : start + AT_ONCE]))
        return report_of(ack_ids, faults)


def message_of(msg: Msg, received: str) -> PolledMessage:
    """A delivery as playbooks see it."""
    about = msg.metadata
    headers = msg.headers or {}
    pairs = headers.pairs if isinstance(headers, Headers) else list(headers.items())
    return PolledMessage(
        id=f"{about.stream}:{about.sequence.stream}",
        headers=lowered(pairs),
        attributes=dict(headers),
        metadata={
            "source": "nats",
            "received_at": received,
            "size_bytes": len(msg.data),
            "subject": msg.subject,
            "stream": about.stream,
            "stream_seq": about.sequence.stream,
            "consumer_seq": about.sequence.consumer,
            "delivered": about.num_delivered,
            "pending": about.num_pending,
            "timestamp": rfc3339(about.timestamp),
        },
        ordering_key=msg.subject,
        ack_id=msg.reply,
        **body_of(msg.data),
    )


def _lost(fault: Exception) -> SourceError:
    said = str(fault) or type(fault).__name__
    if isinstance(fault, NatsTimeout | TimeoutError):
        message = f"the broker did not answer: {said}"
        return SourceError("timeout", "tool_timeout", message, retryable=True)
    message = f"the connection to the broker is gone: {said}"
    return SourceError("connection", "CONN_RESET", message, retryable=True)
