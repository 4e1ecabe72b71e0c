"""The order in which a delivery is judged: `Admitted`, then `Raw`, `Verified`, `Planned`.

Each is made from the one before and from nothing else, so that no body is read for somebody who
was not admitted, and no header is followed of somebody whom nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NoReturn

from noetl.edge.bodies import Unpacking
from noetl.edge.errors import BadJson, TooLarge
from noetl.gateway.ingress.challenge import ChallengeRefused, Reply, echo_of
from noetl.gateway.ingress.envelope import BadEnvelope, message_of
from noetl.gateway.ingress.raw import Raw
from noetl.gateway.ingress.refusals import (
    BAD_ENVELOPE,
    BAD_MEDIA_TYPE,
    BAD_METHOD,
    BODY_TOO_LARGE,
    DEACTIVATED,
    HEADERS_TOO_LARGE,
    IP_NOT_ALLOWED,
    TurnedAway,
)
from noetl.gateway.ingress.replay import dedup_of
from noetl.gateway.ingress.verify.verdict import Rejected, verify
from noetl.sources import directives

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.gateway.ingress.envelope import Arrival
    from noetl.gateway.ingress.listeners import Known
    from noetl.gateway.ingress.verify.verdict import Known as Proving
    from noetl.gateway.ingress.verify.verdict import Verified
    from noetl.sources.directives import Plan

    Resolve = Callable[[SubscriptionSpec, Mapping[str, Any]], Plan]

MOST_HEAD_BYTES: Final = 64 * 1024
MOST_FIELDS: Final = 100
MOST_BODY_BYTES: Final = 10 * 1024 * 1024
IDENTITY: Final = "identity"
GZIP: Final = "gzip"
_PER_FIELD: Final = len(": \r\n")
_DIGITS: Final = 12
_MINE: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a request says before its body."""

    method: str
    path: str
    """As it was asked for, without the query."""
    query: bytes = field(default=b"", repr=False)
    headers: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)
    length: int | None = None
    """Of the body, as it is told."""
    encodings: tuple[bytes, ...] = ()


def head_of(method: str, path: str, query: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Head:
    """The head of a request, refused when it is too large, or tells of a body that is."""
    pairs = tuple(headers)
    size, length, encodings = len(path) + len(query), None, []
    for name, value in pairs:
        size += len(name) + len(value) + _PER_FIELD
        if name == b"content-length":
            length = max(length or 0, _number(value))
        elif name == b"content-encoding":
            encodings.append(value)
    if len(pairs) > MOST_FIELDS or size > MOST_HEAD_BYTES:
        raise TurnedAway(HEADERS_TOO_LARGE)
    if length is not None and length > MOST_BODY_BYTES:
        raise TurnedAway(BODY_TOO_LARGE)
    return Head(
        method=method,
        path=path,
        query=query,
        headers=pairs,
        length=length,
        encodings=tuple(encodings),
    )


def _number(value: bytes) -> int:
    return int(value) if value.isdigit() and len(value) <= _DIGITS else MOST_BODY_BYTES + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A request whose body may be read."""

    known: Known
    head: Head
    arrival: Arrival


def admit(known: Known, head: Head, arrival: Arrival) -> Admitted:
    """Let a request of a known listener in: address, state, method, encoding, in this order."""
    if not known.allows(arrival.remote_ip):
        raise TurnedAway(IP_NOT_ALLOWED)
    if known.state == "DEACTIVATED":
        raise TurnedAway(DEACTIVATED)
    if head.method not in known.methods:
        raise TurnedAway(BAD_METHOD)
    coding_of(head)
    return Admitted(known=known, head=head, arrival=arrival)


def coding_of(head: Head) -> str:
    """How a body is packed: one way at most, and one that is known."""
    if not head.encodings:
        return IDENTITY
    word = head.encodings[0].decode("latin-1").strip().lower() or IDENTITY
    if len(head.encodings) > 1 or word not in {IDENTITY, GZIP}:
        raise TurnedAway(BAD_MEDIA_TYPE)
    return word


def received(admitted: Admitted, body: bytes) -> Raw:
    """A request with its body, as it came."""
    head = admitted.head
    return Raw(
        method=head.method, path=head.path, query=head.query, headers=head.headers, body=body
    )


class Planned:
    """A delivery whose sender is known, and what is to become of it; only `plan` makes one."""

    __slots__ = ("dedup", "delivery_id", "message", "plan", "replay_of", "scheme")

    message: dict[str, Any]
    """As it came, with every header that a playbook may see; `ordering_key` is in it."""
    plan: Plan
    dedup: dict[str, Any]
    """`key`, `window_secs`, and where something was signed `replay_key`, `replay_window_secs`."""
    delivery_id: str
    scheme: str
    replay_of: str | None
    """The delivery that this one is sent again for, by a person."""

    def __init__(self, mine: object, **fields: Any) -> None:  # noqa: ANN401 - those above
        if mine is not _MINE:
            raise TypeError("only a verified delivery has a plan")
        for name in self.__slots__:
            object.__setattr__(self, name, fields[name])

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("nothing else is planned")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"`{name}` of a planned delivery cannot be changed")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"`{name}` of a planned delivery cannot be changed")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a planned delivery is not copied or stored")

    def __repr__(self) -> str:
        return f"Planned(delivery_id={self.delivery_id!r})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """What a delivery is judged with, beside its listener."""

    now: float
    """Seconds since 1970; `ANY_TIME` for one whose time does not matter."""
    proving: Proving
    resolve: Resolve = directives.resolve
    replay_of: str | None = None


def verify_then_plan(admitted: Admitted, raw: Raw, judging: Judging) -> Reply | Planned:
    """The plan of a delivery that proves where it comes from, or the answer to its handshake."""
    known = admitted.known
    verified = verify(known.ingress.verify, raw, judging.now, judging.proving)
    if isinstance(verified, Rejected):
        raise TurnedAway(verified.reason)
    try:
        reply = echo_of(known.challenge, verified, raw.body)
        return plan(verified, admitted, judging) if reply is None else reply
    except (ChallengeRefused, BadEnvelope) as refusal:
        raise TurnedAway(refusal.code) from None


def plan(verified: Verified, admitted: Admitted, judging: Judging) -> Planned:
    """What becomes of a verified delivery: its message, where it goes, what it is the same as."""
    known, arrival = admitted.known, admitted.arrival
    ingress = known.ingress
    body = unpacked(verified.raw.body, coding_of(admitted.head), ingress.body_limit)
    message = message_of(verified, ingress.verify, body, arrival)
    if judging.replay_of is not None:
        message["metadata"]["replay_of"] = judging.replay_of
    found = judging.resolve(known.spec, message["headers"])
    dedup = dedup_of(
        ingress,
        verified,
        message,
        idempotency_key=found.idempotency_key,
        fresh=arrival.delivery_id,
    )
    return Planned(
        _MINE,
        message=message,
        plan=found,
        dedup=dedup,
        delivery_id=arrival.delivery_id,
        scheme=verified.scheme,
        replay_of=judging.replay_of,
    )


def unpacked(body: bytes, coding: str, most: int) -> bytes:
    """The body as its playbook gets it; what expands without measure is refused."""
    if coding == IDENTITY:
        return body
    unpacking = Unpacking(most, coding)
    try:
        found = unpacking.feed(body)
        unpacking.end()
    except TooLarge:
        raise TurnedAway(BODY_TOO_LARGE) from None
    except BadJson:
        raise TurnedAway(BAD_ENVELOPE) from None
    return found
