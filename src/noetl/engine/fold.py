"""The fold: one event more, and the state that follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.dsl.views import Form, StepResult
from noetl.engine import events as ev
from noetl.engine.state import Command, LoopState, Timer
from noetl.engine.tokens import enter, leave, skip_over
from noetl.engine.writes import write_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.engine.events import Recorded
    from noetl.engine.state import State, StepState


def fold(state: State, recorded: Recorded) -> State:
    """Apply one event; after a terminal event only the position moves."""
    state.seq = recorded.seq
    state.last_event_id = recorded.event_id
    state.now = recorded.created_at
    if state.terminal is None:
        apply = _RULES.get(type(recorded.event))
        if apply is not None:
            apply(state, recorded.event)
    return state


# ---------------------------------------------------------------------------- the run


def _started(state: State, event: ev.PlaybookStarted) -> None:
    if state.is_started:
        return
    state.is_started = True
    state.execution_id = event.execution_id
    state.path = event.path
    state.version = event.version
    state.catalog_id = event.catalog_id
    state.pool = event.pool
    state.parent_execution_id = event.parent_execution_id
    state.started_at = state.now
    state.workload = event.workload
    enter(state, state.program.entry)


def _paused(state: State, event: ev.ExecutionPaused) -> None:
    del event
    state.is_paused = True


def _resumed(state: State, event: ev.ExecutionResumed) -> None:
    del event
    state.is_paused = False


def _ended(state: State, event: ev.Event) -> None:
    state.terminal = event.status
    state.agenda.clear()
    state.commands.clear()
    state.timers.clear()
    if isinstance(event, ev.PlaybookFailed):
        state.failure = event.error
    if isinstance(event, (ev.PlaybookCompleted, ev.PlaybookFailed)):
        state.result = event.result


# ---------------------------------------------------------------------------- steps


def _entered(state: State, event: ev.StepEntered) -> None:
    state.take("enter", event.step)
    step = state.step(event.step)
    if step.is_live:
        return
    step.visit = event.visit
    step.is_live = True
    step.status = "ENTERED"
    step.came_from = event.from_
    step.outcome = None
    step.error = None
    step.loop = None
    state.live_visits += 1
    state.visits += 1
    if event.step == state.program.playbook.final:
        state.final_entered = True
    state.push("work", event.step)


def _skipped(state: State, event: ev.StepSkipped) -> None:
    state.take("enter", event.step)
    state.take("skip", event.step, event.reason)
    step = state.step(event.step)
    step.status = "SKIPPED"
    if step.result is None or event.reason == "admission":
        step.result = StepResult(status="skipped", data={} if event.reason == "admission" else None)
    if event.reason == "admission":
        step.visit += 1
        state.visits += 1
        leave(state, event.step, event.routing)
    else:
        skip_over(state, event.step)


def _exited(state: State, event: ev.StepExited) -> None:
    state.take("finish", event.step)
    state.take("work", event.step)
    step = state.step(event.step)
    if not step.is_live:
        return
    step.is_live = False
    state.live_visits -= 1
    failed = event.outcome == "FAILED"
    step.status = event.outcome
    step.result = _result(state, event)
    step.loop = None
    if not _is_noop(state, event.step):
        state.last_step = event.step
        if not failed and _ends_branch(state, event):
            state.last_terminal_step = event.step
    if failed and not event.handled:
        state.failed_steps.append(event.step)
        if state.failure is None:
            state.failure = event.error
        if _mode(state) == "fail_fast":
            _stop_everything(state)
            return
    leave(state, event.step, event.routing)


def _result(state: State, event: ev.StepExited) -> StepResult:
    plan = state.program.steps[event.step]
    step = state.step(event.step)
    form: Form = "loop" if plan.step.loop else "pipeline" if plan.step.is_pipeline else "single"
    loop = step.loop
    return StepResult(
        form=form,
        status="error" if event.outcome == "FAILED" else "ok",
        data=event.result,
        error=_plain(event.error),
        writes=dict(step.writes),
        stats=None if loop is None else _stats(loop),
        errors=() if loop is None else tuple(loop.errors),
    )


def _stats(loop: LoopState) -> dict[str, int]:
    return {"total": loop.total, "success": loop.done - loop.failed, "failed": loop.failed}


def _plain(error: ev.Error | None) -> dict[str, object] | None:
    if error is None:
        return None
    return {"kind": error.kind, "code": error.code, "message": error.message,
            "retryable": error.retryable}  # fmt: skip


def _ends_branch(state: State, event: ev.StepExited) -> bool:
    """Whether the branch ends here in a way that counts for the run's result."""
    steps = state.program.steps
    if any(arc.taken and arc.step in steps for arc in event.routing.arcs):
        return False
    router = steps[event.step].step.next
    return not (router and router.spec and router.spec.on_no_match == "quiet")


