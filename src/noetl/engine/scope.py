"""The names that the engine's own templates see at each point of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final

from noetl.dsl.scope import Names, Scope
from noetl.dsl.views import Outcome, OutputView, Partly, StepView, readable

if TYPE_CHECKING:
    from noetl.dsl.views import StepResult
    from noetl.engine.events import Error
    from noetl.engine.state import State

    Leaving = tuple[str, Callable[[], StepResult]]

NOTHING: Mapping[str, Any] = {}


class Results(Mapping[str, Any]):
    """Every declared step by name: its view, or null while it has no result."""

    __slots__ = ("_leaving", "_resolved", "_state")

    def __init__(
        self,
        state: State,
        resolved: Mapping[str, Any] = NOTHING,
        leaving: Leaving | None = None,
    ) -> None:
        """A step that is about to exit reads as it will be (`leaving`)."""
        self._state = state
        self._resolved = resolved
        self._leaving = leaving

    def __getitem__(self, name: str) -> StepView | None:
        if name not in self._state.program.steps:
            raise KeyError(name)
        if self._leaving is not None and name == self._leaving[0]:
            return StepView(self._leaving[1](), self._resolved)
        step = self._state.steps.get(name)
        if step is None or step.result is None:
            return None
        return StepView(step.result, self._resolved)

    def __iter__(self) -> Iterator[str]:
        return iter(self._state.program.steps)

    def __len__(self) -> int:
        return len(self._state.program.steps)

    def __contains__(self, name: object) -> bool:
        return name in self._state.program.steps


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
        "trace": state.trace,
        "outcome": {
            "status": "COMPLETED" if state.failure is None else "FAILED",
            "error": plain_error(state.failure),
        },
    }


def scope_of(  # noqa: PLR0913 - what a template may see differs from place to place
    state: State,
    step: str | None = None,
    *,
    resolved: Mapping[str, Any] = NOTHING,
    ctx: Mapping[str, Any] | None = None,
    more: Mapping[str, Any] | None = None,
    leaving: Leaving | None = None,
) -> Scope:
    """The scope of a template that the engine renders for a step."""
    context = state.ctx if ctx is None else ctx
    bare: Mapping[str, Any] = context
    whole: object = context
    if state.has_refs:
        bare = {name: readable(item, resolved) for name, item in context.items()}
        whole = Partly(context, resolved)
    results = Results(state, resolved, leaving)
    scopes: dict[str, Any] = {
        "workload": state.workload,
        "ctx": whole,
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
        routed = routed_here(state, step, results)
    late = {
        "catalog_id": state.catalog_id,
        "job": job_of(state.execution_id),
        "path": state.path,
        "version": state.version,
        "result": routed,
    }
    return Scope(Names(scopes=scopes, ctx=bare, steps=results, workload=state.workload, late=late))


def routed_here(state: State, step: str, results: Results) -> StepView | None:
    """The view of the step that led here; null in the entry step."""
    came_from = state.step(step).came_from
    return results[came_from[0]] if came_from and came_from[0] in results else None


@lru_cache(maxsize=1024)
def job_of(execution_id: str) -> dict[str, str]:
    """The older name of the execution's id."""
    digest = bytearray(sha1(_OID + execution_id.encode(), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
    return {"uuid": "-".join(parts), "id": execution_id, "execution_id": execution_id}


# The namespace of object identifiers; `job.uuid` is the UUID of version 5 of the execution's id.
_OID: Final = bytes.fromhex("6ba7b8129dad11d180b400c04fd430c8")


def outcome_names(state: State, step: str, data: object, error: Error | None) -> dict[str, Any]:
    """`output` and `event` for a step's own `set` and arcs; data may be read lazily."""
    outcome = Outcome(
        status="ok" if error is None else "error",
        data=data,
        error=plain_error(error),
        pg=_pg(error),
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


def _pg(error: Error | None) -> dict[str, Any] | None:
    """What the database said of a failure."""
    state = (error.details or {}).get("sqlstate") if error is not None else None
    return None if error is None or state is None else {"code": error.code, "sqlstate": state}


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
