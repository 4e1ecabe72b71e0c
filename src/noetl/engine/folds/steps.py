"""Events of steps: entered, skipped, left, and the values that they wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.dsl.views import Form, StepResult
from noetl.engine import events as ev
from noetl.engine.tokens import leave, revive, skip_over
from noetl.engine.writes import write_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.engine.events import Recorded
    from noetl.engine.state import LoopState, State, StepState


def _entered(state: State, recorded: Recorded, event: ev.StepEntered) -> None:
    del recorded
    is_by_hand = ("enter", event.step) not in state.agenda
    state.take("enter", event.step)
    step = state.step(event.step)
    if step.is_live:
        return
    if is_by_hand and event.step in state.failed_steps:
        _forgive(state, event.step)
        revive(state, event.step)
        if has_limit(state, event.step):
            state.push("rearm", event.step)
    step.visit = event.visit
    step.is_live = True
    step.status = "ENTERED"
    step.came_from = event.from_
    step.outcome = None
    step.reference = None
    step.child_execution_id = None
    step.error = None
    step.is_handled = False
    step.loop = None
    state.live_visits += 1
    state.visits += 1
    if event.step == state.program.playbook.final:
        state.final_entered = True
        state.is_failing = False  # everything else has ended; this step runs as any other
    state.push("work", event.step)


def _forgive(state: State, name: str) -> None:
    """A failed step is tried again by hand: its failure no longer counts."""
    state.failed_steps.remove(name)
    left = state.step(state.failed_steps[0]).error if state.failed_steps else None
    state.failure = left


def has_limit(state: State, name: str) -> bool:
    """Whether a visit of a step has a limit of its own."""
    spec = state.program.steps[name].step.spec
    lifecycle = spec.policy.lifecycle if spec and spec.policy else None
    return spec is not None and (spec.timeout is not None or lifecycle is not None)


def _skipped(state: State, recorded: Recorded, event: ev.StepSkipped) -> None:
    del recorded
    state.take("enter", event.step)
    state.take("skip", event.step, event.reason)
    step = state.step(event.step)
    step.status = "SKIPPED"
    if step.result is None or event.reason == "admission":
        step.result = StepResult(status="skipped", data={} if event.reason == "admission" else None)
    if event.reason == "admission":
        step.visit += 1
        state.visits += 1
        if event.step == state.program.playbook.final:
            state.final_entered = True
        _follow(state, event.step, event.routing)
    else:
        skip_over(state, event.step)


def _exited(state: State, recorded: Recorded, event: ev.StepExited) -> None:
    del recorded
    step = state.step(event.step)
    _off_the_agenda(state, event.step, step)
    if not step.is_live:
        return
    step.is_live = False
    state.live_visits -= 1
    failed = event.outcome == "FAILED"
    step.status = event.outcome
    step.error = event.error
    step.is_handled = event.handled
    step.result = result_of(state, event)
    step.loop = None
    step.outcome = None
    if not is_noop(state, event.step):
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
    _follow(state, event.step, event.routing)


def _follow(state: State, name: str, routing: ev.Routing | None) -> None:
    """Follow the arcs of a step; none leads out of what runs after everything else."""
    if name != state.program.playbook.final or name == state.program.entry:
        leave(state, name, routing)


def _off_the_agenda(state: State, name: str, step: StepState) -> None:
    """Nothing more is to be done about a visit that has ended."""
    for item in ("finish", "work", "loop", "expire", "rearm"):
        state.take(item, name)
    for number in step.loop.frames if step.loop else ():
        state.take("frame", name, number)
        state.take("claim", name, number)


def result_of(state: State, event: ev.StepExited) -> StepResult:
    """What a visit leaves behind."""
    plan = state.program.steps[event.step]
    step = state.step(event.step)
    loop = step.loop
    form: Form = "pipeline" if plan.step.is_pipeline else "single"
    if plan.step.loop is not None:
        form = "cursor" if plan.step.loop.cursor is not None else "loop"
    elif event.child_execution_id is not None:
        form = "child"
    return StepResult(
        form=form,
        status="error" if event.outcome == "FAILED" else "ok",
        data=event.result,
        error=_plain(event.error),
        reference=event.reference,
        writes=dict(step.writes),
        stats=None if loop is None else stats_of(loop),
        errors=() if loop is None else errors_of(loop),
        child_execution_id=event.child_execution_id,
    )


def stats_of(loop: LoopState) -> dict[str, int]:
    """How many iterations there are, and how they ended."""
    total = loop.rows if loop.mode == "cursor" else loop.total
    return {"total": total, "success": loop.done - loop.failed, "failed": loop.failed}


def errors_of(loop: LoopState) -> tuple[dict[str, object], ...]:
    """The failed iterations in their order, however they came in."""
    return tuple(sorted(loop.errors, key=lambda told: told["index"]))


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


def is_noop(state: State, name: str) -> bool:
    """Whether a step does no work of its own."""
    tools = state.program.steps[name].step.tools
    return all(task.kind == "noop" for task in tools)


# What is still done when the run is failing: open work is closed, nothing new begins.
_TO_THE_END: Final = frozenset({"close", "lose", "cancel", "disarm", "expire", "timeout"})


def _mode(state: State) -> str:
    executor = state.program.playbook.executor
    policy = executor.spec.policy if executor and executor.spec else None
    return policy.failure.mode if policy and policy.failure else "fail_fast"


def _stop_everything(state: State) -> None:
    """An unhandled failure: nothing new is entered, what nobody claimed is taken back."""
    state.is_failing = True
    dropped = state.agenda
    state.agenda = {item: None for item in dropped if item[0] in _TO_THE_END}
    for command in state.commands.values():
        if command.status in {"PENDING", "PARKED"}:
            state.push("cancel", command.key, "fail_fast")
    at_work = {command.step for command in state.commands.values()}
    for name, step in state.steps.items():
        if step.is_live and name not in at_work:
            give_up(state, name, is_done=("finish", name) in dropped)


def _written(state: State, recorded: Recorded, event: ev.CtxUpdated) -> None:
    del recorded
    for path, value in event.ctx.items():
        write_at(state.ctx, path, value)
    for path, reference in event.refs.items():
        write_at(state.ctx, path, reference)
        state.has_refs = True
    step = state.step(event.step)
    for path, value in event.of_step.items():
        write_at(step.writes, path, value)


def give_up(state: State, name: str, *, is_done: bool = True) -> None:
    """A visit that ends while the run is failing: recorded, its arcs are not evaluated."""
    step = state.step(name)
    if not step.is_live:
        return
    step.is_live = False
    state.live_visits -= 1
    ended = "FAILED" if step.error is not None else "COMPLETED"
    step.status = ended if is_done else "CANCELLED"
    _off_the_agenda(state, name, step)
    visit = f"{name}#{step.visit}"
    for key, timer in state.timers.items():
        is_frame = timer.kind == "frame" and timer.target.startswith(f"{visit}/")
        if is_frame or (timer.kind == "step_timeout" and timer.target == visit):
            state.push("disarm", key)


RULES: Final[dict[type[ev.Event], Callable[..., None]]] = {
    ev.StepEntered: _entered,
    ev.StepSkipped: _skipped,
    ev.StepExited: _exited,
    ev.CtxUpdated: _written,
}
