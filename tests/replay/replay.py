"""Goes through a log once more: what came from outside is taken, what was decided is decided.

Wherever the engine has something to say, the log must go on with just that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from noetl.engine import events as ev
from noetl.engine.decide import Need, decide
from noetl.engine.fold import fold
from noetl.engine.vocabulary import vocabulary

if TYPE_CHECKING:
    from noetl.engine.state import State
    from tests.replay.logs import Log

OUTSIDE = {doc.name for doc in vocabulary() if doc.producer != "engine"}
# Events of the engine's own vocabulary that the host appends by itself in some cases: a lease that
# ended, a command that was given back, a run that was finalized, a defect.
BY_THE_HOST = {
    "command.lost", "command.resumed", "playbook.completed", "playbook.failed", "engine.error",
}  # fmt: skip


class Differs(AssertionError):
    """The engine decides otherwise than it did."""


def replay(log: Log) -> tuple[State, int]:
    """The state at the end, and how many events were decided on the way."""
    state = log.begun()
    at = decided_in_all = 0
    while at < len(log.rows):
        decided = [] if _is_half(log, at) else _decided(state, log)
        for event in decided:
            if at == len(log.rows):
                raise Differs(f"{log.name}: the log ends before {_name(event)}")
            _compare(log, at, event)
            fold(state, log.rows[at])
            at += 1
        if decided:
            decided_in_all += len(decided)
            continue
        event = log.rows[at].event
        if _name(event) not in OUTSIDE | BY_THE_HOST and not _is_by_hand(state, event):
            raise Differs(f"{log.name}/{at + 1}: {_name(event)} was decided, and is not any more")
        fold(state, log.rows[at])
        at += 1
    if left := _decided(state, log):
        raise Differs(f"{log.name}: {[_name(event) for event in left]} is decided at the end")
    return state, decided_in_all


def _is_by_hand(state: State, event: ev.Event) -> bool:
    """Whether a step that failed is tried again; any other entry is the engine's decision."""
    return isinstance(event, ev.StepEntered) and event.step in state.failed_steps


def _is_half(log: Log, at: int) -> bool:
    """Whether the next event belongs to the one before: a fork is started and restored at once."""
    return at > 0 and isinstance(log.rows[at].event, ev.StateRestored)


def _decided(state: State, log: Log) -> list[ev.Event]:
    resolved: dict[str, Any] = {}
    while True:
        decided = decide(state, resolved)
        if not isinstance(decided, Need):
            return decided
        for reference in decided.refs:
            resolved[reference.ref] = log.objects[reference.ref]


def _compare(log: Log, at: int, event: ev.Event) -> None:
    then, now = _facts(log.rows[at].event), _facts(event)
    if then != now and _inline(then, log.objects) != _inline(now, log.objects):
        raise Differs(f"{log.name}/{at + 1}: {now}\nwas {then}")


def _facts(event: ev.Event) -> dict[str, Any]:
    """An event without what only the host knows."""
    facts: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(msgspec.structs.asdict(event)))
    facts.pop("callback_key", None)
    return {"event_type": _name(event), **facts}


def _inline(facts: dict[str, Any], objects: dict[str, Any]) -> dict[str, Any]:
    """An event with the values that the host had moved out of it."""
    made = dict(facts)
    reference = made.pop("reference", None)
    if reference is not None:
        made["result"] = objects.get(reference["ref"], reference)
    if chunks := made.pop("items_ref", ()):
        made["items"] = [item for chunk in chunks for item in objects[chunk["ref"]]]
    if refs := made.pop("refs", None):
        made["ctx"] = {**made.get("ctx", {}), **{key: objects[r["ref"]] for key, r in refs.items()}}
    return made


def _name(event: ev.Event) -> str:
    return str(type(event).__struct_config__.tag)