def _is_noop(state: State, name: str) -> bool:
    tools = state.program.steps[name].step.tools
    return all(task.kind == "noop" for task in tools)


def _mode(state: State) -> str:
    executor = state.program.playbook.executor
    policy = executor.spec.policy if executor and executor.spec else None
    return policy.failure.mode if policy and policy.failure else "fail_fast"


def _stop_everything(state: State) -> None:
    """An unhandled failure: nothing new is entered, what nobody claimed is taken back."""
    state.is_failing = True
    state.agenda = {item: None for item in state.agenda if item[0] == "close"}
    for command in state.commands.values():
        if command.status == "PENDING":
            state.push("cancel", command.key, "fail_fast")


def _written(state: State, event: ev.CtxUpdated) -> None:
    for path, value in event.ctx.items():
        write_at(state.ctx, path, value)
    step = state.step(event.step)
    for path, value in event.of_step.items():
        write_at(step.writes, path, value)


# ---------------------------------------------------------------------------- loops


def _loop_started(state: State, event: ev.LoopStarted) -> None:
    state.take("work", event.step)
    step = state.step(event.step)
    step.loop = LoopState(
        total=event.total,
        mode=event.mode,
        max_in_flight=event.max_in_flight,
        items=event.items,
        results=[None] * event.total,
    )
    state.push("loop", event.step)


def _loop_done(state: State, event: ev.LoopDone) -> None:
    state.take("loop", event.step)
    step = state.step(event.step)
    step.outcome = event.result
    step.error = event.error
    state.push("finish", event.step)


# ---------------------------------------------------------------------------- commands


def _issued(state: State, event: ev.CommandIssued) -> None:
    state.commands[event.command_key] = Command(
        key=event.command_key,
        step=event.step,
        visit=event.visit,
        index=event.index,
        idempotent=event.idempotent,
        max_attempts=event.max_attempts,
    )
    step = state.step(event.step)
    if step.loop is None or event.index is None:
        state.take("work", event.step)
        return
    step.loop.next_index = event.index + 1
    step.loop.open += 1
    if not _can_issue(step.loop):
        state.take("loop", event.step)


def _can_issue(loop: LoopState) -> bool:
    return not loop.is_ending and loop.next_index < loop.total and loop.open < loop.max_in_flight


def _claimed(state: State, event: ev.CommandClaimed) -> None:
    command = state.commands.get(event.command_key)
    if command is not None and command.attempt == event.attempt:
        command.status = "CLAIMED"
        command.worker_id = event.worker_id


def _running(state: State, event: ev.CommandStarted) -> None:
    command = state.commands.get(event.command_key)
    if command is not None and command.attempt == event.attempt:
        command.status = "RUNNING"


def _reported(state: State, event: ev.CallDone | ev.CallError) -> None:
    command = state.commands.get(event.command_key)
    if command is None or command.attempt != event.attempt or command.report is not None:
        return
    command.report = event
    state.push("close", event.command_key)


def _closed(state: State, event: ev.CommandCompleted | ev.CommandFailed) -> None:
    state.take("close", event.command_key)
    command = state.commands.pop(event.command_key, None)
    if command is None:
        return
    step = state.step(command.step)
    report = command.report
    error = event.error if isinstance(event, ev.CommandFailed) else None
    if step.loop is not None and command.index is not None:
        _iterated(state, command, step, error)
        return
    step.outcome = report.result if report is not None else None
    step.error = error
    if isinstance(report, ev.CallDone):
        step.iter = dict(report.iter)
    if not state.is_failing:
        state.push("finish", command.step)
    else:
        _give_up(state, command.step)


