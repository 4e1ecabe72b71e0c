"""The end of a visit: its writes, its arcs, and whether a failure is handled."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from noetl.dsl.template import TemplateFailure, compile_condition, is_true, render
from noetl.dsl.views import Lazy, Outcome, OutputView
from noetl.engine import events as ev
from noetl.engine.folds.steps import result_of
from noetl.engine.scope import outcome_names, scope_of
from noetl.engine.work import template_error
from noetl.engine.writes import with_writes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from noetl.dsl.scope import Scope
    from noetl.dsl.views import StepResult
    from noetl.engine.events import Event
    from noetl.engine.program import ArcPlan
    from noetl.engine.state import State

_KEEP: Any = object()
_SHOWN = 200
MOST_KEYS = 10_000


class _Exit:
    """One attempt to leave a step with an outcome, leaving out arcs that raised."""

    def __init__(self, state: State, name: str, resolved: Mapping[str, Any]) -> None:
        own = state.step(name)
        self.state = state
        self.name = name
        self.resolved = resolved
        self.data = own.outcome
        self.reference = own.reference
        self.error = own.error
        self.ctx: Mapping[str, Any] = state.ctx
        self.writes: Mapping[str, Any] = own.writes
        self.left_out: dict[int, ev.Error] = {}
        self._scope: Scope | None = None

    def begin(self) -> None:
        """The names may have changed since they were last read."""
        self._scope = None

    def scope(self) -> Scope:
        """The names of `set` and arcs, with what was written so far."""
        if self._scope is None:
            self._scope = self._names()
        return self._scope

    def _names(self) -> Scope:
        lazy = self.reference
        data = self.data if lazy is None else Lazy(lazy, self.resolved)
        more = outcome_names(self.state, self.name, data, self.error)
        own = {**self.writes, "name": self.name, "visit": self.state.step(self.name).visit}
        return scope_of(
            self.state,
            self.name,
            resolved=self.resolved,
            ctx=self.ctx,
            more={**more, "step": own},
            leaving=(self.name, self._result),
        )

    def _result(self) -> StepResult:
        """What the step is about to leave behind, for its own `set` and arcs."""
        left = ev.StepExited(
            step=self.name,
            visit=self.state.step(self.name).visit,
            outcome="COMPLETED" if self.error is None else "FAILED",
            result=self.data,
            reference=self.reference,
            error=self.error,
            routing=ev.Routing(mode="exclusive"),
        )
        return replace(result_of(self.state, left), writes=self.writes)

    def write(self, written: Mapping[str, Mapping[str, Any]]) -> None:
        """Make writes readable by what follows."""
        self.ctx = with_writes(self.ctx, written["ctx"])
        self.writes = with_writes(self.writes, written["of_step"])
        self.begin()


def finished(
    state: State,
    resolved: Mapping[str, Any],
    name: str,
    *,
    data: object = _KEEP,
    error: ev.Error | None = None,
) -> list[Event]:
    """Leave a step: its `set`, then its arcs, then the writes of the arcs that are taken."""
    own = state.step(name)
    leaving = _Exit(state, name, resolved)
    if data is not _KEEP:
        leaving.data = data
    leaving.error = error or leaving.error
    first: list[Event] = []
    step = state.program.steps[name].step
    if leaving.error is None and step.set:
        try:
            written = _writes(step.set, leaving)
        except (TemplateFailure, CtxFull) as fault:
            leaving.error = fault_error(fault, name)
        else:
            first.append(ev.CtxUpdated(step=name, cause="set", **written))
            leaving.write(written)
    routing, writes = _routed(leaving)
    failed = leaving.error is not None
    handled = failed and any(arc.taken for arc in routing.arcs)
    timer = f"step_timeout:{name}#{own.visit}"
    if timer in state.timers:
        first.append(ev.TimerCancelled(timer_key=timer))
    exit_ = ev.StepExited(
        step=name,
        visit=own.visit,
        outcome="FAILED" if failed else "COMPLETED",
        result=leaving.data,
        reference=leaving.reference,
        error=leaving.error,
        handled=handled,
        routing=routing,
        child_execution_id=own.child_execution_id if step.loop is None else None,
    )
    return [*first, exit_, *writes]


def fault_error(fault: TemplateFailure | CtxFull, name: str) -> ev.Error:
    """Why a `set` could not be written."""
    if isinstance(fault, CtxFull):
        return ev.Error(kind="limit", code="ctx_limit", message=str(fault), step=name)
    return template_error(fault, name)


def skipped(state: State, resolved: Mapping[str, Any], name: str) -> ev.Routing:
    """The arcs of a step whose admission was refused; one that raises is simply not taken."""
    arcs = state.program.steps[name].arcs
    more = {
        "output": OutputView(Outcome(status="skipped", data={})),
        "event": {"name": "step.skipped", "step": name, "timestamp": state.now, "payload": {}},
    }
    scope = scope_of(state, name, resolved=resolved, more=more)
    mode = _mode(state, name)
    seen: list[ev.ArcTaken] = []
    for plan in arcs:
        done = mode == "exclusive" and any(arc.taken for arc in seen)
        try:
            value = None if done or plan.on == "error" else _value(plan, lambda: scope)
        except TemplateFailure as fault:
            error = template_error(fault, name)
            seen.append(ev.ArcTaken(step=plan.target, on=plan.on, error=error))
            continue
        taken = value is not None and is_true(value)
        seen.append(ev.ArcTaken(step=plan.target, on=plan.on, value=_shown(value), taken=taken))
    return ev.Routing(mode=mode, arcs=tuple(seen))


def _mode(state: State, name: str) -> str:
    router = state.program.steps[name].step.next
    return router.mode if router else "exclusive"


def _routed(leaving: _Exit) -> tuple[ev.Routing, list[Event]]:
    """Evaluate the arcs; an arc that raises fails the step and is left out of the next attempt."""
    arcs = leaving.state.program.steps[leaving.name].arcs
    while True:
        try:
            routing, writes = _attempt(leaving, arcs)
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


def _attempt(leaving: _Exit, arcs: tuple[ArcPlan, ...]) -> tuple[ev.Routing, list[Event]]:
    name = leaving.name
    mode = _mode(leaving.state, name)
    wanted = {"error", "any"} if leaving.error is not None else {"success", "any"}
    seen: list[ev.ArcTaken] = []
    writes: list[Event] = []
    before = leaving.ctx, leaving.writes
    leaving.begin()
    is_taken = False
    for plan in arcs:
        if plan.number in leaving.left_out:
            why = leaving.left_out[plan.number]
            seen.append(ev.ArcTaken(step=plan.target, on=plan.on, error=why))
            continue
        if (mode == "exclusive" and is_taken) or plan.on not in wanted:
            seen.append(ev.ArcTaken(step=plan.target, on=plan.on))
            continue
        try:
            value = _value(plan, leaving.scope)
            taken = is_true(value)
            if taken and plan.arc.set:
                written = _writes(plan.arc.set, leaving)
                leaving.write(written)
                writes.append(ev.CtxUpdated(step=name, cause=f"arc:{plan.target}", **written))
        except (TemplateFailure, CtxFull) as fault:
            leaving.ctx, leaving.writes = before
            raise _ArcRaised(plan.number, fault_error(fault, name)) from fault
        is_taken = is_taken or taken
        seen.append(ev.ArcTaken(step=plan.target, on=plan.on, value=_shown(value), taken=taken))
    return ev.Routing(mode=mode, arcs=tuple(seen)), writes


def _shown(value: object) -> object:
    """The value of a condition as the log keeps it: itself when small, else its truth."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return value if isinstance(value, str) and len(value) <= _SHOWN else is_true(value)


