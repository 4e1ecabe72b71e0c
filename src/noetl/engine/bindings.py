"""The values that a command brings along, and the names that its templates see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.dsl.scope import Names, Scope
from noetl.dsl.views import Lazy, StepResult, StepView, readable
from noetl.engine.scope import job_of
from noetl.engine.writes import write_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.playbook import Step
    from noetl.dsl.views import Reference

_NOTHING: Mapping[str, Any] = {}


class Bindings:
    """What one command may read, and what its tasks wrote over it so far."""

    def __init__(
        self,
        step: Step,
        bound: Mapping[str, Any],
        execution_id: str,
        refs: Mapping[str, Reference] = _NOTHING,
        resolved: Mapping[str, Any] = _NOTHING,
    ) -> None:
        """Take what the command brought; values by reference are read when they are touched."""
        self._resolved = resolved
        self._has_refs = bool(refs)
        self._workload = _with_refs(bound, "workload", refs)
        self._ctx = _with_refs(bound, "ctx", refs)
        self._steps = {
            name: _view(value, refs.get(f"steps.{name}"), resolved)
            for name, value in (bound.get("steps") or {}).items()
        }
        self._facts: Mapping[str, Any] = {"id": execution_id, **(bound.get("execution") or {})}
        self._execution_id = execution_id
        self._result = self._steps.get(bound.get("routed_by", ""))
        iteration = dict(bound.get("iter") or {})
        if "iter.item" in refs:
            iteration["item"] = Lazy(refs["iter.item"], resolved)
        self._iteration = _iteration(step, iteration) | _frame(bound.get("frame"))
        self.index: int | None = self._iteration.get("_index")
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

    def _whole(self, values: dict[str, Any]) -> Any:  # noqa: ANN401 - a map, or a view of one
        """A scope under its own name, as it is now."""
        return readable(dict(values), self._resolved) if self._has_refs else dict(values)

    def _bare(self, values: dict[str, Any], whole: Any) -> Mapping[str, Any]:  # noqa: ANN401 - see _whole
        """The keys of a scope as names of their own."""
        if not self._has_refs:
            bare: Mapping[str, Any] = whole
            return bare
        return {name: readable(item, self._resolved) for name, item in values.items()}

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
        workload, ctx = self._whole(self._workload), self._whole(self._ctx)
        scopes: dict[str, Any] = {
            "workload": workload,
            "ctx": ctx,
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
            "job": job_of(self._execution_id),
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
                ctx=self._bare(self._ctx, ctx),
                steps=self._steps,
                workload=self._bare(self._workload, workload),
                late=late,
            )
        )


def _with_refs(
    bound: Mapping[str, Any], scope: str, refs: Mapping[str, Reference]
) -> dict[str, Any]:
    """One scope with references in the places of the values that lie elsewhere."""
    values = dict(bound.get(scope) or {})
    for place, reference in refs.items():
        target, _, path = place.partition(".")
        if target == scope:
            write_at(values, path, reference)
    return values


def _view(
    value: Mapping[str, Any] | None, reference: Reference | None, resolved: Mapping[str, Any]
) -> StepView | None:
    """A finished step reads as its view; one without a result is null."""
    if value is None:
        return None
    return StepView(StepResult(**value, reference=reference), resolved)


def _frame(bound: Mapping[str, Any] | None) -> dict[str, Any]:
    """The names of a cursor's frame: its rows for the body, its size for the claim."""
    if not bound:
        return {}
    names: dict[str, Any] = {"frame": dict(bound)}
    if "max_rows" in bound:
        names["__frame_max_rows"] = bound["max_rows"]
    return names


def _iteration(step: Step, bound: Mapping[str, Any] | None) -> dict[str, Any]:
    """The bare names of one iteration."""
    if step.loop is None or "index" not in (bound or {}):
        return {}
    bound = bound or {}
    index, total = bound["index"], bound["total"]
    is_last = total is not None and index == total - 1
    loop = {"index": index, "length": total, "first": index == 0, "last": is_last}
    names = {"_index": index, "loop_index": index, "_total": total, "loop": loop}
    return {step.loop.iterator: bound["item"], **names}


def _of_iteration(step: Step, names: Mapping[str, Any]) -> dict[str, Any]:
    """What `iter` holds before anything is written to it."""
    if step.loop is None or step.loop.iterator not in names:
        return {}
    return {
        step.loop.iterator: names[step.loop.iterator],
        "_index": names["_index"],
        "_total": names["_total"],
        "_first": names["loop"]["first"],
        "_last": names["loop"]["last"],
    }
