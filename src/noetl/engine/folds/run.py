"""Events of the run: its start, its pauses, its end, and the runs that it asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.engine import events as ev
from noetl.engine.folds.awaiting import settle
from noetl.engine.folds.restore import is_limited, restored
from noetl.engine.state import Child
from noetl.engine.tokens import enter

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.engine.events import Recorded
    from noetl.engine.state import State


def _started(state: State, recorded: Recorded, event: ev.PlaybookStarted) -> None:
    del recorded
    if state.is_started:
        return
    state.is_started = True
    state.execution_id = event.execution_id
    state.path = event.path
    state.version = event.version
    state.catalog_id = event.catalog_id
    state.pool = event.pool
    state.priority = event.priority
    state.parent_execution_id = event.parent_execution_id
    state.parent_key = event.parent_key
    state.depth = event.depth
    state.engine_version = event.engine_version
    state.concurrency_key = event.concurrency_key
    state.dedup_key = event.dedup_key
    state.rerun_of = event.rerun_of
    state.forked_from = event.forked_from
    state.labels = event.labels
    state.trace = event.trace
    state.started_at = state.now
    state.workload = event.workload
    if event.forked_from is not None:
        return
    if event.is_queued:
        state.is_queued = True
        state.push("queue")
    else:
        _begin(state)


def _begin(state: State) -> None:
    if is_limited(state):
        state.push("limit")
    enter(state, state.program.entry)


def _restored(state: State, recorded: Recorded, event: ev.StateRestored) -> None:
    del recorded
    if event.snapshot is not None:
        restored(state, event.snapshot, event.overrides)


def _queued(state: State, recorded: Recorded, event: ev.ExecutionQueued) -> None:
    del recorded, event
    state.take("queue")


def _admitted(state: State, recorded: Recorded, event: ev.ExecutionAdmitted) -> None:
    del recorded, event
    if state.is_queued:
        state.is_queued = False
        state.take("queue")
        _begin(state)


def _paused(state: State, recorded: Recorded, event: ev.ExecutionPaused) -> None:
    del recorded, event
    if not state.is_paused:
        state.is_paused = True
        state.paused_at = state.now


def _resumed(state: State, recorded: Recorded, event: ev.ExecutionResumed) -> None:
    del recorded, event
    if not state.is_paused:
        return
    state.is_paused = False
    if any(timer.kind in EXTENDED for timer in state.timers.values()):
        state.extending = state.paused_at
        state.agenda = {("extend", state.paused_at): None, **state.agenda}
    state.paused_at = None


# Limits that a pause does not use up.
EXTENDED: Final = frozenset({"step_timeout", "execution_timeout"})


def _ended(state: State, recorded: Recorded, event: ev.Event) -> None:
    del recorded
    state.terminal = event.status
    state.ended_at = state.now
    state.is_queued = False
    state.is_paused = False
    state.agenda.clear()
    state.commands.clear()
    state.command_ids.clear()
    state.timers.clear()
    for step in state.steps.values():
        if step.is_live:
            step.is_live = False
            step.status = "CANCELLED"
    state.live_visits = 0
    if isinstance(event, ev.PlaybookFailed):
        state.failure = event.error
    if isinstance(event, (ev.PlaybookCompleted, ev.PlaybookFailed)):
        state.result = event.result
        state.reference = event.reference


# ---------------------------------------------------------------------------- children


def _requested(state: State, recorded: Recorded, event: ev.ExecutionRequested) -> None:
    del recorded
    state.children[event.child_key] = Child(
        command_key=event.command_key, is_awaited=event.is_awaited
    )
    command = state.commands.get(event.command_key)
    if command is not None:
        command.children[event.child_key] = None
        state.take("request", event.command_key)


def _returned(state: State, recorded: Recorded, event: ev.ExecutionReturned) -> None:
    del recorded
    child = state.children.pop(event.child_key, None)
    command = state.commands.get(child.command_key) if child else None
    if command is None or event.child_key not in command.children:
        return
    command.children[event.child_key] = _outcome(event)
    if all(done is not None for done in command.children.values()):
        settle(state, command)


def _outcome(event: ev.ExecutionReturned) -> dict[str, Any]:
    """What a child gave, for the task that asked for it."""
    told: dict[str, Any] = {"execution_id": event.child_execution_id}
    if event.outcome == "STARTED":
        started = {"execution_id": event.child_execution_id, "status": "started"}
        return told | {"status": "ok", "data": started}
    if event.outcome == "COMPLETED":
        return told | {"status": "ok", "data": event.result, "reference": event.reference}
    given = event.error
    error = {
        "kind": "child_failed",
        "code": given.code if given else event.outcome.lower(),
        "message": given.message if given else f"the child was {event.outcome.lower()}",
        "retryable": False,
        "details": {"execution_id": event.child_execution_id, "status": event.outcome}
        | ({"step": given.step} if given and given.step else {}),
    }
    return told | {"status": "error", "error": error}


# A child that returns after its parent ended is no longer open.
AFTER_THE_END: Final = (ev.ExecutionReturned,)

RULES: Final[dict[type[ev.Event], Callable[..., None]]] = {
    ev.PlaybookStarted: _started,
    ev.StateRestored: _restored,
    ev.ExecutionQueued: _queued,
    ev.ExecutionAdmitted: _admitted,
    ev.ExecutionPaused: _paused,
    ev.ExecutionResumed: _resumed,
    ev.PlaybookCompleted: _ended,
    ev.PlaybookFailed: _ended,
    ev.PlaybookCancelled: _ended,
    ev.ExecutionRequested: _requested,
    ev.ExecutionReturned: _returned,
}
