"""What should happen next: the first thing on the agenda becomes events.

Pure: equal playbook and equal state give equal events. The host appends them, folds them, and asks
again until nothing is left to decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from noetl.dsl.template import TemplateFailure, compile_condition, is_true, render
from noetl.engine import events as ev
from noetl.engine.finish import completion
from noetl.engine.loop import advance, begin
from noetl.engine.moments import later
from noetl.engine.route import finished, skipped
from noetl.engine.scope import scope_of
from noetl.engine.work import issue, template_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.engine.events import Event
    from noetl.engine.state import State

MOST_VISITS = 100_000


def decide(state: State) -> list[Event]:
    """The events that follow from the first thing that became possible; none: nothing to do."""
    if state.terminal is not None or state.is_paused or not state.is_started:
        return []
    if not state.agenda:
        return completion(state)
    item = next(iter(state.agenda))
    return _TURNS[item[0]](state, *item[1:])


def _enter(state: State, name: str) -> list[Event]:
    step = state.program.steps[name].step
    own = state.step(name)
    if state.visits >= _most_visits(state):
        error = ev.Error(kind="limit", code="step_limit", message="too many step visits", step=name)
        return [ev.PlaybookFailed(error=error, failed_steps=(name,))]
    policy = step.spec.policy if step.spec else None
    if policy and policy.admit and not _is_admitted(state, name, policy.admit):
        return [ev.StepSkipped(step=name, reason="admission", routing=skipped(state, name))]
    return [ev.StepEntered(step=name, visit=own.visit + 1, from_=own.came_from)]


def _most_visits(state: State) -> int:
    executor = state.program.playbook.executor
    policy = executor.spec.policy if executor and executor.spec else None
    return policy.limits.max_steps if policy and policy.limits else MOST_VISITS


def _is_admitted(state: State, name: str, rules: tuple[Any, ...]) -> bool:
    scope = scope_of(state, name)
    for rule in rules:
        if rule.when is None or rule.when is True:
            return bool(rule.allow)
        if rule.when is False:
            continue
        if is_true(compile_condition(rule.when).render(scope)):
            return bool(rule.allow)
    return True


def _work(state: State, name: str) -> list[Event]:
    step = state.program.steps[name].step
    if step.loop is not None:
        return begin(state, name)
    if _runs_here(state, name):
        try:
            data = _noop_data(state, name)
        except TemplateFailure as fault:
            return finished(state, name, error=template_error(fault, name))
        return finished(state, name, data=data)
    return [issue(state, name)]


def _runs_here(state: State, name: str) -> bool:
    tools = state.program.steps[name].step.tools
    if not tools:
        return True
    task = tools[0]
    return len(tools) == 1 and task.kind == "noop" and not task.rules and not task.set


def _noop_data(state: State, name: str) -> object:
    step = state.program.steps[name].step
    if step.tools:
        task: Any = step.tools[0]
        written = task.result if task.result is not None else task.message
        if written is not None:
            return render(written, scope_of(state, name))
    return {"status": "ok"}


def _close(state: State, key: str) -> list[Event]:
    command = state.commands[key]
    report = command.report
    if isinstance(report, ev.CallError):
        return [ev.CommandFailed(step=command.step, command_key=key, error=report.error)]
    closed: list[Event] = [ev.CommandCompleted(step=command.step, command_key=key)]
    if isinstance(report, ev.CallDone) and (report.ctx or report.of_step):
        closed.append(
            ev.CtxUpdated(step=command.step, cause=key, ctx=report.ctx, of_step=report.of_step)
        )
    return closed


def _lose(state: State, key: str) -> list[Event]:
    command = state.commands[key]
    exhausted = command.lost >= command.max_attempts
    error = ev.Error(
        kind="worker_lost",
        code="lease_exhausted" if exhausted else "worker_lost",
        message=f"the worker of attempt {command.attempt} was lost",
        retryable=True,
        step=command.step,
        index=command.index,
    )
    return [ev.CommandFailed(step=command.step, command_key=key, error=error)]


def _park(state: State, key: str) -> list[Event]:
    command = state.commands[key]
    due_at = later(state.now, command.delay_ms or 0)
    return [ev.TimerSet(timer_key=f"retry:{key}", kind="retry", due_at=due_at, step=command.step)]


def _resume(state: State, key: str) -> list[Event]:
    command = state.commands[key]
    return [
        ev.CommandResumed(
            step=command.step,
            command_key=key,
            attempt=command.attempt + 1,
            checkpoint=command.checkpoint,
        )
    ]


def _skip(state: State, name: str, reason: Literal["not_taken", "dead_path"]) -> list[Event]:
    del state
    return [ev.StepSkipped(step=name, reason=reason)]


def _cancel(state: State, key: str, reason: str) -> list[Event]:
    step = state.commands[key].step
    return [ev.CommandCancelled(step=step, command_key=key, reason=reason)]


_TURNS: dict[str, Callable[..., list[Event]]] = {
    "enter": _enter,
    "skip": _skip,
    "work": _work,
    "loop": advance,
    "close": _close,
    "finish": finished,
    "cancel": _cancel,
    "lose": _lose,
    "park": _park,
    "resume": _resume,
}
