"""A task's own keys, rendered into what its tool receives."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from noetl.dsl.names import names_in, names_in_condition
from noetl.dsl.shape import ByType, Fields, ListOf, MapOf, Model, Name
from noetl.dsl.shape.reader import CODE, SHELL, SQL
from noetl.dsl.shape.units import Duration, Size, seconds, size_bytes
from noetl.dsl.tasks.calls import Paginate
from noetl.dsl.tasks.task import TIMEOUT, Timeout
from noetl.dsl.template import (
    CODE_SOURCE_LIMIT,
    TemplateFailure,
    TemplateSyntax,
    UndefinedName,
    compile_code,
    compile_template,
    is_template,
    reads,
    render,
)
from noetl.dsl.views import ObjectGone
from noetl.engine.once import Once
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from noetl.dsl.shape.base import Shape
    from noetl.dsl.tasks.task import Rule, Task

    Leaf = Callable[[Any, str], Any]

# Keys that the engine and the worker read themselves; the rest is the tool's.
_COMMON = frozenset({"kind", "desc", "input", "set", "output", "timeout", "spec"})
# Rendered by the tool, once per page.
_PER_PAGE = frozenset({"next", "until"})


class Unrendered(NoetlError):
    """A key that has no value, with the kind of error that its task gets."""

    code = "invalid_config"

    def __init__(self, message: str, *, kind: str = "config", code: str = "invalid_config") -> None:
        """Keep the kind beside the code and the message."""
        super().__init__(message, code=code)
        self.kind = kind

    @property
    def error(self) -> dict[str, Any]:
        """The error of the task."""
        return {
            "kind": self.kind,
            "code": self.code,
            "message": self.message,
            "retryable": False,
        }


@contextmanager
def named(place: str) -> Iterator[None]:
    """Name the key in the error of a template that fails."""
    try:
        yield
    except (TemplateFailure, TemplateSyntax) as fault:
        message = f"`{place}`: {fault.message}"
        if isinstance(fault, UndefinedName) and fault.name.split(".")[0] == "keychain":
            raise Unrendered(message, kind="auth", code="keychain_missing") from None
        kind = "storage_access" if isinstance(fault, ObjectGone) else "template"
        raise Unrendered(message, kind=kind, code=fault.code) from None


def config_of(task: Task, scope: Mapping[str, Any]) -> dict[str, Any]:
    """The tool's keys with every template rendered; keys that are null are left out."""
    plan = _plan_of(task)
    config = dict(plan.fixed)
    for name, value, shape in plan.rendered:
        with named(name):
            config[name] = _walk(value, shape, lambda item, role: _rendered(item, role, scope))
    if isinstance(task.timeout, Timeout):
        config["timeout"] = _limits(task.timeout, scope)
    return config


