"""A verified delivery as its playbook sees it: a webhook, a push of Pub/Sub, a CloudEvent."""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import unquote

from noetl.dsl.subscription.verify import VERIFIERS
from noetl.errors import NoetlError
from noetl.gateway.ingress.raw import json_of
from noetl.sources.base import body_of, lowered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.subscription.verify import Verify
    from noetl.gateway.ingress.raw import Raw
    from noetl.gateway.ingress.verify.verdict import Verified

PUBSUB: Final = "pubsub"
MODE: Final = "push"
CLOUDEVENT: Final = "cloudevent"
HIDDEN: Final = frozenset(
    {
        "authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key",
        "x-session-token", "x-noetl-session", "x-noetl-identity", "x-noetl-callback-token",
        "x-hub-signature", *(cls.signature_header for cls in VERIFIERS.values()),
    }
    - {""}
)  # fmt: skip
"""Headers that tell who somebody is, of every scheme: no playbook sees them."""
_UNWRAPPED: Final = "x-goog-pubsub-"
_MESSAGE_ID: Final = f"{_UNWRAPPED}message-id"
_TOLD: Final = {
    "message-id": "messageId",
    "publish-time": "publishTime",
    "ordering-key": "orderingKey",
    "subscription-name": "subscription",
    "delivery-attempt": "deliveryAttempt",
}
"""What Pub/Sub tells of a message whose body is the message itself."""
_TRANSPORT: Final = frozenset(
    {
        "host", "content-length", "content-type", "content-encoding", "accept", "accept-encoding",
        "accept-language", "user-agent", "connection", "from", "via", "forwarded", "te",
        "transfer-encoding", "x-cloud-trace-context", "x-request-id", "x-real-ip",
    }
)  # fmt: skip
_EVENT: Final = "ce-"
_REQUIRED: Final = frozenset({"specversion", "id", "source", "type"})
_STRUCTURED: Final = "application/cloudevents+json"


