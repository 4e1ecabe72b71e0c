"""Events of commands: issued, claimed, reported, parked, lost, closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.engine import events as ev
from noetl.engine.folds.awaiting import answer
from noetl.engine.folds.loops import issued_of_loop, iterated, withdrawn_of_loop
from noetl.engine.folds.steps import give_up
from noetl.engine.state import Command

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.engine.events import Recorded
    from noetl.engine.state import State


def _issued(state: State, recorded: Recorded, event: ev.CommandIssued) -> None:
    command = Command(id=recorded.event_id, issued=event)
    state.commands[event.command_key] = command
    state.command_ids[recorded.event_id] = event.command_key
    if event.pool is None:
        state.push("drive", event.command_key)
    loop = state.step(event.step).loop
    if loop is None:
        state.take("work", event.step)
    else:
        issued_of_loop(state, event, loop)


def _claimed(state: State, recorded: Recorded, event: ev.CommandClaimed) -> None:
    del recorded
    command = state.commands.get(event.command_key)
    if command is not None and command.attempt == event.attempt and command.status == "PENDING":
        command.status = "CLAIMED"
        command.worker_id = event.worker_id
        command.lease_until = event.lease_until
        command.started_at = None


def _running(state: State, recorded: Recorded, event: ev.CommandStarted) -> None:
    del recorded
    command = state.commands.get(event.command_key)
    if command is not None and command.attempt == event.attempt and command.status == "CLAIMED":
        command.status = "RUNNING"
        command.started_at = state.now


def _reported(state: State, recorded: Recorded, event: ev.CallDone | ev.CallError) -> None:
    del recorded
    command = state.commands.get(event.command_key)
    if command is None or command.attempt != event.attempt or command.report is not None:
        return
    if command.status == "PARKED":
        if command.parked == "callback":
            _answered(state, command, event)
        return
    command.report = event
    state.push("close", event.command_key)


def _answered(state: State, command: Command, event: ev.CallDone | ev.CallError) -> None:
    """A callback: the outcome of the task that waits."""
    if event.error is None:
        outcome = {"status": "ok", "data": event.result, "reference": event.reference}
    else:
        error = event.error
        told = {"kind": error.kind, "code": error.code, "message": error.message,
                "retryable": error.retryable, "details": error.details}  # fmt: skip
        outcome = {"status": "error", "error": told, "data": event.result}
    answer(state, command, outcome)


def _closed(
    state: State, recorded: Recorded, event: ev.CommandCompleted | ev.CommandFailed
) -> None:
    del recorded
    command = _forget(state, event.command_key)
    if command is None:
        return
    step = state.step(command.step)
    error = event.error if isinstance(event, ev.CommandFailed) else None
    if step.loop is not None:
        iterated(state, command, step.loop, event)
        return
    report = command.report
    if report is not None:
        step.outcome, step.reference = report.result, report.reference
    elif command.awaited is not None and command.pool is None:
        step.outcome, step.reference = command.awaited.get("data"), command.awaited_ref
    step.error = error
    if isinstance(report, ev.CallDone):
        step.iter = dict(report.iter)
    elif isinstance(event, ev.CommandCompleted):
        step.iter = dict(event.iter)
    if state.is_failing:
        give_up(state, command.step)
    else:
        state.push("finish", command.step)


_ABOUT: Final = ("close", "lose", "drive", "park", "request", "resume")
_REASONS: Final = ("fail_fast", "frame_timeout")


def _forget(state: State, key: str) -> Command | None:
    """The command is no longer open; neither is anything that was to be done about it."""
    command = state.commands.pop(key, None)
    if command is not None:
        state.command_ids.pop(command.id, None)
        for item in _ABOUT if state.agenda else ():
            state.take(item, key)
        for reason in _REASONS if state.agenda else ():
            state.take("cancel", key, reason)
    return command


def _withdrawn(state: State, recorded: Recorded, event: ev.CommandCancelled) -> None:
    del recorded
    command = _forget(state, event.command_key)
    if command is None:
        return
    loop = state.step(command.step).loop
    if loop is not None:
        withdrawn_of_loop(state, command, loop)
    if state.is_failing and (loop is None or loop.open == 0):
        give_up(state, command.step, is_done=False)


def _lost(state: State, recorded: Recorded, event: ev.CommandLost) -> None:
    del recorded
    command = state.commands.get(event.command_key)
    if (
        command is None
        or command.attempt != event.attempt
        or command.report is not None
        or command.status not in {"CLAIMED", "RUNNING"}
    ):
        return
    command.lost += 1
    if (not command.idempotent and command.status == "RUNNING") or (
        command.lost >= command.max_attempts
    ):
        state.push("lose", event.command_key)
        command.worker_id = None  # a paused run decides later, and hears nobody until then
        command.lease_until = None
        return
    if state.is_failing:
        state.push("cancel", event.command_key, "fail_fast")
    command.attempt += 1
    command.status = "PENDING"
    command.worker_id = None
    command.lease_until = None
    command.started_at = None


def _parked(state: State, recorded: Recorded, event: ev.CommandParked) -> None:
    del recorded
    command = state.commands.get(event.command_key)
    if command is None or command.attempt != event.attempt or command.report is not None:
        return
    is_driven = command.pool is None and command.awaited is not None
    if command.status == "PARKED" and not is_driven:
        return
    state.take("drive", event.command_key)
    command.status = "PARKED"
    command.parked = event.reason
    command.checkpoint = event.checkpoint
    command.delay_ms = event.delay_ms
    command.request = event.request
    command.callback_key = event.callback_key
    command.error = event.error
    command.awaited = None
    command.awaited_ref = None
    command.worker_id = None
    command.lease_until = None
    if state.is_failing:
        state.push("cancel", event.command_key, "fail_fast")
    elif event.reason == "child":
        if not command.children:
            state.push("request", event.command_key)
    else:
        state.push("park", event.command_key)


def _unparked(state: State, recorded: Recorded, event: ev.CommandResumed) -> None:
    del recorded
    state.take("resume", event.command_key)
    command = state.commands.get(event.command_key)
    if command is None:
        return
    command.status = "PENDING"
    command.attempt = event.attempt
    command.parked = None
    command.delay_ms = None
    command.request = None
    command.callback_key = None
    command.error = None
    command.children = {}
    if command.pool is None:
        state.push("drive", event.command_key)


RULES: Final[dict[type[ev.Event], Callable[..., None]]] = {
    ev.CommandIssued: _issued,
    ev.CommandClaimed: _claimed,
    ev.CommandStarted: _running,
    ev.CallDone: _reported,
    ev.CallError: _reported,
    ev.CommandCompleted: _closed,
    ev.CommandFailed: _closed,
    ev.CommandCancelled: _withdrawn,
    ev.CommandLost: _lost,
    ev.CommandParked: _parked,
    ev.CommandResumed: _unparked,
}
