"""Models of `spec.ingress`: where a push arrives, how it is verified, how fast it may come."""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.shape import (
    Definitions,
    Flag,
    JsonSchema,
    ListOf,
    Model,
    Number,
    Of,
    Text,
    key,
    model,
    whole,
)
from noetl.dsl.shape.units import Size
from noetl.dsl.subscription.sections import Alias, Tagged, word
from noetl.dsl.subscription.verify import VERIFY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.shape.reader import Reader
    from noetl.dsl.subscription.verify import Verify
    from noetl.dsl.yaml import Place

GATEWAY_PATH = r"^/ingress/[a-z0-9][a-z0-9_-]{0,62}$"
DEDUP_KEY = r"^(header|body|query):[^\s{}]{1,256}$"
MOST_WINDOW = 2_592_000
BODY_LIMIT = 1024 * 1024
MOST_BODY = 10 * BODY_LIMIT
_WINDOW = whole(1, MOST_WINDOW)
_ALIASES = ("secret", "public_key", "user", "password", "key_", "verify_token")
"""Keys of verifiers and handshakes that name credentials."""


class Network:
    """An address or a network in CIDR form."""

    blank: ClassVar[str] = ""

    def read(self, value: Any, place: Place, reader: Reader) -> str:  # noqa: ANN401 - see Shape
        """Read a network in its canonical form."""
        if not isinstance(value, str):
            reader.wrong_type(place, value, "text")
            return ""
        try:
            return str(ip_network(value, strict=False))
        except ValueError:
            message = f"`{value[:80]}` is not an address or network"
            reader.report("DSL039", message, place, hint="write CIDR, for example 203.0.113.0/24")
            return ""

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A string."""
        del definitions
        return {"type": "string"}

    def words(self) -> str:
        """A network."""
        return "network such as 203.0.113.0/24"


# ---------------------------------------------------------------------------- handshakes


@model
class Challenge(Model):
    """A handshake that the sender asks for."""

    type: str = key(word("slack", "meta", "cloudevents", "custom"), "kind of handshake")


@model
class MetaChallenge(Challenge):
    """Meta: the token is compared, the challenge answered."""

    verify_token: str = key(Alias(), "credential with the token")


@model
class CloudEventsChallenge(Challenge):
    """CloudEvents: the origin is allowed."""

    allowed_origins: tuple[str, ...] = key(ListOf(Text(), least=1), "origins that may send")


@model
class CustomChallenge(Challenge):
    """A field of the body is echoed."""

    field: str = key(Text(), "field of the body")
    reply_field: str = key(Text(), "field of the answer")


_CHALLENGES: Mapping[str, type[Challenge]] = {
    "slack": Challenge,
    "meta": MetaChallenge,
    "cloudevents": CloudEventsChallenge,
    "custom": CustomChallenge,
}


class ChallengeShape:
    """`slack`, or a map with `type` and what that handshake needs."""

    _map = Tagged(_CHALLENGES)
    blank: ClassVar[None] = None

    def read(self, value: Any, place: Place, reader: Reader) -> Challenge | None:  # noqa: ANN401 - see Shape
        """Read either form."""
        if not isinstance(value, str):
            challenge: Challenge | None = self._map.read(value, place, reader)
            return challenge
        name = word(*_CHALLENGES).read(value, place, reader)
        if name not in {"", "slack"}:
            hint = "write a map: `type` and its keys"
            reader.report("DSL039", f"`{name}` needs more than its name", place, hint=hint)
        return Challenge(type="slack", place=place) if name == "slack" else None

    def schema(self, definitions: Definitions) -> JsonSchema:
        """Either form."""
        return {"anyOf": [word("slack").schema(definitions), self._map.schema(definitions)]}

    def words(self) -> str:
        """A handshake."""
        return f"slack, or {self._map.words()}"


# ---------------------------------------------------------------------------- the listener


@model
class Rate(Model):
    """How fast verified deliveries may come."""

    per_sec: float = key(Number(above=0), "deliveries a second")
    burst: int | None = key(whole(1), "deliveries at once (twice `per_sec`)", default=None)


@model
class IngressDedup(Model):
    """What makes two deliveries the same."""

    key_: tuple[str, ...] = key(
        ListOf(Text(pattern=DEDUP_KEY), least=1, lone=True),
        "`header:NAME`, `body:path` or `query:NAME`; the first that is present",
        name="key",
    )
    window_secs: int = key(_WINDOW, "how long a key is remembered", default=86_400)


@model
class Replay(Model):
    """How long a signed body is remembered."""

    window_secs: int = key(_WINDOW, "seconds", default=604_800)


@model
class Ingress(Model):
    """Where a push arrives and how it is verified."""

    gateway_path: str = key(Text(pattern=GATEWAY_PATH), "path at the gateway, `/ingress/NAME`")
    verify: Verify | None = key(VERIFY, "how deliveries are verified")
    body_limit: int = key(Size(most=MOST_BODY), "largest body", default=BODY_LIMIT)
    rate: Rate | None = key(Of(Rate), "how fast deliveries may come", default=None)
    allow_ips: tuple[str, ...] = key(ListOf(Network()), "networks that may send", default=())
    dedup: IngressDedup | None = key(Of(IngressDedup), "what makes two the same", default=None)
    replay: Replay = key(Of(Replay), "memory of signed bodies", default_factory=Replay)
    challenge: Challenge | None = key(ChallengeShape(), "handshake", default=None)
    keep_rejected: bool = key(
        Flag(), "keep what is rejected for a day, up to 64Ki each, to look at it", default=False
    )


def aliases_in(ingress: Ingress) -> frozenset[str]:
    """The credentials that deliveries are verified with, and handshakes answered."""
    found: set[str] = set()
    for rules in (ingress.verify, ingress.challenge):
        for name in _ALIASES:
            named = getattr(rules, name, None) or ()
            found |= {named} if isinstance(named, str) else set(named)
    return frozenset(found)
