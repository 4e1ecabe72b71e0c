"""The fold: one event more, and the state that follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.engine.folds import commands, loops, run, steps, timers

if TYPE_CHECKING:
    from noetl.engine.events import Recorded
    from noetl.engine.state import State

_RULES = run.RULES | steps.RULES | loops.RULES | commands.RULES | timers.RULES


def fold(state: State, recorded: Recorded) -> State:
    """Apply one event; after a terminal event only the position moves."""
    state.seq = recorded.seq
    state.last_event_id = recorded.event_id
    state.now = recorded.created_at
    if state.terminal is None:
        apply = _RULES.get(type(recorded.event))
        if apply is not None:
            apply(state, recorded, recorded.event)
    elif isinstance(recorded.event, run.AFTER_THE_END):
        run.RULES[type(recorded.event)](state, recorded, recorded.event)
    return state
