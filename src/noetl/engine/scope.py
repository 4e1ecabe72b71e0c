"""The names that the engine's own templates see at each point of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.dsl.scope import Names, Scope
from noetl.dsl.views import Outcome, OutputView, StepView

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.engine.events import Error
    from noetl.engine.state import State


class Results(dict[str, Any]):
    """Every declared step by name: its view, or null while it has no result."""

    def __init__(self, state: State) -> None:
        super().__init__(dict.fromkeys(state.program.steps))
        for name, step in state.steps.items():
            if step.result is not None:
                self[name] = StepView(step.result)


def about(state: State) -> dict[str, Any]:
    """The facts of the execution."""
    return {
        "id": state.execution_id,
        "path": state.path,
        "version": state.version,
        "catalog_id": state.catalog_id,
        "started_at": state.started_at,
        "parent_id": state.parent_execution_id,
        "pool": state.pool,
        "outcome": {
            "status": "COMPLETED" if state.failure is None else "FAILED",
            "error": plain_error(state.failure),
        },
    }


def scope_of(
    state: State,
    step: str | None = None,
    *,
    ctx: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Scope:
    """The scope of a template that the engine renders for a step."""
    context = state.ctx if ctx is None else ctx
    results = Results(state)
    scopes: dict[str, Any] = {
        "workload": state.workload,
        "ctx": context,
        "steps": results,
        "execution": about(state),
        "execution_id": state.execution_id,
        **(more or {}),
    }
    routed: object = None
    if step is not None:
        own = state.step(step)
        scopes["step"] = {**own.writes, "name": step, "visit": own.visit}
        scopes["iter"] = own.iter
        source = own.came_from[0] if own.came_from else None
        routed = results.get(source) if source else None
    late = {
        "catalog_id": state.catalog_id,
        "job": {"id": state.execution_id, "execution_id": state.execution_id},
        "path": state.path,
        "version": state.version,
        "result": routed,
    }
    return Scope(
        Names(scopes=scopes, ctx=context, steps=results, workload=state.workload, late=late)
    )


def outcome_names(state: State, step: str, data: object, error: Error | None) -> dict[str, Any]:
    """`output` and `event` for a step's own `set` and arcs."""
    outcome = Outcome(
        status="ok" if error is None else "error", data=data, error=plain_error(error)
    )
    looped = state.program.steps[step].step.loop is not None
    done = "loop.done" if looped else "call.done"
    event = {
        "name": done if error is None else "call.error",
        "step": step,
        "timestamp": state.now,
        "payload": data,
    }
    return {"output": OutputView(outcome), "event": event}


def plain_error(error: Error | None) -> dict[str, Any] | None:
    """An error as templates see it."""
    if error is None:
        return None
    details = error.details or {}
    return {
        "kind": error.kind,
        "code": error.code,
        "message": error.message,
        "retryable": error.retryable,
        "status_code": details.get("status_code"),
        "retry_after_s": details.get("retry_after_s"),
    }
