"""W3C trace context of a message: what of it crosses into the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.telemetry.traces import context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.subscription.document import Trace

_LENGTH: Final = 55
"""Version, trace, span and flags; a later version may go on after them."""


def trace_of(rule: Trace, headers: Mapping[str, Any]) -> dict[str, Any] | None:
    """The trace that a message belongs to, with the baggage that may pass; none when it has none.

    `headers` are by their lower-case names. Baggage needs no trace: it crosses by itself.
    """
    if rule.propagate != "w3c":
        return None
    made: dict[str, Any] = {}
    parent = headers.get(context.TRACEPARENT)
    if isinstance(parent, str) and context.parsed(parent.strip()) is not None:
        made[context.TRACEPARENT] = parent.strip()[:_LENGTH]
        state = _joined(headers.get(context.TRACESTATE))
        if context.is_state(state):
            made[context.TRACESTATE] = state
    baggage = _joined(headers.get(context.BAGGAGE))
    found = context.members(baggage, rule.baggage_allowlist) if baggage else {}
    if found:
        made[context.BAGGAGE] = found
    return made or None


def _joined(value: object) -> str:
    """A header that may come several times, as the one that means the same."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ",".join(part for part in value if isinstance(part, str))
    return ""
