"""What the run of a message gets: its workload, and the key under which it starts only once."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.sources.directives import HINTS, lower

if TYPE_CHECKING:
    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.sources.directives import Plan

LONGEST_KEY: Final = 500
DELIVERY_WINDOW_S: Final = 86_400
"""How long a delivery is remembered when messages may repeat themselves."""
REPLAY_WINDOW_S: Final = 604_800
"""How long a message that waited in the spool is remembered."""
MOST_BYTES: Final = 8 << 20
"""A larger message is a dead letter."""
_ERROR: Final = "payload_error"


def message_of(spec: SubscriptionSpec, message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as its playbook sees it: without what settles it, with the headers it may have."""
    made = {name: value for name, value in message.items() if name != "ack_id"}
    headers = lower(made.get("headers") or {}) if spec.headers.normalize else {}
    if spec.headers.passthrough == "drop":
        kept = {rule.header for rule in spec.headers.directives}
        headers = {name: value for name, value in headers.items() if name in kept}
    return {**made, "headers": headers}


def workload_of(
    message: Mapping[str, Any], plan: Plan, *, subscription_path: str, source: str
) -> dict[str, Any]:
    """The workload of a message's run."""
    made: dict[str, Any] = {
        "message": {name: value for name, value in message.items() if name != "ack_id"},
        "subscription": subscription_path,
        "source": source,
    }
    for hint in HINTS:
        value = getattr(plan, hint)
        if value is not None:
            made[hint] = value
    payload = _payload(message, plan)
    return {**payload, **made}


def dedup_of(spec: SubscriptionSpec, plan: Plan, message_id: str, recv_seq: str) -> dict[str, Any]:
    """The key under which a message starts only one run, and for how long."""
    if not spec.dedup.enabled:
        return {"key": f"d:{recv_seq}", "window_secs": DELIVERY_WINDOW_S}
    text = dedup_text(plan, message_id)
    raw = text.encode(errors="surrogatepass")
    key = text if len(raw) <= LONGEST_KEY else hashlib.sha256(raw).hexdigest()
    return {"key": f"m:{key}", "window_secs": spec.dedup.window_secs}


def dedup_text(plan: Plan, message_id: str) -> str:
    """What makes two messages the same."""
    return plan.idempotency_key if plan.idempotency_key is not None else message_id


def replay_dedup(
    dispatch_key: str, redrives: int = 0, *, kept: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The key of a message that waited in the spool; each redrive is a start of its own.

    `kept` are the keys of its first start, as far as its key is still that one: a further run must
    not be a duplicate of the one that failed.
    """
    key = f"{dispatch_key}#r{redrives}" if redrives else dispatch_key
    if kept is not None and kept["key"] == key:
        return dict(kept)
    return {"key": key, "window_secs": REPLAY_WINDOW_S}


def text_of(message: Mapping[str, Any]) -> str:
    """The body of a message as text; base64 when it is not UTF-8."""
    if message.get("encoding") == "base64":
        return str(message.get("raw") or "")
    data = message.get("data")
    if data is None and not _size(message):
        return ""
    if isinstance(data, str) and _is_text(message, data):
        return data
    return msgspec.json.encode(data).decode()


def _payload(message: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    if plan.payload_from == "message.attributes":
        return dict(message.get("attributes") or {})
    if plan.payload_from == "message.body":
        return {"body": text_of(message)}
    if plan.content_type is not None:
        return _parsed(message, plan.content_type)
    return _merged(message.get("data"))


def _merged(value: object) -> dict[str, Any]:
    """An object at the top level, anything else as `body`."""
    return dict(value) if isinstance(value, Mapping) else {"body": value}


def _parsed(message: Mapping[str, Any], content_type: str) -> dict[str, Any]:
    """The body as a message says that it is to be read."""
    kind, data = content_type.partition(";")[0].strip().lower(), message.get("data")
    if kind == "application/json":
        if _is_json(message):
            return _merged(data)
        return {"body": text_of(message), _ERROR: "the body is not JSON"}
    if kind == "application/x-ndjson":
        return _lines(message)
    if kind == "application/cloudevents+json":
        if not isinstance(data, Mapping):
            return {"body": text_of(message), _ERROR: "the body is not a CloudEvent"}
        about = {k: v for k, v in data.items() if k not in {"data", "data_base64"}}
        return {"body": data.get("data", data.get("data_base64")), "cloudevent": about}
    return {"body": text_of(message)}


def _lines(message: Mapping[str, Any]) -> dict[str, Any]:
    text = text_of(message)
    try:
        return {"body": [msgspec.json.decode(line) for line in text.split("\n") if line.strip()]}
    except msgspec.DecodeError:
        return {"body": text, _ERROR: "a line of the body is not JSON"}


def _is_json(message: Mapping[str, Any]) -> bool:
    """Whether the body did parse as JSON."""
    data = message.get("data")
    if message.get("encoding") == "base64" or (data is None and not _size(message)):
        return False
    return not (isinstance(data, str) and _is_text(message, data))


def _is_text(message: Mapping[str, Any], data: str) -> bool:
    """Whether a text is the body itself; what JSON has between quotes is shorter than its body."""
    size = _size(message)
    return size is None or size == len(data.encode(errors="surrogatepass"))


def _size(message: Mapping[str, Any]) -> int | None:
    size = (message.get("metadata") or {}).get("size_bytes")
    return size if isinstance(size, int) else None
