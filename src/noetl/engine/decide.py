"""What should happen next: the first thing on the agenda becomes events.

Pure: equal playbook, equal state and equal objects give equal events. The host appends them, folds
them, and asks again until nothing is left to decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from noetl.dsl.template import TemplateFailure, compile_condition, is_true, render
from noetl.dsl.views import NeedsObject, ObjectGone, Reference
from noetl.engine import child, cursor
from noetl.engine import events as ev
from noetl.engine.config import Unrendered, duration
from noetl.engine.finish import completion, is_at_rest
from noetl.engine.folds.run import EXTENDED
from noetl.engine.loop import advance, begin
from noetl.engine.moments import between_ms, later
from noetl.engine.route import CtxFull, check_room, finished, skipped
from noetl.engine.scope import NOTHING, scope_of
from noetl.engine.work import issue, template_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noetl.engine.events import Event
    from noetl.engine.state import Item, State

MOST_VISITS = 100_000
MOST_EVENTS = 2_000_000


@dataclass(frozen=True, slots=True)
class Need:
    """Objects that an expression reads; the host fetches them and asks again."""

    refs: tuple[Reference, ...]


def decide(state: State, resolved: Mapping[str, Any] = NOTHING) -> list[Event] | Need:
    """The events that follow from the first thing that became possible; none: nothing to do."""
    if state.terminal is not None or state.is_paused or not state.is_started:
        return []
    try:
        for item in state.agenda:
            if decided := _turn(state, resolved, item):
                return decided
        return _last(state, resolved)
    except NeedsObject as needs:
        return Need((needs.reference,))


def _turn(state: State, resolved: Mapping[str, Any], item: Item) -> list[Event]:
    """What follows from one thing that became possible."""
    try:
        return _TURNS[item[0]](state, resolved, *item[1:])
    except ObjectGone as gone:  # items of a loop, rows of a frame
        return _abandoned(state, resolved, item[1], template_error(gone, item[1]))


def _last(state: State, resolved: Mapping[str, Any]) -> list[Event]:
    """What follows when nothing else is to be done: the final step, then the end of the run."""
    if not is_at_rest(state):
        return []
    final = state.program.playbook.final
    if final in state.program.steps and not state.final_entered:
        return _enter(state, resolved, final)
    return completion(state, resolved)


def _enter(state: State, resolved: Mapping[str, Any], name: str) -> list[Event]:
    if bound := _bound(state, name):
        return bound
    own = state.step(name)
    entered = ev.StepEntered(step=name, visit=own.visit + 1, from_=own.came_from)
    try:
        if not _is_admitted(state, resolved, name):
            routing = skipped(state, resolved, name)
            return [ev.StepSkipped(step=name, reason="admission", routing=routing)]
        return [entered, *_timer(state, resolved, name, own.visit + 1)]
    except (TemplateFailure, Unrendered):
        return [entered]  # the visit fails with it: see `_fault`


def _fault(state: State, resolved: Mapping[str, Any], name: str) -> ev.Error | None:
    """Why a step that was entered cannot begin: its admission or its limit has no value."""
    try:
        _is_admitted(state, resolved, name)
        _timer(state, resolved, name, 0)
    except TemplateFailure as fault:
        return template_error(fault, name)
    except Unrendered as fault:
        return ev.Error(kind=fault.kind, code=fault.code, message=fault.message, step=name)
    return None


def _bound(state: State, name: str) -> list[Event]:
    """The end of a run that goes on for too long; its final step still runs."""
    if name == state.program.playbook.final:
        return []
    executor = state.program.playbook.executor
    policy = executor.spec.policy if executor and executor.spec else None
    limits = policy.limits if policy else None
    code = ""
    if state.visits >= (limits.max_steps if limits else MOST_VISITS):
        code = "step_limit"
    elif state.seq >= (limits.max_events if limits else MOST_EVENTS):
        code = "event_limit"
    if not code:
        return []
    what = "step visits" if code == "step_limit" else "events"
    error = ev.Error(kind="limit", code=code, message=f"too many {what}", step=name)
    return [ev.PlaybookFailed(error=error, failed_steps=(name,))]


def _timer(state: State, resolved: Mapping[str, Any], name: str, visit: int) -> list[Event]:
    """The limit of a visit, the nearer of its own and the one from the start of the run."""
    spec = state.program.steps[name].step.spec
    lifecycle = spec.policy.lifecycle if spec and spec.policy else None
    limit = spec.timeout if spec else None
    if limit is None and lifecycle is not None:
        limit = lifecycle.timeout_s
    ends: list[str] = []
    if limit is not None:
        ends.append(_after(state, resolved, state.now, limit))
    if lifecycle is not None and lifecycle.deadline_s is not None:
        ends.append(_after(state, resolved, state.started_at, lifecycle.deadline_s))
    if not ends:
        return []
    key = f"step_timeout:{name}#{visit}"
    return [ev.TimerSet(timer_key=key, kind="step_timeout", due_at=min(ends), step=name)]


def _after(state: State, resolved: Mapping[str, Any], start: str, limit: object) -> str:
    seconds = duration(render(limit, scope_of(state, resolved=resolved)), "spec.timeout")
    return later(start, round(seconds * 1000))


def _rearm(state: State, resolved: Mapping[str, Any], name: str) -> list[Event]:
    """A fork: the limit of a visit that goes on begins anew."""
    try:
        return _timer(state, resolved, name, state.step(name).visit)
    except (TemplateFailure, Unrendered):
        return []  # the visit fails with it when its work is decided


def _is_admitted(state: State, resolved: Mapping[str, Any], name: str) -> bool:
    spec = state.program.steps[name].step.spec
    if spec is None or spec.policy is None or not spec.policy.admit:
        return True
    scope = scope_of(state, name, resolved=resolved)
    for rule in spec.policy.admit:
        if rule.when is None or rule.when is True:
            return rule.allow
        if rule.when is not False and is_true(compile_condition(rule.when).render(scope)):
            return rule.allow
    return True


def _work(state: State, resolved: Mapping[str, Any], name: str) -> list[Event]:
    step = state.program.steps[name].step
    if step.spec is not None and (error := _fault(state, resolved, name)) is not None:
        return finished(state, resolved, name, error=error)
    if step.loop is not None:
        return begin(state, resolved, name, step.loop)
    if _is_routing(state, name):
        try:
            data = _noop_data(state, resolved, name)
        except TemplateFailure as fault:
            return finished(state, resolved, name, error=template_error(fault, name))
        return finished(state, resolved, name, data=data)
    return [issue(state, name, resolved)]


def _is_routing(state: State, name: str) -> bool:
    """Whether a step has nothing to run: no tool, or a `noop` without rules."""
    step = state.program.steps[name].step
    if not step.tools:
        return True
    task = step.tools[0]
    is_lone = len(step.tools) == 1 and not step.is_pipeline
    return is_lone and task.kind == "noop" and not task.rules and not task.set


def _noop_data(state: State, resolved: Mapping[str, Any], name: str) -> object:
    step = state.program.steps[name].step
    if step.tools:
        task: Any = step.tools[0]
        written = task.result if task.result is not None else task.message
        if written is not None:
            return render(written, scope_of(state, name, resolved=resolved))
    return {"status": "ok"}


def _close(state: State, resolved: Mapping[str, Any], key: str) -> list[Event]:
    del resolved
    command = state.commands[key]
    report, step = command.report, command.step
    gone = child.timers_gone(state, key)
    if isinstance(report, ev.CallError):
        return [*gone, ev.CommandFailed(step=step, command_key=key, error=report.error)]
    if isinstance(report, ev.CallDone) and (report.ctx or report.of_step):
        try:
            check_room(state.ctx, report.ctx)
        except CtxFull as fault:
            error = ev.Error(kind="limit", code="ctx_limit", message=str(fault), step=step)
            return [*gone, ev.CommandFailed(step=step, command_key=key, error=error)]
        written = ev.CtxUpdated(step=step, cause=key, ctx=report.ctx, of_step=report.of_step)
        return [*gone, ev.CommandCompleted(step=step, command_key=key), written]
    return [*gone, ev.CommandCompleted(step=step, command_key=key)]


def _lose(state: State, resolved: Mapping[str, Any], key: str) -> list[Event]:
    del resolved
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


def _skip(
    state: State,
    resolved: Mapping[str, Any],
    name: str,
    reason: Literal["not_taken", "dead_path"],
) -> list[Event]:
    del state, resolved
    return [ev.StepSkipped(step=name, reason=reason)]


def _cancel(state: State, resolved: Mapping[str, Any], key: str, reason: str) -> list[Event]:
    del resolved
    step = state.commands[key].step
    gone = child.timers_gone(state, key)
    return [*gone, ev.CommandCancelled(step=step, command_key=key, reason=reason)]


def _disarm(state: State, resolved: Mapping[str, Any], timer_key: str) -> list[Event]:
    del state, resolved
    return [ev.TimerCancelled(timer_key=timer_key)]


# ---------------------------------------------------------------------------- limits and pauses


def _limit(state: State, resolved: Mapping[str, Any]) -> list[Event]:
    """The limit of the whole run."""
    del resolved
    executor = state.program.playbook.executor
    limit = executor.spec.timeout if executor and executor.spec else None
    due = later(state.now, round(duration(limit, "executor.spec.timeout") * 1000))
    return [ev.TimerSet(timer_key="execution_timeout:run", kind="execution_timeout", due_at=due)]


def _timeout(state: State, resolved: Mapping[str, Any]) -> list[Event]:
    del resolved
    message = "the run took longer than `executor.spec.timeout`"
    error = ev.Error(kind="timeout", code="execution_timeout", message=message)
    return [ev.PlaybookFailed(error=error, failed_steps=tuple(state.failed_steps))]


def _expire(state: State, resolved: Mapping[str, Any], name: str) -> list[Event]:
    """A visit that took too long."""
    message = f"{name} took longer than its limit"
    error = ev.Error(kind="timeout", code="step_timeout", message=message, step=name)
    return _abandoned(state, resolved, name, error)


def _abandoned(
    state: State, resolved: Mapping[str, Any], name: str, error: ev.Error
) -> list[Event]:
    """A visit that cannot go on: its open commands are cancelled, then it fails."""
    own = state.step(name)
    open_ = [c for c in state.commands.values() if c.step == name and c.visit == own.visit]
    gone: list[Event] = []
    for command in open_:
        gone += _cancel(state, resolved, command.key, error.code)
    if state.is_failing:
        return gone  # its arcs are not evaluated
    timers = [key for key in state.timers if key.startswith(f"frame:{name}#")]
    gone += [ev.TimerCancelled(timer_key=key) for key in timers]
    data = list(own.loop.results) if own.loop and own.loop.mode != "cursor" else None
    return [*gone, *finished(state, resolved, name, data=data, error=error)]


def _queue(state: State, resolved: Mapping[str, Any]) -> list[Event]:
    del resolved
    return [ev.ExecutionQueued(concurrency_key=state.concurrency_key or "")]


def _extend(state: State, resolved: Mapping[str, Any], paused_at: str) -> list[Event]:
    """Limits do not run while a run is paused."""
    del resolved
    length = between_ms(paused_at, state.now)
    return [
        ev.TimerSet(timer_key=key, kind=timer.kind, due_at=later(timer.due_at, length))
        for key, timer in state.timers.items()
        if timer.kind in EXTENDED
    ]


_TURNS: dict[str, Callable[..., list[Event]]] = {
    "queue": _queue,
    "limit": _limit,
    "enter": _enter,
    "skip": _skip,
    "work": _work,
    "rearm": _rearm,
    "loop": advance,
    "frame": cursor.frame_turn,
    "claim": cursor.claim_again,
    "close": _close,
    "finish": finished,
    "expire": _expire,
    "cancel": _cancel,
    "lose": _lose,
    "drive": child.drive,
    "request": child.request,
    "park": child.park,
    "resume": child.resume,
    "disarm": _disarm,
    "extend": _extend,
    "timeout": _timeout,
}
