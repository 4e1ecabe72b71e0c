"""What templates see of a finished step and of an outcome: stable access by rule, no guess."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from noetl.dsl.template import MISSING, TemplateFailure, View
from noetl.dsl.template.values import plain

Form = Literal["single", "pipeline", "loop", "cursor", "child"]
Status = Literal["ok", "error", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Where an externalised value lies, and what of it is known without a fetch."""

    ref: str
    store: str
    kind: str = "result_ref"
    size: int | None = None
    sha256: str = ""
    media_type: str = "application/json"
    scope: str = "execution"
    total: int | None = None
    extracted: Any = None
    preview: Any = None


_NOTHING: Mapping[str, Any] = {}


class NeedsObject(Exception):
    """A template reads a value that lies elsewhere; fetch it and render again."""

    def __init__(self, reference: Reference) -> None:
        """Name the value."""
        super().__init__(reference.ref)
        self.reference = reference


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands in the place of a value that could not be fetched, and tells why."""

    code: str
    message: str


class ObjectGone(TemplateFailure):
    """A template reads a value that cannot be had: whoever reads it fails, not who wrote it."""

    def __init__(self, why: Unreadable) -> None:
        """Keep the code of the store."""
        super().__init__(why.message)
        self.code = why.code


def value_of(reference: Reference, resolved: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a value of the author's own
    """A value that lies elsewhere, once it was fetched."""
    if reference.ref not in resolved:
        raise NeedsObject(reference)
    value = resolved[reference.ref]
    if isinstance(value, Unreadable):
        raise ObjectGone(value)
    return value


class Lazy(View):
    """A value over the inline limit: what is known of it, else the value itself once fetched."""

    __slots__ = ("_reference", "_resolved")

    def __init__(self, reference: Reference, resolved: Mapping[str, Any] = _NOTHING) -> None:
        self._reference = reference
        self._resolved = resolved

    def plain(self) -> object:
        """The whole value."""
        value: object = value_of(self._reference, self._resolved)
        return value

    def lookup(self, key: str) -> object:
        """A facet, a part that is known without a fetch, or a part of the whole."""
        facet = facet_of(self._reference, key)
        if facet is not MISSING:
            return facet
        known = self._reference.extracted
        if isinstance(known, Mapping) and key in known:
            found: object = known[key]
            return found
        whole = self.plain()
        return whole.get(key, MISSING) if isinstance(whole, Mapping) else MISSING

    def is_truthy(self) -> bool:
        """A value of that size is not empty."""
        return True


class Partly(View):
    """A map some of whose values lie elsewhere, at any depth: each is read when it is touched."""

    __slots__ = ("_resolved", "_values")

    def __init__(self, values: Mapping[str, Any], resolved: Mapping[str, Any]) -> None:
        self._values = values
        self._resolved = resolved

    def lookup(self, key: str) -> object:
        """One value."""
        return readable(self._values[key], self._resolved) if key in self._values else MISSING

    def plain(self) -> object:
        """The map with every value in its place."""
        return {key: plain(readable(item, self._resolved)) for key, item in self._values.items()}

    def is_truthy(self) -> bool:
        """Whether there is a value."""
        return bool(self._values)


def readable(value: object, resolved: Mapping[str, Any]) -> object:
    """A value as templates read it: references and maps that hold some become views."""
    if isinstance(value, Reference):
        return Lazy(value, resolved)
    if isinstance(value, dict) and _holds_references(value):
        return Partly(value, resolved)
    return value


def _holds_references(value: Mapping[str, Any]) -> bool:
    return any(
        isinstance(item, Reference) or (isinstance(item, dict) and _holds_references(item))
        for item in value.values()
    )


def facet_of(reference: Reference | None, key: str) -> object:
    """One of the names that tell where a value lies."""
    if not key.startswith("_"):
        return MISSING
    facets: dict[str, object] = {
        "_ref": reference.ref if reference else MISSING,
        "_store": reference.store if reference else "inline",
        "_preview": reference.preview if reference else None,
        "_size": reference.size if reference else None,
    }
    return facets.get(key, MISSING)


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

    __slots__ = ("_resolved", "_result")

    def __init__(self, result: StepResult, resolved: Mapping[str, Any] = _NOTHING) -> None:
        self._result = result
        self._resolved = resolved

    def plain(self) -> object:
        """The data."""
        return plain(self._data())

    def lookup(self, key: str) -> object:
        """A facet, a key of the data, the data itself, or a value of the `step` scope."""
        found = self._facet(key)
        if found is MISSING:
            found = self._of_data(key)
        if found is MISSING and key == "data":
            return self._data()
        if found is MISSING:
            found = self._result.writes.get(key, MISSING)
        if found is MISSING and key == "output":
            return self._data()
        return found

    def _data(self) -> object:
        reference = self._result.reference
        return self._result.data if reference is None else Lazy(reference, self._resolved)

    def _facet(self, key: str) -> object:
        if not key.startswith("_"):
            return MISSING
        result = self._result
        match key:
            case "_status":
                return result.status
            case "_error":
                return result.error
            case "_execution_id":
                return result.child_execution_id or MISSING
        return facet_of(result.reference, key)

    def _of_data(self, key: str) -> object:
        result = self._result
        if result.form in {"loop", "cursor"}:
            shown: dict[str, object] = {"stats": result.stats, "errors": list(result.errors)}
            if key in shown:
                return shown[key]
            if key == "results" and result.form == "loop":
                return self._data()
        data = self._data()
        if isinstance(data, Lazy):
            if result.form != "pipeline":
                return MISSING if key == "data" and result.form == "loop" else data.lookup(key)
            data = data.plain()
        if result.form == "pipeline" and isinstance(data, Mapping):
            return _of_tasks(data, key)
        if isinstance(data, Mapping) and key in data:
            value: object = data[key]
            return value
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
        return plain(self._outcome.data)

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