class BadEnvelope(NoetlError):
    """A verified delivery that is not what its source sends."""

    code = "bad_envelope"
    status: ClassVar[int] = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Where and when a delivery came in."""

    source: str
    listener: str
    delivery_id: str
    received_at: str
    remote_ip: str


def message_of(
    verified: Verified, config: Verify | None, body: bytes, arrival: Arrival
) -> dict[str, Any]:
    """The message of a delivery; `body` is unpacked, what was signed is not."""
    headers = safe_headers(verified.raw, config)
    kind = _first(headers.get("content-type"))
    about = {
        "source": arrival.source,
        "mode": MODE,
        "listener": arrival.listener,
        "received_at": arrival.received_at,
        "delivery_id": arrival.delivery_id,
        "remote_ip": arrival.remote_ip,
        "content_type": kind or None,
        "sha256": hashlib.sha256(verified.raw.body).hexdigest(),
    }
    if arrival.source != PUBSUB:
        made = _message(headers, headers, body, kind, about)
    elif _MESSAGE_ID in headers:
        made = _unwrapped(headers, body, kind, about)
    else:
        made = _wrapped(body, about)
    told = made["metadata"].get("messageId") if arrival.source == PUBSUB else None
    return {"id": verified.id or told or verified.replay_key or arrival.delivery_id, **made}


def safe_headers(raw: Raw, config: Verify | None) -> dict[str, Any]:
    """The headers of a delivery by their lower-case names, without those that prove who it is."""
    hidden = HIDDEN | ({config.signed_by} if config is not None else set())
    pairs = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in raw.headers)
    return lowered((name, value) for name, value in pairs if name.lower() not in hidden)


# ---------------------------------------------------------------------------- forms


def _message(
    headers: Mapping[str, Any],
    attributes: Mapping[str, Any],
    body: bytes,
    kind: str,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    metadata = {**about, "size_bytes": len(body)}
    event = _event(headers, body, kind)
    if event:
        metadata[CLOUDEVENT] = event
    return {
        **(body_of(body) if is_json(kind) else _plain(body)),
        "headers": dict(headers),
        "attributes": dict(attributes),
        "metadata": metadata,
        "ordering_key": None,
    }


def _wrapped(body: bytes, about: Mapping[str, Any]) -> dict[str, Any]:
    """A push that holds its message as JSON."""
    envelope = json_of(body)
    told = envelope.get("message") if isinstance(envelope, dict) else None
    if not isinstance(told, dict):
        raise BadEnvelope("the body is no push of Pub/Sub: it has no `message`")
    attributes = told.get("attributes")
    if attributes is None:
        attributes = {}
    if not isinstance(attributes, dict) or not _are_texts(attributes.values()):
        raise BadEnvelope("the attributes of a message are texts")
    headers = lowered(attributes.items())
    data = _decoded(told.get("data"))
    facts = {
        "messageId": told.get("messageId", told.get("message_id")),
        "publishTime": told.get("publishTime", told.get("publish_time")),
        "orderingKey": told.get("orderingKey", told.get("ordering_key")),
        "subscription": envelope.get("subscription"),
        "deliveryAttempt": envelope.get("deliveryAttempt"),
    }
    return _pushed(facts, headers, attributes, data, about)


def _unwrapped(
    headers: Mapping[str, Any], body: bytes, kind: str, about: Mapping[str, Any]
) -> dict[str, Any]:
    """A push whose body is the message, and whose headers tell the rest."""
    facts: dict[str, Any] = dict.fromkeys(_TOLD.values())
    attributes: dict[str, Any] = {}
    for name, value in headers.items():
        short = name.removeprefix(_UNWRAPPED)
        if name != short and short in _TOLD:
            facts[_TOLD[short]] = _first(value)
        elif name not in _TRANSPORT and not name.startswith("x-forwarded-"):
            attributes[short] = value
    attempt = facts["deliveryAttempt"]
    is_number = isinstance(attempt, str) and attempt.isdecimal() and attempt.isascii()
    facts["deliveryAttempt"] = int(attempt) if is_number else None
    if kind and not is_json(kind):
        attributes.setdefault("content-type", kind)
    return _pushed(facts, dict(attributes), attributes, body, about)


def _pushed(
    facts: Mapping[str, Any],
    headers: Mapping[str, Any],
    attributes: Mapping[str, Any],
    data: bytes,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    texts = [value for name, value in facts.items() if name != "deliveryAttempt"]
    if not _are_texts(value for value in texts if value is not None):
        raise BadEnvelope("what Pub/Sub tells of a message are texts")
    attempt = facts["deliveryAttempt"]
    if attempt is not None and (isinstance(attempt, bool) or not isinstance(attempt, int)):
        raise BadEnvelope("`deliveryAttempt` is a number")
    kind = _first(headers.get("content-type"))
    made = _message(headers, attributes, data, kind, about)
    known = {name: value for name, value in facts.items() if value not in (None, "")}
    return {
        **made,
        "metadata": {**made["metadata"], **known},
        "ordering_key": facts["orderingKey"] or None,
    }


def _decoded(data: object) -> bytes:
    if data is None:
        return b""
    try:
        if isinstance(data, str):
            return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise BadEnvelope("the data of a message is base64")


# ---------------------------------------------------------------------------- CloudEvents


def _event(headers: Mapping[str, Any], body: bytes, kind: str) -> dict[str, Any]:
    """What a CloudEvent tells of itself; nothing when it is none."""
    if _bare(kind) == _STRUCTURED:
        told = json_of(body)
        if not isinstance(told, dict) or not _are_texts(told.get(name) for name in _REQUIRED):
            raise BadEnvelope("the body is no CloudEvent")
        return {name: told[name] for name in told if name not in {"data", "data_base64"}}
    found = {
        name.removeprefix(_EVENT): unquote(value)
        for name, value in headers.items()
        if name.startswith(_EVENT) and isinstance(value, str)
    }
    if not _REQUIRED.issubset(found):
        return {}
    return {**found, "datacontenttype": kind} if kind else found


# ---------------------------------------------------------------------------- values


def is_json(kind: str) -> bool:
    """Whether a body of this type may be JSON; one without a type may."""
    bare = _bare(kind)
    return bare in {"", "application/json", "text/json"} or bare.endswith("+json")


def _bare(kind: str) -> str:
    return kind.partition(";")[0].strip().lower()


def _plain(body: bytes) -> dict[str, Any]:
    """A body that is no JSON by its own word: text, else bytes."""
    if not body:
        return {"data": None}
    try:
        return {"data": body.decode()}
    except UnicodeDecodeError:
        return {"data": None, "encoding": "base64", "raw": base64.b64encode(body).decode("ascii")}


def _first(value: object) -> str:
    if isinstance(value, list):
        value = value[0]
    return value if isinstance(value, str) else ""


def _are_texts(values: Any) -> bool:  # noqa: ANN401 - any values
    return all(isinstance(value, str) for value in values)
