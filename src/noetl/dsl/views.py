"""What templates see of a finished step and of an outcome: stable access by rule, no guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from noetl.dsl.template import MISSING, View

Form = Literal["single", "pipeline", "loop", "cursor", "child"]
Status = Literal["ok", "error", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Where an externalised value lies, and what of it is known without a fetch."""

    ref: str
    store: str
    size: int | None = None
    preview: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one visit of a step left behind."""

    form: Form = "single"
    status: Status = "ok"
    data: object = None
    error: Mapping[str, Any] | None = None
    reference: Reference | None = None
    writes: Mapping[str, Any] = field(default_factory=dict)
    stats: Mapping[str, int] | None = None
    errors: Sequence[Mapping[str, Any]] = ()
    child_execution_id: str | None = None


class StepView(View):
    """`<step>` in a template: its data, with a few names that every view has."""

    __slots__ = ("_result",)

    def __init__(self, result: StepResult) -> None:
        self._result = result

    def plain(self) -> object:
        """The data."""
        return self._result.data

    def lookup(self, key: str) -> object:
        """A facet, a key of the data, the data itself, or a value of the `step` scope."""
        found = self._facet(key)
        if found is MISSING:
            found = self._of_data(key)
        if found is MISSING and key == "data":
            return self._result.data
        if found is MISSING:
            found = self._result.writes.get(key, MISSING)
        if found is MISSING and key == "output":
            return self._result.data
        return found

    def _facet(self, key: str) -> object:
        if not key.startswith("_"):
            return MISSING
        result, reference = self._result, self._result.reference
        facets: dict[str, object] = {
            "_status": result.status,
            "_error": result.error,
            "_ref": reference.ref if reference else MISSING,
            "_store": reference.store if reference else "inline",
            "_preview": reference.preview if reference else None,
            "_size": reference.size if reference else None,
            "_execution_id": result.child_execution_id or MISSING,
        }
        return facets.get(key, MISSING)

    def _of_data(self, key: str) -> object:
        result = self._result
        if result.form == "pipeline" and isinstance(result.data, Mapping):
            return _of_tasks(result.data, key)
        if isinstance(result.data, Mapping) and key in result.data:
            value: object = result.data[key]
            return value
        if result.form in {"loop", "cursor"}:
            shown: dict[str, object] = {
                "results": result.data,
                "stats": result.stats,
                "errors": list(result.errors),
            }
            return shown.get(key, MISSING)
        return MISSING


def _of_tasks(tasks: Mapping[str, Any], key: str) -> object:
    """A task by name, all of them, or a field of the last task that has it."""
    if key in tasks:
        return tasks[key]
    if key == "results":
        return tasks
    for data in reversed(list(tasks.values())):
        if isinstance(data, Mapping) and key in data:
            return data[key]
    return MISSING


class Facts(View):
    """A group of documented fields: each is always present; the whole is null when none applies."""

    __slots__ = ("_known", "_names")

    def __init__(self, names: Sequence[str], known: Mapping[str, Any] | None) -> None:
        self._names = names
        self._known = known

    def plain(self) -> object:
        """The fields as a map, or null."""
        if self._known is None:
            return None
        return {name: self._known.get(name) for name in self._names} | dict(self._known)

    def lookup(self, key: str) -> object:
        """One field; null when it does not apply."""
        if self._known is not None and key in self._known:
            value: object = self._known[key]
            return value
        return None if key in self._names else MISSING


ERROR_FIELDS = ("kind", "code", "message", "retryable", "status", "status_code", "retry_after_s")
HTTP_FIELDS = ("status", "headers")
PG_FIELDS = ("code", "sqlstate")
PY_FIELDS = ("exception", "traceback")
META_FIELDS = ("attempt", "duration_ms", "tasks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The envelope of one run of a task or step."""

    status: Status = "ok"
    data: object = None
    ref: str | None = None
    error: Mapping[str, Any] | None = None
    http: Mapping[str, Any] | None = None
    pg: Mapping[str, Any] | None = None
    py: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = None


class OutputView(View):
    """`output` in a template: every documented field, then the data's own."""

    __slots__ = ("_outcome",)

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def plain(self) -> object:
        """The data: `{{ output }}` is what the tool returned."""
        return self._outcome.data

    def lookup(self, key: str) -> object:
        """A field of the envelope, else of the data."""
        outcome = self._outcome
        match key:
            case "status":
                return outcome.status
            case "data":
                return outcome.data
            case "ref":
                return outcome.ref
            case "error":
                return Facts(ERROR_FIELDS, _with_status(outcome.error))
            case "http":
                return Facts(HTTP_FIELDS, outcome.http)
            case "pg":
                return Facts(PG_FIELDS, outcome.pg)
            case "py":
                return Facts(PY_FIELDS, outcome.py)
            case "meta":
                return Facts(META_FIELDS, outcome.meta)
        data = outcome.data
        if isinstance(data, View):
            return data.lookup(key)
        return data.get(key, MISSING) if isinstance(data, Mapping) else MISSING


def _with_status(error: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if error is None:
        return None
    code = error.get("status_code", error.get("status"))
    return {**error, "status": code, "status_code": code}
