"""The end of a visit: its writes, its arcs, and whether a failure is handled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.dsl.template import TemplateFailure, compile_condition, is_true, render
from noetl.dsl.views import Outcome, OutputView
from noetl.engine import events as ev
from noetl.engine.scope import outcome_names, scope_of
from noetl.engine.work import template_error
from noetl.engine.writes import with_writes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.engine.events import Event
    from noetl.engine.program import ArcPlan
    from noetl.engine.state import State

_KEEP: Any = object()


class _Exit:
    """One attempt to leave a step with an outcome, leaving out arcs that raised."""

    def __init__(self, state: State, name: str, data: object, error: ev.Error | None) -> None:
        self.state = state
        self.name = name
        self.data = data
        self.error = error
        self.left_out: dict[int, ev.Error] = {}

    def names(self) -> dict[str, Any]:
        """`output` and `event`, as they are with this outcome."""
        return outcome_names(self.state, self.name, self.data, self.error)


def finished(
    state: State, name: str, *, data: object = _KEEP, error: ev.Error | None = None
) -> list[Event]:
    """Leave a step: its `set`, then its arcs, then the writes of the arcs that are taken."""
    own = state.step(name)
    leaving = _Exit(state, name, own.outcome if data is _KEEP else data, error or own.error)
    first: list[Event] = []
    ctx: Mapping[str, Any] = state.ctx
    step = state.program.steps[name].step
    if leaving.error is None and step.set:
        try:
            written = _writes(step.set, scope_of(state, name, more=leaving.names()))
        except TemplateFailure as fault:
            leaving.error = template_error(fault, name)
        else:
            first.append(ev.CtxUpdated(step=name, cause="set", **written))
            ctx = with_writes(state.ctx, written["ctx"])
    routing, writes = _routed(leaving, ctx)
    failed = leaving.error is not None
    handled = failed and any(arc.taken for arc in routing.arcs)
    exit_ = ev.StepExited(
        step=name,
        visit=own.visit,
        outcome="FAILED" if failed else "COMPLETED",
        result=leaving.data,
        error=leaving.error,
        handled=handled,
        routing=routing,
    )
    return [*first, exit_, *writes]


def skipped(state: State, name: str) -> ev.Routing:
    """The arcs of a step whose admission was refused; one that raises is simply not taken."""
    arcs = state.program.steps[name].arcs
    more = {
        "output": OutputView(Outcome(status="skipped", data={})),
        "event": {"name": "step.skipped", "step": name, "timestamp": state.now, "payload": {}},
    }
    scope = scope_of(state, name, more=more)
    mode = _mode(state, name)
    seen: list[ev.ArcTaken] = []
    for plan in arcs:
        done = mode == "exclusive" and any(arc.taken for arc in seen)
        try:
            value = None if done or plan.on == "error" else _value(plan, scope)
        except TemplateFailure as fault:
            error = template_error(fault, name)
            seen.append(ev.ArcTaken(step=plan.target, on=plan.on, error=error))
            continue
        taken = value is not None and is_true(value)
        seen.append(ev.ArcTaken(step=plan.target, on=plan.on, value=value, taken=taken))
    return ev.Routing(mode=mode, arcs=tuple(seen))


def _mode(state: State, name: str) -> str:
    router = state.program.steps[name].step.next
    return router.mode if router else "exclusive"


def _routed(leaving: _Exit, ctx: Mapping[str, Any]) -> tuple[ev.Routing, list[Event]]:
    """Evaluate the arcs; an arc that raises fails the step and is left out of the next attempt."""
    arcs = leaving.state.program.steps[leaving.name].arcs
    while True:
        try:
            routing, writes = _attempt(leaving, arcs, ctx)
        except _ArcRaised as fault:
            leaving.left_out[fault.number] = fault.error
            leaving.error = leaving.error or fault.error
            continue
        fired = any(arc.taken for arc in routing.arcs)
        if leaving.error is not None or not arcs or fired or not _must_match(leaving):
            return routing, writes
        leaving.error = ev.Error(
            kind="policy", code="no_arc_matched", message="no arc matched", step=leaving.name
        )


class _ArcRaised(Exception):
    def __init__(self, number: int, error: ev.Error) -> None:
        super().__init__(error.message)
        self.number = number
        self.error = error


def _attempt(
    leaving: _Exit, arcs: tuple[ArcPlan, ...], ctx: Mapping[str, Any]
) -> tuple[ev.Routing, list[Event]]:
    state, name = leaving.state, leaving.name
    mode = _mode(state, name)
    names = leaving.names()
    wanted = {"error", "any"} if leaving.error is not None else {"success", "any"}
    seen: list[ev.ArcTaken] = []
    writes: list[Event] = []
    for plan in arcs:
        if plan.number in leaving.left_out:
            seen.append(
                ev.ArcTaken(step=plan.target, on=plan.on, error=leaving.left_out[plan.number])
            )
            continue
        closed = mode == "exclusive" and any(arc.taken for arc in seen)
        if closed or plan.on not in wanted:
            seen.append(ev.ArcTaken(step=plan.target, on=plan.on))
            continue
        scope = scope_of(state, name, ctx=ctx, more=names)
        try:
            value = _value(plan, scope)
            taken = is_true(value)
            if taken and plan.arc.set:
                written = _writes(plan.arc.set, scope)
                ctx = with_writes(ctx, written["ctx"])
                writes.append(ev.CtxUpdated(step=name, cause=f"arc:{plan.target}", **written))
        except TemplateFailure as fault:
            raise _ArcRaised(plan.number, template_error(fault, name)) from fault
        seen.append(ev.ArcTaken(step=plan.target, on=plan.on, value=value, taken=taken))
    return ev.Routing(mode=mode, arcs=tuple(seen)), writes


def _value(plan: ArcPlan, scope: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a template's value
    when = plan.arc.when
    if when is None:
        return True
    return when if isinstance(when, bool) else compile_condition(when).render(scope)


def _must_match(leaving: _Exit) -> bool:
    playbook = leaving.state.program.playbook
    router = leaving.state.program.steps[leaving.name].step.next
    chosen = router.spec.on_no_match if router and router.spec else None
    if chosen is not None:
        return chosen == "fail"
    spec = playbook.executor.spec if playbook.executor else None
    return bool(spec and spec.no_next_is_error)


def _writes(values: Mapping[str, Any], scope: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """All values of one `set`, rendered against the state before it."""
    written: dict[str, dict[str, Any]] = {"ctx": {}, "of_step": {}}
    for name, value in values.items():
        target, _, path = name.partition(".")
        if target == "ctx":
            written["ctx"][path] = render(value, scope)
        elif target == "step":
            written["of_step"][path] = render(value, scope)
    return written
