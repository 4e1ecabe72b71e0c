"""Handshakes: what a sender asks before it sends, or once in between; none of them starts a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from noetl.dsl.subscription.ingress import (
    Challenge,
    CloudEventsChallenge,
    CustomChallenge,
    MetaChallenge,
)
from noetl.errors import NoetlError
from noetl.gateway.ingress.raw import Doubled, json_of, text_at
from noetl.gateway.ingress.verify.proof import Unproven, texts
from noetl.gateway.ingress.verify.signatures import is_any
from noetl.gateway.ingress.verify.verdict import scheme_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.subscription.ingress import Ingress
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.proof import Secrets
    from noetl.gateway.ingress.verify.verdict import Verified

MOST_CHARS: Final = 256
"""A longer challenge of Meta is refused."""
MOST_ECHOED: Final = 1024
SLACK: Final = "slack"
_MINUTE_S: Final = 60
_EVERYBODY: Final = "*"


class ChallengeRefused(NoetlError):
    """A handshake of somebody whom the listener does not know."""

    code = "challenge_refused"
    status: ClassVar[int] = 403


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to a handshake, with status 200: a JSON object, a text, or headers alone."""

    document: Mapping[str, Any] | None = None
    text: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def challenge_of(ingress: Ingress) -> Challenge | None:
    """The handshake of a listener; Slack's needs no word."""
    if ingress.challenge is not None:
        return ingress.challenge
    return Challenge(type=SLACK) if scheme_of(ingress.verify) == SLACK else None


def methods_of(challenge: Challenge | None) -> tuple[str, ...]:
    """The methods that a listener answers."""
    if isinstance(challenge, MetaChallenge):
        return ("GET", "POST")
    return ("OPTIONS", "POST") if isinstance(challenge, CloudEventsChallenge) else ("POST",)


def echo_of(challenge: Challenge | None, verified: Verified, body: bytes) -> Reply | None:
    """The answer to a verified handshake; none when the delivery is no handshake."""
    del verified  # it is asked for so that nobody echoes for a stranger
    if isinstance(challenge, CustomChallenge):
        told = text_at(json_of(body), challenge.field)
        is_short = told is not None and len(told) <= MOST_ECHOED
        return Reply(document={challenge.reply_field: told}) if is_short else None
    if challenge is None or challenge.type != SLACK:
        return None
    document = json_of(body)
    if not isinstance(document, dict) or document.get("type") != "url_verification":
        return None
    told = document.get("challenge")
    if not isinstance(told, str) or len(told) > MOST_ECHOED:
        raise ChallengeRefused("the handshake has no challenge")
    return Reply(document={"challenge": told})


def meta_reply(challenge: MetaChallenge, raw: Raw, secrets: Secrets) -> Reply:
    """The answer to `GET ?hub.mode=subscribe`: the challenge, for who knows the token."""
    try:
        mode = raw.parameter("hub.mode")
        given = raw.parameter("hub.verify_token") or ""
        told = raw.parameter("hub.challenge") or ""
        known = texts(secrets, (challenge.verify_token,), "token", "value", "key", "secret")
    except (Doubled, Unproven):
        raise ChallengeRefused("the handshake is not Meta's") from None
    is_known = is_any([one.encode() for one in known], [given.encode("utf-8", "surrogateescape")])
    is_plain = 0 < len(told) <= MOST_CHARS and told.isascii() and told.isprintable()
    if not is_known or mode != "subscribe" or not is_plain:
        raise ChallengeRefused("the handshake is not Meta's")
    return Reply(text=told, headers={"x-content-type-options": "nosniff"})


def cloudevents_reply(
    challenge: CloudEventsChallenge, raw: Raw, per_sec: float | None = None
) -> Reply:
    """The answer to `OPTIONS`: that the origin may send, and how often in a minute."""
    try:
        origin = (raw.one("webhook-request-origin") or b"").decode("latin-1")
    except Doubled:
        origin = ""
    allowed = {one.lower() for one in challenge.allowed_origins}
    if not origin or not ({origin.lower(), _EVERYBODY} & allowed):
        raise ChallengeRefused("the origin is not one that may send")
    rate = _EVERYBODY if per_sec is None else str(max(1, math.floor(per_sec * _MINUTE_S)))
    return Reply(
        headers={
            "webhook-allowed-origin": origin,
            "webhook-allowed-rate": rate,
            "allow": "OPTIONS, POST",
        }
    )
