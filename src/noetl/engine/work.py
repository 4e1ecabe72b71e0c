"""Commands: work for a worker, or for the engine, bound with the values that its templates name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.dsl.views import ObjectGone, Reference, StepResult, value_of
from noetl.engine import events as ev
from noetl.engine.scope import about

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.template import TemplateFailure
    from noetl.engine.state import LoopState, State

# `normal` is the priority that the run was started with.
PRIORITIES = {"low": 2, "high": 8}
CHUNK = 1_000
ENGINE_RUN = frozenset({"playbook", "playbooks", "wait"})


def is_run_here(state: State, name: str) -> bool:
    """Whether the engine itself runs a step's only tool, without a worker."""
    step = state.program.steps[name].step
    if step.is_pipeline or len(step.tools) != 1 or name in state.program.on_worker:
        return False
    return step.tools[0].kind in ENGINE_RUN


def issue(
    state: State, name: str, resolved: Mapping[str, Any], index: int | None = None
) -> ev.CommandIssued:
    """The command of a visit, or of one iteration of its loop."""
    own = state.step(name)
    key = f"{name}#{own.visit}" + ("" if index is None else f"/i{index}")
    binding = _Binding(state, name)
    binding.names(state.program.reads(name))
    if index is not None and own.loop is not None:
        binding.item(item_at(own.loop, index, resolved), index, own.loop.total)
    return command(state, name, key, binding, index=index)


def item_at(loop: LoopState, index: int, resolved: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an item of the author's own
    """One item, from the list or from its chunk."""
    if not loop.items_ref:
        return loop.items[index]
    return value_of(loop.items_ref[index // CHUNK], resolved)[index % CHUNK]


def command(  # noqa: PLR0913 - what tells one command of a step from another
    state: State,
    name: str,
    key: str,
    binding: _Binding,
    *,
    index: int | None = None,
    frame: int | None = None,
    is_claim: bool = False,
) -> ev.CommandIssued:
    """A command of a step with its bindings."""
    step = state.program.steps[name].step
    own = state.step(name)
    spec = step.spec
    timer = state.timers.get(f"step_timeout:{name}#{own.visit}")
    place = "-" if index is None else str(index)
    if frame is not None:
        place = f"f{frame}" if index is None else f"f{frame}.{index}"
    pool = spec.pool if spec and spec.pool else state.pool
    kind = step.tools[0].kind if step.tools else "noop"
    if is_claim and step.loop is not None and step.loop.cursor is not None:
        kind = step.loop.cursor.kind
    return ev.CommandIssued(
        step=name,
        visit=own.visit,
        command_key=key,
        kind=kind,
        pool=None if is_run_here(state, name) and not is_claim else pool,
        bindings=binding.bound,
        refs=binding.refs,
        index=index,
        frame=frame,
        is_claim=is_claim,
        max_attempts=state.program.max_attempts,
        total=own.loop.total if own.loop and frame is None else None,
        idempotency_key=f"{state.execution_id}/{name}/{place}/{own.visit}",
        idempotent=spec.idempotent if spec else True,
        priority=PRIORITIES[spec.priority]
        if spec and spec.priority != "normal"
        else state.priority,
        deadline=timer.due_at if timer else None,
    )


class _Binding:
    """Only the values that a step's templates name; a canary elsewhere never travels."""

    def __init__(self, state: State, name: str) -> None:
        self._state = state
        self._name = name
        own = state.step(name)
        self.bound: dict[str, Any] = {
            "execution": about(state),
            "step": {**own.writes, "name": name, "visit": own.visit},
        }
        self.refs: dict[str, Reference] = {}

    def names(self, paths: frozenset[tuple[str, ...]]) -> None:
        """Bind what the paths name."""
        for path in sorted(paths):
            self._name_(path)

    def item(self, item: object, index: int, total: int | None) -> None:
        """Bind the item of an iteration."""
        self.bound["iter"] = {"item": item, "index": index, "total": total}

    def _name_(self, path: tuple[str, ...]) -> None:
        state, root = self._state, path[0]
        if root == "workload":
            self._part("workload", state.workload, path[1:])
        elif root == "ctx":
            self._part("ctx", state.ctx, path[1:])
        elif root == "steps":
            names = path[1:2] or tuple(state.program.steps)
            for name in names:
                self._result(name)
        elif root in state.ctx:
            self._part("ctx", state.ctx, path)
        elif root in state.program.steps:
            self._result(root)
        elif root in state.workload:
            self._part("workload", state.workload, path)
        elif root == "result":
            came_from = state.step(self._name).came_from
            if came_from:
                self._result(came_from[0])
                self.bound["routed_by"] = came_from[0]

    def _part(self, scope: str, source: Mapping[str, Any], path: tuple[str, ...]) -> None:
        """One key of a scope, or all of it when it is read as a whole."""
        into = self.bound.setdefault(scope, {})
        for key in path[:1] or tuple(source):
            if key in source:
                self._value(into, f"{scope}.{key}", key, source[key])

    def _value(self, into: dict[str, Any], place: str, key: str, value: object) -> None:
        if isinstance(value, Reference):
            self.refs[place] = value
        elif self._state.has_refs and isinstance(value, dict):
            inner: dict[str, Any] = {}
            for name, item in value.items():
                self._value(inner, f"{place}.{name}", name, item)
            into[key] = inner
        else:
            into[key] = value

    def _result(self, name: str) -> None:
        if name not in self._state.program.steps:
            return
        step = self._state.steps.get(name)
        result = step.result if step else None
        self.bound.setdefault("steps", {})[name] = None if result is None else carried(result)
        if result is not None and result.reference is not None:
            self.refs[f"steps.{name}"] = result.reference


def carried(result: StepResult) -> dict[str, Any]:
    """A result as a command brings it along: its form too, so that it reads the same there."""
    made: dict[str, Any] = {"form": result.form, "status": result.status}
    if result.reference is None:
        made["data"] = result.data
    if result.error is not None:
        made["error"] = result.error
    if result.writes:
        made["writes"] = result.writes
    if result.stats is not None:
        made["stats"] = result.stats
    if result.errors:
        made["errors"] = list(result.errors)
    if result.child_execution_id is not None:
        made["child_execution_id"] = result.child_execution_id
    return made


def bound_for(state: State, name: str) -> _Binding:
    """A binding of a step that others fill."""
    return _Binding(state, name)


def template_error(fault: TemplateFailure, step: str) -> ev.Error:
    """A template that could not be rendered, as the error of what it belongs to."""
    kind = "storage_access" if isinstance(fault, ObjectGone) else "template"
    return ev.Error(kind=kind, code=fault.code, message=fault.message, step=step)