def _value(plan: ArcPlan, scope: Callable[[], Scope]) -> Any:  # noqa: ANN401 - a template's value
    when = plan.arc.when
    if when is None:
        return True
    return when if isinstance(when, bool) else compile_condition(when).render(scope())


def _must_match(leaving: _Exit) -> bool:
    playbook = leaving.state.program.playbook
    router = leaving.state.program.steps[leaving.name].step.next
    chosen = router.spec.on_no_match if router and router.spec else None
    if chosen is not None:
        return chosen == "fail"
    spec = playbook.executor.spec if playbook.executor else None
    return bool(spec and spec.no_next_is_error)


class CtxFull(Exception):
    """`ctx` would hold more keys than it may."""


def _writes(values: Mapping[str, Any], leaving: _Exit) -> dict[str, dict[str, Any]]:
    """All values of one `set`, rendered against the state before it."""
    scope = leaving.scope()
    written: dict[str, dict[str, Any]] = {"ctx": {}, "of_step": {}}
    for name, value in values.items():
        target, _, path = name.partition(".")
        if target == "ctx":
            written["ctx"][path] = render(value, scope)
        elif target == "step":
            written["of_step"][path] = render(value, scope)
    check_room(leaving.ctx, written["ctx"])
    return written


def check_room(ctx: Mapping[str, Any], written: Mapping[str, Any]) -> None:
    """Refuse writes that would give `ctx` too many keys."""
    new = {path.partition(".")[0] for path in written} - ctx.keys()
    if len(ctx) + len(new) > MOST_KEYS:
        raise CtxFull(f"`ctx` holds at most {MOST_KEYS} keys")
