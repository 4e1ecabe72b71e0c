"""The life of a subscription, pure: which action leads where, and what an event changes of a row.

The state follows from the six events of a life alone. Everything else that events tell is kept in
the summary of the row, so that no reader has to go through the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from noetl.api.subscriptions import STOPPED_BY_ITSELF
from noetl.edge.errors import Unacceptable
from noetl.engine import subscriptions as names
from noetl.engine.events import SubscriptionEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from noetl.api.subscriptions import Desired
    from noetl.engine.events import Recorded
    from noetl.store.subscriptions import SubscriptionRow

MOST_DOWNSTREAMS: Final = 64
MOST_REQUESTS: Final = 100
_ALL_STATES: Final = ("REGISTERED", "ACTIVE", "PAUSED", "DRAINING", "DEACTIVATED")


class Step(NamedTuple):
    """What an action does."""

    allowed: tuple[str, ...]
    state: str
    event: str


STEPS: Final[Mapping[str, Step]] = {
    "activate": Step(("REGISTERED", "PAUSED", "DEACTIVATED", "ACTIVE"), "ACTIVE", names.ACTIVATED),
    "pause": Step(("ACTIVE", "PAUSED"), "PAUSED", names.PAUSED),
    "resume": Step(("PAUSED", "ACTIVE"), "ACTIVE", names.RESUMED),
    "drain": Step(("ACTIVE", "PAUSED", "DRAINING"), "DRAINING", names.DRAINING),
    "deactivate": Step(_ALL_STATES, "DEACTIVATED", names.DEACTIVATED),
}
STATES: Final = {
    names.REGISTERED: "REGISTERED",
    **{step.event: step.state for step in STEPS.values()},
}


class BadTransition(Unacceptable):
    """An action that the state does not allow; it says which ones it does."""

    code = "bad_transition"

    def __init__(self, action: str, state: str) -> None:
        allowed = [name for name, step in STEPS.items() if state in step.allowed]
        super().__init__(
            f"a subscription that is {state} cannot be told to {action}",
            code=self.code,
            hint=f"now it can be told to {', '.join(allowed)}",
        )
        self.state = state
        self.allowed = tuple(allowed)


def step_of(action: str) -> Step:
    """What an action means; refused when there is no such action."""
    found = STEPS.get(action)
    if found is None:
        raise Unacceptable(f"there is no action `{action}`", hint=", ".join(STEPS))
    return found


def desired(row: SubscriptionRow) -> Desired:
    """What a runtime that starts now is to do."""
    by_itself = row.summary.get("reason") == STOPPED_BY_ITSELF
    if row.state in {"REGISTERED", "ACTIVE"} or by_itself:
        return "running"
    return {"PAUSED": "paused", "DRAINING": "draining"}.get(row.state, "stopped")  # type: ignore[return-value]  # words of `Desired`


def after(row: SubscriptionRow, events: Sequence[Recorded]) -> SubscriptionRow:
    """The row that follows from events behind its last one."""
    summary = {**row.summary}
    counts = summary["counts"] = {**summary.get("counts", {})}
    state = row.state
    for item in events:
        name = str(item.event.__struct_config__.tag)
        counts[name] = counts.get(name, 0) + 1
        if isinstance(item.event, SubscriptionEvent):
            state = STATES.get(name, state)
            _noted(summary, name, item, item.event)
    last = events[-1]
    return msgspec.structs.replace(
        row,
        state=state,
        summary=summary,
        last_seq=last.seq,
        last_event_id=last.event_id,
        last_event_type=str(last.event.__struct_config__.tag),
        updated_at=last.created_at,
    )


def _noted(summary: dict[str, Any], name: str, item: Recorded, event: SubscriptionEvent) -> None:
    if name in STATES:
        summary["actor"] = event.about.get("actor", "")
        summary["reason"] = event.about.get("reason", "")
        summary["since"] = item.created_at
    elif name in {names.CIRCUIT_OPENED, names.CIRCUIT_CLOSED}:
        _circuit(summary, item, event.facts, is_open=name == names.CIRCUIT_OPENED)
    elif name in _WAITING:
        summary["spool"] = _WAITING[name](int(summary.get("spool", 0)), event.facts)
    elif name == names.RATE_LIMITED:
        summary["rate_limited_at"] = item.created_at
    elif name in {names.REDRIVE_REQUESTED, names.DISCARD_REQUESTED}:
        asked = {"request_id": item.event_id, "at": item.created_at, **event.about, **event.facts}
        asked["action"] = "redrive" if name == names.REDRIVE_REQUESTED else "discard"
        summary["requests"] = [*summary.get("requests", []), asked][-MOST_REQUESTS:]
    elif name in {names.REDRIVEN, names.DISCARDED} and summary.get("requests"):
        ref = event.facts.get("ref") or event.facts.get("spool_ref")
        summary["requests"] = [
            left for asked in summary["requests"] if (left := _without(asked, ref)) is not None
        ]
    elif name in {names.REDRIVE_COMPLETED, names.DISCARD_COMPLETED} and summary.get("requests"):
        summary["requests"] = [
            asked
            for asked in summary["requests"]
            if asked["request_id"] != event.facts.get("request_id") or asked.get("lying_here")
        ]


_WAITING: Final[dict[str, Callable[[int, dict[str, Any]], int]]] = {
    names.SPOOLED: lambda items, _: items + 1,
    names.SPOOL_DRAINED: lambda _, facts: _whole(facts.get("remaining")),
    names.SPOOL_RECOVERED: lambda _, facts: _whole(facts.get("pending")),
}
"""How many messages wait after an event, by how many did before."""


def _whole(number: object) -> int:
    return number if isinstance(number, int) else 0


def _without(asked: dict[str, Any], ref: object) -> dict[str, Any] | None:
    """A request without a letter that was dealt with; none when nothing of it is left."""
    if asked.get("all"):
        left = {**asked, "remaining": int(asked.get("remaining", 0)) - 1}
        return left if left["remaining"] > 0 else None
    refs = [name for name in asked.get("refs", ()) if name != ref]
    return {**asked, "refs": refs, "remaining": len(refs)} if refs else None


def _circuit(
    summary: dict[str, Any], item: Recorded, facts: dict[str, Any], *, is_open: bool
) -> None:
    circuits = summary["circuit"] = {**summary.get("circuit", {})}
    name = str(facts.get("downstream", ""))[:255]
    if name not in circuits and len(circuits) >= MOST_DOWNSTREAMS:
        return
    before = circuits.get(name, {})
    circuits[name] = {
        "phase": "open" if is_open else "closed",
        "since": item.created_at,
        "trips": facts.get("trips", before.get("trips", 0)),
        "reason": str(facts.get("reason", "")) if is_open else "",
    }