def model_of(model: Model, place: str, scope: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a model that is no task, with every template rendered."""
    with named(place):
        return _model(model, lambda item, role: _rendered(item, role, scope))


@dataclass(frozen=True, slots=True)
class _Plan:
    """The keys of a task: those that are what they are, and those that hold templates."""

    fixed: dict[str, Any]
    rendered: tuple[tuple[str, Any, Any], ...]


def _planned(task: Task) -> _Plan:
    fixed: dict[str, Any] = {}
    rendered: list[tuple[str, Any, Any]] = []
    for name, value, shape in _own(task):
        found: list[str] = []

        def note(item: Any, role: str, found: list[str] = found) -> Any:  # noqa: ANN401 - a value of the author's own
            if compile_code(item).expressions if role == CODE else _has_template(item):
                found.append(role)
            return item

        plain = _walk(value, shape, note)
        if found:
            rendered.append((name, value, shape))
        else:
            fixed[name] = plain
    return _Plan(fixed, tuple(rendered))


_plan_of = Once(_planned)


def _has_template(value: object) -> bool:
    if isinstance(value, str):
        return is_template(value)
    if isinstance(value, dict):
        return any(_has_template(key) or _has_template(item) for key, item in value.items())
    return isinstance(value, (list, tuple)) and any(map(_has_template, value))


def map_of(values: Mapping[str, Any], place: str, scope: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a map of the author's own, each rendered under its own name."""
    rendered: dict[str, Any] = {}
    for name, value in values.items():
        with named(f"{place}.{name}"):
            pair = cast("dict[str, Any]", render({name: value}, scope))
            if not pair.keys().isdisjoint(rendered):
                raise TemplateFailure("two keys of a map render to the same name")
        rendered.update(pair)
    return rendered


def timeout_s(value: object, scope: Mapping[str, Any]) -> float | None:
    """The limit of one try in seconds; null means the tool's own default."""
    if isinstance(value, Timeout):
        value = _limits(value, scope).get("total")
    elif isinstance(value, str):
        with named("timeout"):
            value = render(value, scope)
    return None if value is None else duration(value, "timeout", zero=False)


def duration(value: object, place: str, *, zero: bool = True) -> float:
    """A number of seconds, or text with a unit."""
    amount = seconds(value) if isinstance(value, str) else value
    if (
        isinstance(amount, bool)
        or not isinstance(amount, (int, float))
        or not math.isfinite(amount)
        or amount < 0
        or (amount == 0 and not zero)
    ):
        raise Unrendered(f"`{place}`: `{value}` is not a duration")
    return amount


def keychain_names(
    task: Task, rules: tuple[Rule, ...], inputs: Mapping[str, Any]
) -> frozenset[str]:
    """The keychain entries that a task needs before it runs: in its keys, inputs and rules."""
    found: set[tuple[str, ...]] = set()

    def collect(value: Any, role: str) -> None:  # noqa: ANN401 - a value of the author's own
        if role == CODE:
            for expression in compile_code(value).expressions:
                found.update(reads(expression.template))
        elif role in {SQL, SHELL}:
            found.update(reads(compile_template(value, source_limit=CODE_SOURCE_LIMIT)))
        else:
            found.update(names_in(value))

    for _, value, shape in _own(task):
        _walk(value, shape, collect)
    _walk(task.timeout, TIMEOUT, collect)
    found |= names_in(inputs) | names_in(task.input)
    for rule in rules:
        then = rule.then
        found |= names_in_condition(rule.when)
        found |= names_in([then.attempts, then.delay, then.max_delay])
    return frozenset(path[1] for path in found if path[0] == "keychain" and len(path) > 1)


def _own(task: Task) -> Iterator[tuple[str, Any, Shape | None]]:
    """The tool's own keys that are not null, with their shapes."""
    code_is_plain = getattr(task, "template", True) is False
    for attr, key in Fields.of(type(task)).keys.items():
        value = getattr(task, attr)
        if value is None or key.name in _COMMON or _is_empty(value):
            continue
        if key.name == "name" and isinstance(key.shape, Name):
            continue
        is_code = getattr(key.shape, "role", "") == CODE
        yield key.name, value, None if is_code and code_is_plain else key.shape
    if task.keeps_unknown:
        for name, value in task.extra.items():
            if not name.startswith("x-"):
                yield name, value, _FREE


def _is_empty(value: object) -> bool:
    """Whether a list or map has nothing to say: the tool's model has the same default."""
    return isinstance(value, (tuple, dict)) and not value


class _Free:
    """Keys of a plug-in: every text may be a template."""

    role = "worker"


_FREE: Any = _Free()


def _walk(value: Any, shape: Shape | None, leaf: Leaf) -> Any:  # noqa: ANN401 - a value of the author's own
    """Hand every part that may hold templates to `leaf`; what may not stays as it is."""
    if isinstance(shape, ByType):
        shape = _alternative(value, shape)
    if isinstance(value, Model):
        return _model(value, leaf)
    if isinstance(shape, ListOf):
        return [_walk(item, shape.item, leaf) for item in value]
    if isinstance(shape, MapOf):
        return {name: _walk(item, shape.item, leaf) for name, item in value.items()}
    role: str = getattr(shape, "role", "")
    if not role:
        return value
    found = leaf(value, role)
    if isinstance(found, str) and isinstance(shape, Duration):
        amount: float | None = seconds(found)
        return found if amount is None else amount
    if isinstance(found, str) and isinstance(shape, Size):
        size = size_bytes(found)
        return found if size is None else size
    return found


def _model(value: Model, leaf: Leaf) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    for attr, key in Fields.of(type(value)).keys.items():
        part = getattr(value, attr)
        if part is None or _is_empty(part):
            continue
        is_later = isinstance(value, Paginate) and attr in _PER_PAGE
        parts[key.name] = part if is_later else _walk(part, key.shape, leaf)
    return parts


def _alternative(value: object, shape: ByType) -> Shape | None:
    if isinstance(value, str):
        return shape.text
    if isinstance(value, bool):
        return shape.flag
    if isinstance(value, (int, float)):
        return shape.number
    return shape.list if isinstance(value, (list, tuple)) else shape.map


def _rendered(value: Any, role: str, scope: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a value of the author's own
    if role == CODE:
        return compile_code(value).render(scope)
    if role in {SQL, SHELL}:
        return compile_template(value, source_limit=CODE_SOURCE_LIMIT).render(scope)
    return render(value, scope)


def _limits(value: Timeout, scope: Mapping[str, Any]) -> dict[str, Any]:
    with named("timeout"):
        return _model(value, lambda item, role: _rendered(item, role, scope))
