"""What the headers of a message may steer: allow-listed values, and nothing else.

A header never selects a credential, and a value that no rule lists changes nothing: it is refused,
told, and the message goes its ordinary way.
"""

from __future__ import annotations

import dataclasses
import json
import math
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from noetl.sources.traces import trace_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from noetl.dsl.subscription.document import Directive, SubscriptionSpec

PLAYBOOK: Final = "dispatch.playbook"
POOL: Final = "dispatch.execution_pool"
PRIORITY: Final = "priority"
HINTS: Final = ("idempotency_key", "content_type", "schema_hint")
REASONS: Final = ("not_allowed", "unmapped", "superseded", "not_text", "empty", "too_long")
"""Every reason that a directive is refused for."""
LONGEST: Final = 1_024
_WIDEST_BITS: Final = 8_192
"""A whole number above this has more digits than may be, and is not even written out."""
_UNPRINTABLE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What becomes of one message, resolved once; a replay follows it, whatever the headers say."""

    playbook: str
    execution_pool: str
    idempotency_key: str | None = None
    content_type: str | None = None
    schema_hint: str | None = None
    trace: dict[str, Any] | None = None
    applied: tuple[dict[str, str], ...] = ()
    refused: tuple[dict[str, str], ...] = ()
    payload_from: str = "message.json"

    @property
    def route_override(self) -> dict[str, str | None]:
        """The playbook and the pool that headers have chosen."""
        chosen = {entry["controls"]: entry["effective_value"] for entry in self.applied}
        return {
            "playbook": chosen.get(PLAYBOOK),
            "pool": chosen.get(POOL) or chosen.get(PRIORITY),
        }

    def as_json(self) -> dict[str, Any]:
        """As it is stored with a message."""
        made = {name: getattr(self, name) for name in _FIELDS}
        return {**made, "applied": list(self.applied), "refused": list(self.refused)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Plan:
        """The plan that was stored; what it does not know is left out."""
        known = {name: stored[name] for name in _FIELDS if name in stored}
        for name in ("applied", "refused"):
            known[name] = tuple(dict(entry) for entry in stored.get(name) or ())
        return cls(**known)


_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Plan))


@dataclass(slots=True)
class _Found:
    """A rule whose header is there: its value when it is followed, else why it is not."""

    rule: Directive
    value: str = ""
    reason: str = ""


def resolve(spec: SubscriptionSpec, headers: Mapping[str, Any]) -> Plan:
    """Where a message goes: what the document says, but for what its headers may change."""
    given = lower(headers) if spec.headers.normalize else {}
    found = list(_found(spec, given))
    followed: dict[str, _Found] = {}
    for one in found:
        if one.reason:
            continue
        earlier = followed.get(one.rule.controls)
        if earlier is not None:
            earlier.reason = "superseded"
        followed[one.rule.controls] = one
    if POOL in followed and PRIORITY in followed:
        followed.pop(PRIORITY).reason = "superseded"
    values = {controls: one.value for controls, one in followed.items()}
    return Plan(
        playbook=values.get(PLAYBOOK, spec.dispatch.playbook),
        execution_pool=values.get(POOL) or values.get(PRIORITY) or pool_of(spec),
        trace=trace_of(spec.headers.trace, given),
        applied=tuple(_told(one) for one in found if not one.reason),
        refused=tuple(_told(one) for one in found if one.reason),
        payload_from=spec.dispatch.payload_from,
        **{hint: values.get(hint) for hint in HINTS},
    )


def pool_of(spec: SubscriptionSpec) -> str:
    """The pool of runs whose messages ask for no other."""
    return spec.dispatch.execution_pool or spec.runtime.pool


def lower(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Headers by their lower-case names; names that differ in case alone become a list."""
    made: dict[str, Any] = {}
    for name, value in headers.items():
        key = name.lower()
        if key not in made:
            made[key] = value
        else:
            made[key] = [*_listed(made[key]), *_listed(value)]
    return made


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _found(spec: SubscriptionSpec, headers: Mapping[str, Any]) -> Iterator[_Found]:
    for rule in spec.headers.directives:
        if rule.header in headers:
            one = _Found(rule)
            one.value, one.reason = _text(headers[rule.header])
            if not one.reason:
                _constrain(one)
            yield one


def _text(value: object) -> tuple[str, str]:
    """The text of a header's value, and why there is none."""
    if isinstance(value, list):
        value = next((part for part in reversed(value) if isinstance(part, str)), None)
    if isinstance(value, int) and value.bit_length() > _WIDEST_BITS:
        return "", "too_long"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        value = json.dumps(value)
    if not isinstance(value, str):
        return "", "not_text"
    text = value.strip()
    if not text:
        return "", "empty"
    if len(text) > LONGEST:
        return "", "too_long"
    if any(unicodedata.category(letter) in _UNPRINTABLE for letter in text):
        return "", "not_text"
    return text, ""


def _constrain(one: _Found) -> None:
    """Hold a value against the list of its rule, and a priority against the map."""
    rule = one.rule
    if rule.allowed is not None and one.value not in rule.allowed:
        one.reason = "not_allowed"
    elif rule.controls == PRIORITY:
        pool = (rule.map or {}).get(one.value)
        if pool is None:
            one.reason = "unmapped"
        else:
            one.value = pool


def _told(one: _Found) -> dict[str, str]:
    about = {"header": one.rule.header, "controls": one.rule.controls}
    return about | ({"reason": one.reason} if one.reason else {"effective_value": one.value})
