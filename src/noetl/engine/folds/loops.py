"""Events of loops: items and iterations, frames of a cursor and their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.engine import events as ev
from noetl.engine.folds.steps import give_up
from noetl.engine.state import FrameState, LoopState

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.dsl.views import Reference
    from noetl.engine.events import Recorded
    from noetl.engine.state import Command, State


def _started(state: State, recorded: Recorded, event: ev.LoopStarted) -> None:
    del recorded
    state.take("work", event.step)
    state.step(event.step).loop = LoopState(
        total=event.total,
        mode=event.mode,
        max_in_flight=event.max_in_flight,
        items=event.items,
        items_ref=event.items_ref,
        frame_spec=event.frame_spec,
        results=[None] * event.total,
    )
    state.push("loop", event.step)


def _done(state: State, recorded: Recorded, event: ev.LoopDone) -> None:
    del recorded
    state.take("loop", event.step)
    step = state.step(event.step)
    step.outcome = event.result
    step.reference = event.reference
    step.error = event.error
    if step.loop is not None:
        step.loop.results = []
        step.loop.items = None
    state.push("finish", event.step)


def can_issue(loop: LoopState) -> bool:
    """Whether another iteration may run now."""
    has_more = loop.next_index < loop.total or bool(loop.again)
    return not loop.is_ending and has_more and loop.open < loop.max_in_flight


def issued_of_loop(state: State, event: ev.CommandIssued, loop: LoopState) -> None:
    """An iteration, a claim or a row is open."""
    loop.open += 1
    if event.frame is not None:
        frame = loop.frames.get(event.frame)
        if frame is not None and not event.is_claim and event.index in frame.waiting:
            frame.waiting.remove(event.index)
            frame.open += 1
            if not frame.waiting or frame.open >= loop.frame_spec["row_concurrency"]:
                state.take("frame", event.step, event.frame)
        return
    if event.index in loop.again:
        loop.again.remove(event.index)
    elif event.index is not None:
        loop.next_index = event.index + 1
    if not can_issue(loop):
        state.take("loop", event.step)


def iterated(
    state: State,
    command: Command,
    loop: LoopState,
    event: ev.CommandCompleted | ev.CommandFailed,
) -> None:
    """An iteration, a claim or a row has ended."""
    loop.open -= 1
    error = event.error if isinstance(event, ev.CommandFailed) else None
    if command.frame is not None:
        _of_frame(state, command, loop, error)
    else:
        loop.done += 1
        _kept(command, loop, event)
        if error is not None:
            _failed(state, command, loop, error)
        if not state.is_failing and (loop.open == 0 or can_issue(loop)):
            state.push("loop", command.step)
    if state.is_failing and loop.open == 0:
        give_up(state, command.step)


def _kept(command: Command, loop: LoopState, event: ev.CommandCompleted | ev.CommandFailed) -> None:
    """The result of a good iteration, and whether its body ends the loop."""
    index = command.index
    if isinstance(event, ev.CommandFailed) or index is None or index >= len(loop.results):
        return
    report = command.report
    if isinstance(report, ev.CallDone):
        loop.results[index] = kept(report.result, report.reference)
        loop.is_ending = loop.is_ending or report.ends_loop
    elif command.awaited is not None:
        loop.results[index] = kept(command.awaited.get("data"), command.awaited_ref)
        loop.is_ending = loop.is_ending or event.ends_loop


def kept(data: object, reference: Reference | None) -> Any:  # noqa: ANN401 - data of a tool
    """A value inside a list: as it is, or as a map that names where it lies."""
    if reference is None:
        return data
    known = reference.extracted if isinstance(reference.extracted, dict) else {}
    return {**known, "_ref": reference.ref, "_store": reference.store, "_size": reference.size}


def _failed(state: State, command: Command, loop: LoopState, error: ev.Error) -> None:
    loop.failed += 1
    loop.errors.append({"index": command.index, "kind": error.kind, "message": error.message})
    loop.first_error = loop.first_error or error
    if stops_at_once(state, command.step) and not loop.is_ending:
        loop.is_ending = True
        _take_back(state, command.step)


def stops_at_once(state: State, name: str) -> bool:
    """Whether one failed iteration ends the loop."""
    return state.program.steps[name].step.failure_mode == "fail_fast"


def _take_back(state: State, name: str) -> None:
    """Cancel what nobody claimed."""
    for other in state.commands.values():
        if other.step == name and other.status in {"PENDING", "PARKED"}:
            state.push("cancel", other.key, "fail_fast")


def withdrawn_of_loop(state: State, command: Command, loop: LoopState) -> None:
    """An iteration, a claim or a row was cancelled."""
    loop.open -= 1
    if state.is_failing or not state.step(command.step).is_live:
        return
    if command.frame is not None:
        _of_frame(state, command, loop, _withdrawal(command))
    elif loop.open == 0:
        state.push("loop", command.step)


def _withdrawal(command: Command) -> ev.Error:
    message = f"{command.key} was cancelled"
    return ev.Error(kind="cancelled", code="cancelled", message=message, step=command.step)


# ---------------------------------------------------------------------------- frames of a cursor


def _of_frame(state: State, command: Command, loop: LoopState, error: ev.Error | None) -> None:
    number = command.frame
    frame = loop.frames.get(number) if number is not None else None
    if frame is None or number is None:
        return
    if command.issued.is_claim:
        if error is None:
            _claimed_rows(command, loop, frame)
        else:
            frame.error = error
    else:
        frame.open -= 1
        report = command.report
        if isinstance(report, ev.CallDone) and report.ends_loop:
            _end(loop)
        if error is not None and command.index is not None:
            frame.failed.append(command.index)
            frame.error = frame.error or error
    can_go_on = bool(frame.waiting) or frame.open == 0
    if can_go_on and not state.is_failing:
        state.push("frame", command.step, number)


def _claimed_rows(command: Command, loop: LoopState, frame: FrameState) -> None:
    """What the claim returned: rows, or a list of them."""
    report = command.report
    data = report.result if isinstance(report, ev.CallDone) else None
    frame.reference = report.reference if isinstance(report, ev.CallDone) else None
    frame.is_claimed = True
    if frame.reference is not None:
        known = frame.reference.extracted or {}
        frame.total = int(known.get("row_count") or frame.reference.total or 0)
    else:
        rows = data.get("rows", data.get("messages")) if isinstance(data, dict) else data
        frame.rows = rows if isinstance(rows, list) else []
        frame.total = len(frame.rows)
    whole = loop.frame_spec["process"] == "frame"
    frame.waiting = list(range(min(frame.total, 1) if whole else frame.total))


def _end(loop: LoopState) -> None:
    """No further row or frame is begun."""
    loop.is_ending = True
    for frame in loop.frames.values():
        frame.waiting = []


def _dispatched(state: State, recorded: Recorded, event: ev.FrameDispatched) -> None:
    del recorded
    loop = state.step(event.step).loop
    if loop is None:
        return
    state.take("claim", event.step, event.frame)
    if event.frame not in loop.frames:
        loop.frames[event.frame] = FrameState()
        loop.next_frame = event.frame + 1
    if not has_free_lane(loop):
        state.take("loop", event.step)


def has_free_lane(loop: LoopState) -> bool:
    """Whether another frame may be claimed."""
    return (
        not loop.is_ending
        and loop.next_frame < loop.frame_spec["max_frames"]
        and len(loop.frames) + loop.lanes_closed < loop.max_in_flight
    )


def _committed(state: State, recorded: Recorded, event: ev.FrameCommitted) -> None:
    del recorded
    loop = state.step(event.step).loop
    frame = loop.frames.pop(event.frame, None) if loop else None
    if loop is None or frame is None:
        return
    state.take("frame", event.step, event.frame)
    loop.rows += event.rows
    loop.done += event.rows
    loop.failed += event.failed
    if not event.rows:
        loop.lanes_closed += 1
    if event.failed and frame.error is not None:
        told = {"index": event.frame, "kind": frame.error.kind, "message": frame.error.message}
        loop.errors.append(told)
        loop.first_error = loop.first_error or frame.error
        if stops_at_once(state, event.step) and not loop.is_ending:
            _end(loop)
            _take_back(state, event.step)
    go_on(state, event.step, loop)


def _frame_failed(state: State, recorded: Recorded, event: ev.FrameFailed) -> None:
    del recorded
    loop = state.step(event.step).loop
    frame = loop.frames.get(event.frame) if loop else None
    if loop is None or frame is None:
        return
    state.take("frame", event.step, event.frame)
    spec = loop.frame_spec
    if event.attempt < spec["max_attempts"] and not loop.is_ending:
        frame.attempt += 1
        frame.error = None
        if frame.is_claimed:
            whole = spec["retry_mode"] == "whole_frame" and spec["process"] == "row"
            frame.waiting = list(range(frame.total)) if whole else sorted(frame.failed)
            frame.failed = []
            state.push("frame", event.step, event.frame)
        else:
            state.push("claim", event.step, event.frame)
        return
    loop.frames.pop(event.frame)
    if not loop.is_ending:
        loop.first_error = event.error
        loop.is_broken = True
        _end(loop)
        _take_back(state, event.step)
    go_on(state, event.step, loop)


def go_on(state: State, name: str, loop: LoopState) -> None:
    """After a frame: the next one, or the end when none is open."""
    if has_free_lane(loop) or not loop.frames:
        state.push("loop", name)


def frame_expired(state: State, target: str) -> None:
    """A frame took too long: its rows that have not ended have failed."""
    key, _, number = target.rpartition("/f")
    name, _, visit = key.rpartition("#")
    step = state.step(name)
    frame = step.loop.frames.get(int(number)) if step.loop else None
    if frame is None or state.is_failing or not step.is_live or str(step.visit) != visit:
        return
    message = f"frame {number} took longer than `max_seconds`"
    frame.error = ev.Error(kind="timeout", code="frame_timeout", message=message, step=name)
    frame.failed += frame.waiting
    frame.waiting = []
    for command in state.commands.values():
        if command.step == name and command.frame == int(number):
            state.push("cancel", command.key, "frame_timeout")
    if frame.open == 0:
        state.push("frame", name, int(number))


RULES: Final[dict[type[ev.Event], Callable[..., None]]] = {
    ev.LoopStarted: _started,
    ev.LoopDone: _done,
    ev.FrameDispatched: _dispatched,
    ev.FrameCommitted: _committed,
    ev.FrameFailed: _frame_failed,
}
