"""What stays in order with what, and what a message depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from noetl.dsl.subscription.spool import Circuit, Downstream
from noetl.sources.directives import lower

if TYPE_CHECKING:
    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.sources.directives import Plan

DEFAULT: Final = "default"
SERVER: Final = "server"
"""What every message depends on, besides its own downstream."""
LONGEST_LANE: Final = 128
_PASSIVE: Final = (Downstream(name=DEFAULT),)


def ordering_of(spec: SubscriptionSpec) -> str:
    """`per_key`, `global` or `none`."""
    return spec.spool.ordering if spec.spool else "per_key"


def lane_of(spec: SubscriptionSpec, message: Mapping[str, Any]) -> str:
    """The lane of a message: those of one lane stay in order.

    In a global order all have one; without an order each has its own.
    """
    ordering = ordering_of(spec)
    if ordering == "global":
        return ""
    if ordering == "none":
        return _short(message.get("id"))
    name = spec.spool.ordering_key if spec.spool else None
    return _short(message.get("ordering_key") if name is None else _named(name, message))


def is_ordered(spec: SubscriptionSpec, lane: str) -> bool:
    """Whether deliveries of a lane that are pushed stay in order: those without a key need not."""
    ordering = ordering_of(spec)
    return ordering == "global" or (ordering == "per_key" and bool(lane))


def is_kept_by_one(spec: SubscriptionSpec) -> bool:
    """Whether one process alone sees to the order of all messages."""
    keda = spec.scaling.keda if spec.scaling else None
    most = max(spec.runtime.max_instances, keda.max if keda else 1)
    return most == 1 and ordering_of(spec) != "none"


def circuit_of(spec: SubscriptionSpec) -> Circuit:
    """When circuits open, also of a document that says nothing about it."""
    return spec.spool.circuit if spec.spool else Circuit()


def downstreams_of(spec: SubscriptionSpec) -> tuple[Downstream, ...]:
    """What runs depend on, as declared."""
    return circuit_of(spec).downstream or _PASSIVE


def downstream_of(spec: SubscriptionSpec, plan: Plan) -> str:
    """What the run of a message depends on: that of its pool, else the default, else the first."""
    names = [one.name for one in downstreams_of(spec)]
    for name in (plan.execution_pool, DEFAULT):
        if name in names:
            return name
    return names[0]


def _named(name: str, message: Mapping[str, Any]) -> object:
    """The value of `device_id` or of `message.data.x.y`."""
    if name.startswith("message."):
        found: object = message
        for part in name.split(".")[1:]:
            found = found.get(part) if isinstance(found, Mapping) else None
        return found
    headers, attributes = message.get("headers") or {}, message.get("attributes") or {}
    value = lower(headers).get(name.lower())
    if value is None:
        value = attributes.get(name)
    data = message.get("data")
    if value is None and isinstance(data, Mapping):
        value = data.get(name)
    return value


def _short(value: object) -> str:
    """A value as the name of a lane; a long one stands for itself by its digest."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    raw = text.encode(errors="surrogatepass")
    return text if len(raw) <= LONGEST_LANE else f"sha256:{hashlib.sha256(raw).hexdigest()}"
