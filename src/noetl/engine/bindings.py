"""The values that a command brings along, and the names that its templates see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.dsl.scope import Names, Scope
from noetl.dsl.template import View
from noetl.dsl.views import StepResult, StepView
from noetl.engine.writes import write_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.playbook import Step


class Bindings:
    """What one command may read, and what its tasks wrote over it so far."""

    def __init__(self, step: Step, bound: Mapping[str, Any], execution_id: str) -> None:
        self._workload: Mapping[str, Any] = bound.get("workload") or {}
        self._steps = {name: _view(value) for name, value in (bound.get("steps") or {}).items()}
        self._facts: Mapping[str, Any] = {"id": execution_id, **(bound.get("execution") or {})}
        self._execution_id = execution_id
        self._result = bound.get("result")
        self._iteration = _iteration(step, bound.get("iter"))
        self.index: int | None = self._iteration.get("_index")
        self._ctx: dict[str, Any] = dict(bound.get("ctx") or {})
        self._step: dict[str, Any] = {"name": step.name, **(bound.get("step") or {})}
        self._iter = _of_iteration(step, self._iteration)
        self.iter_writes: dict[str, Any] = {}

    def write(self, key: str, value: object) -> None:
        """Make a write of a task readable by what follows in this command."""
        target, _, path = key.partition(".")
        if target == "iter":
            write_at(self.iter_writes, path, value)
        written = {"ctx": self._ctx, "iter": self._iter, "step": self._step}[target]
        write_at(written, path, value)

    def scope(
        self,
        *,
        keychain: Mapping[str, Any],
        inputs: Mapping[str, Any] | None = None,
        tasks: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> Scope:
        """The names at one point of the command, in their order of precedence."""
        given = inputs or {}
        scopes: dict[str, Any] = {
            "workload": self._workload,
            "ctx": dict(self._ctx),
            "iter": dict(self._iter),
            "steps": self._steps,
            "step": dict(self._step),
            "input": given,
            "args": given,
            "keychain": keychain,
            "execution": self._facts,
            "execution_id": self._execution_id,
            **(more or {}),
        }
        late = {
            "catalog_id": self._facts.get("catalog_id"),
            "job": {"id": self._execution_id, "execution_id": self._execution_id},
            "path": self._facts.get("path"),
            "version": self._facts.get("version"),
            "result": self._result,
        }
        return Scope(
            Names(
                scopes=scopes,
                inputs=given,
                iteration=self._iteration,
                tasks=tasks or {},
                ctx=scopes["ctx"],
                steps=self._steps,
                workload=self._workload,
                late=late,
            )
        )


def _view(value: object) -> object:
    """A finished step reads as its view; one without a result is null."""
    if value is None or isinstance(value, View):
        return value
    return StepView(StepResult(data=value))


def _iteration(step: Step, bound: Mapping[str, Any] | None) -> dict[str, Any]:
    """The bare names of one iteration."""
    if step.loop is None or not bound:
        return {}
    index, total = bound["index"], bound["total"]
    is_last = total is not None and index == total - 1
    loop = {"index": index, "length": total, "first": index == 0, "last": is_last}
    names = {"_index": index, "loop_index": index, "_total": total, "loop": loop}
    return {step.loop.iterator: bound["item"], **names}


def _of_iteration(step: Step, names: Mapping[str, Any]) -> dict[str, Any]:
    """What `iter` holds before anything is written to it."""
    if step.loop is None or not names:
        return {}
    return {
        step.loop.iterator: names[step.loop.iterator],
        "_index": names["_index"],
        "_total": names["_total"],
        "_first": names["loop"]["first"],
        "_last": names["loop"]["last"],
    }
