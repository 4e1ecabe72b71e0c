"""Commands: work for a worker, bound with the values that its templates name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.engine import events as ev
from noetl.engine.scope import Results, about

if TYPE_CHECKING:
    from noetl.dsl.template import TemplateFailure
    from noetl.engine.state import State

PRIORITIES = {"low": 2, "normal": 5, "high": 8}


def issue(state: State, name: str, index: int | None = None) -> ev.CommandIssued:
    """The command of a visit, or of one iteration of its loop."""
    step = state.program.steps[name].step
    own = state.step(name)
    key = f"{name}#{own.visit}" + ("" if index is None else f"/i{index}")
    loop = own.loop
    spec = step.spec
    place = "-" if index is None else str(index)
    return ev.CommandIssued(
        step=name,
        visit=own.visit,
        command_key=key,
        kind=step.tools[0].kind if step.tools else "noop",
        pool=(spec.pool if spec and spec.pool else state.pool),
        bindings=_bindings(state, name, index),
        index=index,
        total=loop.total if loop else None,
        idempotency_key=f"{state.execution_id}/{name}/{place}/{own.visit}",
        idempotent=spec.idempotent if spec else True,
        priority=PRIORITIES[spec.priority] if spec else 5,
    )


def _bindings(state: State, name: str, index: int | None) -> dict[str, Any]:
    """Only the values that the step's templates name; a canary elsewhere never travels."""
    bound: dict[str, Any] = {"execution": about(state)}
    results = Results(state)
    for path in state.program.reads(name):
        root = path[0]
        if root in {"workload", "ctx"} and len(path) > 1:
            source = state.workload if root == "workload" else state.ctx
            if path[1] in source:
                bound.setdefault(root, {})[path[1]] = source[path[1]]
        elif root in {"workload", "ctx"}:
            bound[root] = state.workload if root == "workload" else state.ctx
        elif root == "steps" and len(path) > 1 and path[1] in results:
            bound.setdefault("steps", {})[path[1]] = _value(results[path[1]])
        elif root in state.ctx:
            bound.setdefault("ctx", {})[root] = state.ctx[root]
        elif root in results:
            bound.setdefault("steps", {})[root] = _value(results[root])
        elif root in state.workload:
            bound.setdefault("workload", {})[root] = state.workload[root]
    own = state.step(name)
    if index is not None and own.loop is not None:
        bound["iter"] = {
            "item": own.loop.items[index],
            "index": index,
            "total": own.loop.total,
        }
    bound["step"] = {**own.writes, "name": name, "visit": own.visit}
    return bound


def _value(view: object) -> object:
    return view.plain() if hasattr(view, "plain") else view


def template_error(fault: TemplateFailure, step: str) -> ev.Error:
    """A template that could not be rendered, as the error of what it belongs to."""
    return ev.Error(kind="template", code=fault.code, message=fault.message, step=step)
