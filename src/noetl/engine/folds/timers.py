"""Events of timers: set, fired, no longer needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.engine import events as ev
from noetl.engine.folds.awaiting import answer
from noetl.engine.folds.loops import frame_expired
from noetl.engine.state import Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.engine.events import Recorded
    from noetl.engine.state import Command, State


def _set(state: State, recorded: Recorded, event: ev.TimerSet) -> None:
    del recorded
    target = event.timer_key.partition(":")[2]
    if event.timer_key in state.timers:
        state.take("extend", state.extending)
    state.timers[event.timer_key] = Timer(kind=event.kind, due_at=event.due_at, target=target)
    match event.kind:
        case "execution_timeout":
            state.take("limit")
        case "step_timeout":
            state.take("rearm", target.rpartition("#")[0])
        case _:
            state.take("park", target)


def _fired(state: State, recorded: Recorded, event: ev.TimerFired) -> None:
    del recorded
    timer = state.timers.pop(event.timer_key, None)
    if timer is None:
        return
    if timer.kind == "execution_timeout":
        state.push("timeout")
        return
    if timer.kind == "step_timeout":
        _expired(state, timer.target)
        return
    if timer.kind == "frame":
        frame_expired(state, timer.target)
        return
    command = state.commands.get(timer.target)
    if command is None or command.status != "PARKED":
        return
    match timer.kind:
        case "retry":
            state.push("resume", command.key)
        case "wait":
            answer(state, command, {"status": "ok", "data": {"until": timer.due_at}})
        case _:
            answer(state, command, _too_late(command))


def _too_late(command: Command) -> dict[str, Any]:
    waited = "its child" if command.parked == "child" else "an answer"
    error = {
        "kind": "timeout",
        "code": "child_timeout" if command.parked == "child" else "callback_timeout",
        "message": f"{command.step} waited too long for {waited}",
        "retryable": True,
    }
    return {"status": "error", "error": error}


def _expired(state: State, target: str) -> None:
    """The limit of a visit has passed."""
    name, _, visit = target.rpartition("#")
    step = state.step(name)
    if step.is_live and str(step.visit) == visit:
        state.push("expire", name)


def _gone(state: State, recorded: Recorded, event: ev.TimerCancelled) -> None:
    del recorded
    state.take("disarm", event.timer_key)
    state.timers.pop(event.timer_key, None)


RULES: Final[dict[type[ev.Event], Callable[..., None]]] = {
    ev.TimerSet: _set,
    ev.TimerFired: _fired,
    ev.TimerCancelled: _gone,
}