def _iterated(state: State, command: Command, step: StepState, error: ev.Error | None) -> None:
    loop = step.loop
    if loop is None or command.index is None:
        return
    loop.open -= 1
    loop.done += 1
    report = command.report
    if error is None and isinstance(report, ev.CallDone):
        loop.results[command.index] = report.result
        loop.is_ending = loop.is_ending or report.ends_loop
    elif error is not None:
        loop.failed += 1
        loop.errors.append({"index": command.index, "kind": error.kind, "message": error.message})
        loop.first_error = loop.first_error or error
        if state.program.steps[command.step].step.failure_mode == "fail_fast":
            loop.is_ending = True
            for other in state.commands.values():
                if other.step == command.step and other.status == "PENDING":
                    state.push("cancel", other.key, "fail_fast")
    if state.is_failing:
        if loop.open == 0:
            _give_up(state, command.step)
    elif loop.open == 0 or _can_issue(loop):
        state.push("loop", command.step)


def _give_up(state: State, name: str) -> None:
    """A visit that ends while the run is failing: recorded, its arcs are not evaluated."""
    step = state.step(name)
    if step.is_live:
        step.is_live = False
        state.live_visits -= 1
        step.status = "FAILED" if step.error is not None else "COMPLETED"


def _withdrawn(state: State, event: ev.CommandCancelled) -> None:
    state.take("cancel", event.command_key, event.reason)
    command = state.commands.pop(event.command_key, None)
    if command is None:
        return
    step = state.step(command.step)
    if step.loop is not None and command.index is not None:
        step.loop.open -= 1
        if step.loop.open == 0 and not state.is_failing:
            state.push("loop", command.step)
    if state.is_failing and (step.loop is None or step.loop.open == 0):
        _give_up(state, command.step)
        step.status = "CANCELLED"


def _lost(state: State, event: ev.CommandLost) -> None:
    command = state.commands.get(event.command_key)
    if command is None or command.attempt != event.attempt or command.report is not None:
        return
    command.lost += 1
    if (not command.idempotent and command.status == "RUNNING") or (
        command.lost >= command.max_attempts
    ):
        state.push("lose", event.command_key)
        return
    command.attempt += 1
    command.status = "PENDING"
    command.worker_id = None


def _parked(state: State, event: ev.CommandParked) -> None:
    command = state.commands.get(event.command_key)
    if command is None or command.attempt != event.attempt or command.report is not None:
        return
    command.status = "PARKED"
    command.parked = event.reason
    command.checkpoint = event.checkpoint
    command.delay_ms = event.delay_ms
    state.push("park", event.command_key)


def _unparked(state: State, event: ev.CommandResumed) -> None:
    state.take("resume", event.command_key)
    command = state.commands.get(event.command_key)
    if command is None:
        return
    command.status = "PENDING"
    command.attempt = event.attempt
    command.parked = None


# ---------------------------------------------------------------------------- timers


def _timer_set(state: State, event: ev.TimerSet) -> None:
    target = event.timer_key.partition(":")[2]
    state.take("park", target)
    state.timers[event.timer_key] = Timer(kind=event.kind, due_at=event.due_at, target=target)


def _timer_fired(state: State, event: ev.TimerFired) -> None:
    timer = state.timers.pop(event.timer_key, None)
    if timer is not None and timer.kind == "retry" and timer.target in state.commands:
        state.push("resume", timer.target)


def _timer_cancelled(state: State, event: ev.TimerCancelled) -> None:
    state.timers.pop(event.timer_key, None)


_RULES: dict[type[ev.Event], Callable[..., None]] = {
    ev.PlaybookStarted: _started,
    ev.ExecutionPaused: _paused,
    ev.ExecutionResumed: _resumed,
    ev.PlaybookCompleted: _ended,
    ev.PlaybookFailed: _ended,
    ev.PlaybookCancelled: _ended,
    ev.StepEntered: _entered,
    ev.StepSkipped: _skipped,
    ev.StepExited: _exited,
    ev.CtxUpdated: _written,
    ev.LoopStarted: _loop_started,
    ev.LoopDone: _loop_done,
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
    ev.TimerSet: _timer_set,
    ev.TimerFired: _timer_fired,
    ev.TimerCancelled: _timer_cancelled,
}
