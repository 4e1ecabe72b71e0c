"""W3C trace context: the words of a request's headers that say which trace it belongs to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
BAGGAGE: Final = "baggage"
MOST_STATE: Final = 512
MOST_BAGGAGE_BYTES: Final = 8_192
MOST_MEMBERS: Final = 64

# A later version may have more fields; the first four mean the same for ever.
_PARENT: Final = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<span>(?!0{16})[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<more>-[\x20-\x7e]*)?"
)
_STATE: Final = re.compile(r"[\x20-\x7e]+")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Context(NamedTuple):
    """A place in a trace, as it goes from process to process."""

    trace_id: str
    span_id: str
    is_sampled: bool = True

    @property
    def traceparent(self) -> str:
        """The header that names this place."""
        return f"00-{self.trace_id}-{self.span_id}-{'01' if self.is_sampled else '00'}"


def parsed(traceparent: object) -> Context | None:
    """The place that a header names; one that is not well formed names none."""
    found = _PARENT.fullmatch(traceparent) if isinstance(traceparent, str) else None
    if found is None or (found["version"] == "00" and found["more"]):
        return None
    return Context(found["trace"], found["span"], bool(int(found["flags"], 16) & 1))


def place_of(trace: Mapping[str, Any] | None) -> Context | None:
    """The place that a run, a command or a wish carries."""
    return None if trace is None else parsed(trace.get(TRACEPARENT))


def trace_id_of(trace: Mapping[str, Any] | None) -> str | None:
    """The id of the trace that something belongs to."""
    found = place_of(trace)
    return None if found is None else found.trace_id


def of_headers(headers: Mapping[str, str]) -> dict[str, Any] | None:
    """The trace that a request belongs to; one that is not well formed is none."""
    parent = headers.get(TRACEPARENT)
    if parent is None or parsed(parent) is None:
        return None
    trace = {TRACEPARENT: parent[:55]}
    state, baggage = headers.get(TRACESTATE), headers.get(BAGGAGE)
    if state and is_state(state):
        trace[TRACESTATE] = state
    if baggage and len(baggage.encode()) <= MOST_BAGGAGE_BYTES:
        trace[BAGGAGE] = baggage
    return trace


def continued(trace: Mapping[str, Any] | None, here: Context) -> dict[str, Any]:
    """A trace that goes on from a new place; what else it carries stays."""
    return {**(trace or {}), TRACEPARENT: here.traceparent}


def onward(trace: Mapping[str, Any] | None) -> dict[str, str]:
    """The headers of a request to a stranger; the baggage is not for him."""
    place = place_of(trace)
    if trace is None or place is None:
        return {}
    made, state = {TRACEPARENT: place.traceparent}, trace.get(TRACESTATE)
    return {**made, TRACESTATE: state} if is_state(state) else made


def is_state(state: object) -> TypeGuard[str]:
    """Whether it is a `tracestate` that may go on."""
    if not isinstance(state, str):
        return False
    return len(state) <= MOST_STATE and _STATE.fullmatch(state) is not None


def members(baggage: str, allowed: Collection[str] | None = None) -> dict[str, str]:
    """The members of a baggage without their properties; only those that may pass."""
    if len(baggage.encode()) > MOST_BAGGAGE_BYTES:
        return {}
    found: dict[str, str] = {}
    for member in baggage.split(",")[:MOST_MEMBERS]:
        name, is_member, value = member.partition(";")[0].partition("=")
        name = name.strip()
        if is_member and _NAME.fullmatch(name) and (allowed is None or name in allowed):
            found[name] = unquote(value.strip())
    return found


def baggage_of(found: Mapping[str, str]) -> str:
    """Members as the header that carries them."""
    return ",".join(f"{name}={quote(value, safe='')}" for name, value in found.items())
