"""Every stream, consumer and bucket of the broker as data, and how they come to be there.

Declaring is safe to repeat: what is missing is made, what differs is repaired in place, and what
cannot be repaired is refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from noetl.bus import subjects
from noetl.bus.base import BusGone, Delivery
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NANOS: Final = 1_000_000_000
NO_STREAM: Final = 10059
NAME_TAKEN: Final = 10058
NO_CONSUMER: Final = 10014
_REFUSED: Final = frozenset({400, 500})
_EXHAUSTED: Final = frozenset({10028, 10047})
"""Memory or disk of the broker is full."""
DAY_S: Final = 86_400.0
MOST_COPIES: Final = 3
"""Of a store of objects, where there are so many brokers."""
MOST_WAITING: Final = 4096
"""Fetches of one pool that may wait at the same time: one per worker."""


class StreamDrift(NoetlError):
    """The broker has something else under one of our names, and will not change it."""

    code = "stream_drift"
    status: ClassVar[int] = 502


class ApiFault(BusGone):
    """The broker refused a call; as a rule for a moment."""

    def __init__(self, status: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.err_code = err_code
        self.is_final = status in _REFUSED and err_code not in _EXHAUSTED
        """The same call would be refused again."""


class Api(Protocol):
    """The broker's own interface for streams and consumers."""

    async def call(self, verb: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Call it; `ApiFault` when it refuses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A log of messages: limits retention, oldest discarded first."""

    name: str
    subjects: tuple[str, ...]
    max_age_s: float
    storage: str = "file"
    duplicate_window_s: float = 120.0
    max_msgs_per_subject: int = -1
    republish: tuple[str, str] | None = None
    more: tuple[tuple[str, Any], ...] = ()
    """Settings that only buckets have."""

    def config(self) -> dict[str, Any]:
        """As the broker names it; what is not named here keeps the value it has."""
        made: dict[str, Any] = {
            "name": self.name,
            "subjects": list(self.subjects),
            "retention": "limits",
            "discard": "old",
            "storage": self.storage,
            "max_age": _nanos(self.max_age_s),
            "duplicate_window": _nanos(self.duplicate_window_s),
            "max_msgs_per_subject": self.max_msgs_per_subject,
        }
        if self.republish is not None:
            made["republish"] = {"src": self.republish[0], "dest": self.republish[1]}
        return made | dict(self.more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """A place in a stream, shared by all who use its name."""

    stream: str
    name: str
    filter: str
    rules: Delivery
    deliver: str = "all"
    """Which messages of the stream are delivered: `new` are those after it was made."""
    more: tuple[tuple[str, Any], ...] = ()
    """Settings that only this one has."""

    def config(self) -> dict[str, Any]:
        """As the broker names it."""
        return {
            "durable_name": self.name,
            "name": self.name,
            "filter_subject": self.filter,
            "ack_policy": "explicit",
            "deliver_policy": self.deliver,
            "replay_policy": "instant",
            "ack_wait": _nanos(self.rules.ack_wait_s),
            "max_deliver": self.rules.max_deliver,
            "max_ack_pending": self.rules.max_ack_pending,
            "max_waiting": MOST_WAITING,
        } | dict(self.more)


def commands(rules: Delivery) -> Stream:
    """Hints that wake workers."""
    return Stream(
        name=subjects.COMMANDS_STREAM,
        subjects=(subjects.COMMANDS,),
        max_age_s=rules.max_age_s,
        duplicate_window_s=rules.duplicate_window_s,
    )


EVENTS: Final = Stream(name=subjects.EVENTS_STREAM, subjects=(subjects.EVENTS,), max_age_s=DAY_S)
"""What commits published, one message per execution and commit."""

CLIENTS: Final = Stream(
    name=subjects.CLIENTS_STREAM,
    subjects=(subjects.CLIENTS,),
    max_age_s=1800.0,
    duplicate_window_s=1800.0,
    max_msgs_per_subject=1000,
    republish=(subjects.CLIENTS, subjects.LIVE),
    more=(("allow_direct", True),),
)
"""What connected clients are told; the gateway declares it."""

FEED_RULES: Final = Delivery(max_ack_pending=4096)
FEED: Final = Consumer(
    stream=subjects.EVENTS_STREAM,
    name=subjects.FEED_CONSUMER,
    filter=subjects.EVENTS,
    rules=FEED_RULES,
    deliver="new",
    more=(("inactive_threshold", 3600 * _NANOS),),
)
"""Where gateways are in what commits published; after an hour without any, they begin anew."""

_KEPT: Final = (("allow_rollup_hdrs", True), ("allow_direct", True), ("allow_msg_ttl", True))


def bucket(name: str) -> Stream:
    """A bucket of keys, each with its newest value and a time to live of its own.

    Whoever watches hears what is republished: only what was kept, with its revision.
    """
    return Stream(
        name=f"KV_{name}",
        subjects=(subjects.key(name, ">"),),
        max_age_s=0.0,
        max_msgs_per_subject=1,
        republish=(subjects.key(name, ">"), subjects.kept_key(name, ">")),
        more=(*_KEPT, ("deny_delete", True), ("discard", "new")),
    )


BUCKETS: Final = tuple(
    bucket(name)
    for name in (subjects.SESSIONS_BUCKET, subjects.REQUESTS_BUCKET, subjects.CIRCUITS_BUCKET)
)
"""Keys of the gateway and of subscriptions; they declare what they use."""


def objects(store: str) -> Stream:
    """A store of objects, as every client of the broker knows it: names and chunks."""
    return Stream(
        name=f"OBJ_{store}",
        subjects=(f"$O.{store}.C.>", f"$O.{store}.M.>"),
        max_age_s=0.0,
        more=(*_KEPT[:2], ("discard", "new")),
    )


SPOOL: Final = objects(subjects.SPOOL_STORE)
"""Objects that spools set aside; whoever spools declares it."""


def core(rules: Delivery | None = None) -> tuple[Stream, ...]:
    """What servers and workers use."""
    return (commands(rules or Delivery()), EVENTS)


def consumer(pool: str, rules: Delivery | None = None) -> Consumer:
    """The consumer of a pool."""
    return Consumer(
        stream=subjects.COMMANDS_STREAM,
        name=subjects.consumer(pool),
        filter=subjects.commands_of(pool),
        rules=rules or Delivery(),
    )


async def declare(api: Api, streams: Iterable[Stream]) -> list[str]:
    """Make what is missing and repair what differs; what was done, in words."""
    done = []
    for stream in streams:
        wanted = stream.config()
        actual = await _config(api, stream.name)
        if actual is None:
            if await _create(api, wanted):
                done.append(f"made {stream.name}")
                continue
            actual = await _config(api, stream.name) or {}
        if drift := _drift(wanted, actual):
            await _update(api, {**actual, **wanted}, drift)
            done.append(f"repaired {stream.name}: {', '.join(drift)}")
    return done


async def differing(api: Api, streams: Iterable[Stream]) -> dict[str, str]:
    """What is missing or differs, by the name of its stream; nothing is changed."""
    found = {}
    for stream in streams:
        actual = await _config(api, stream.name)
        drift = ["missing"] if actual is None else _drift(stream.config(), actual)
        if drift:
            found[stream.name] = ", ".join(drift)
    return found


async def join(api: Api, consumer: Consumer) -> None:
    """Make or update the consumer of a pool: one call either way."""
    verb = f"CONSUMER.CREATE.{consumer.stream}.{consumer.name}.{consumer.filter}"
    body = {"stream_name": consumer.stream, "config": consumer.config()}
    try:
        await api.call(verb, body)
    except ApiFault as fault:
        if fault.is_final:
            raise _drifted(f"the consumer {consumer.name}", str(fault)) from fault
        raise


async def _config(api: Api, name: str) -> dict[str, Any] | None:
    try:
        found = await api.call(f"STREAM.INFO.{name}")
    except ApiFault as fault:
        if fault.err_code == NO_STREAM:
            return None
        raise
    config: dict[str, Any] = found["config"]
    return config


async def _create(api: Api, wanted: dict[str, Any]) -> bool:
    """Make a stream; false when somebody else just did, under other settings."""
    try:
        await api.call(f"STREAM.CREATE.{wanted['name']}", wanted)
    except ApiFault as fault:
        if fault.err_code == NAME_TAKEN:
            return False
        if fault.is_final:
            raise _drifted(f"the stream {wanted['name']}", str(fault)) from fault
        raise
    return True


async def _update(api: Api, wanted: dict[str, Any], drift: list[str]) -> None:
    try:
        await api.call(f"STREAM.UPDATE.{wanted['name']}", wanted)
    except ApiFault as fault:
        if fault.is_final:
            what = f"the stream {wanted['name']} ({', '.join(drift)})"
            raise _drifted(what, str(fault)) from fault
        raise


def _drifted(what: str, why: str) -> StreamDrift:
    return StreamDrift(
        f"the broker refuses {what}: {why}",
        hint="Delete or rename what is in the way; nothing on the bus is the only copy.",
    )


def _drift(wanted: Mapping[str, Any], actual: Mapping[str, Any]) -> list[str]:
    """The settings that differ; what the broker leaves out has no value."""
    return [key for key, value in wanted.items() if (actual.get(key) or None) != (value or None)]


def _nanos(seconds: float) -> int:
    return round(seconds * _NANOS)
