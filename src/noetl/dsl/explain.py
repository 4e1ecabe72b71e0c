"""What a key, a tool or a code means, from the same models that validate."""

from __future__ import annotations

import dataclasses
from difflib import get_close_matches
from typing import Any

from noetl.dsl.codes import CODES
from noetl.dsl.kinds import KINDS
from noetl.dsl.playbook.pipeline import WorkbookCall
from noetl.dsl.playbook.step import Step
from noetl.dsl.shape import ByType, Fields, Key, ListOf, MapOf, Model, Of, Shape
from noetl.dsl.tasks import KINDS as TOOLS
from noetl.dsl.tasks import REFUSED_KINDS
from noetl.dsl.tasks.task import Task

_ROOTS: dict[str, type[Model]] = {"step": Step, "tool": Task}
_NEAR = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The words on one topic."""

    topic: str
    title: str
    text: str
    type: str = ""
    required: bool | None = None
    default: str = ""
    aliases: tuple[str, ...] = ()
    keys: tuple[tuple[str, str, str], ...] = ()


def topics() -> tuple[str, ...]:
    """The topics to start from."""
    kinds = [kind.name for kind in KINDS.values()]
    return (*kinds, "step", "tool", *(f"tool.{kind}" for kind in TOOLS), *CODES)


def near(topic: str) -> tuple[str, ...]:
    """Topics whose names are close."""
    head = topic.rpartition(".")[0]
    known = list(topics())
    parent = explain(head) if head else None
    if parent is not None:
        known += [f"{head}.{name}" for name, _, _ in parent.keys]
    return tuple(get_close_matches(topic, known, n=_NEAR, cutoff=0.5))


def explain(topic: str) -> Explanation | None:
    """What a topic means; None when there is no such topic."""
    code = topic if topic in CODES else topic.upper()
    if code in CODES:
        found = CODES[code]
        text = f"{found.cause}\n\nExample:\n{_indented(found.example)}\n\nRemedy: {found.remedy}"
        return Explanation(topic=code, title=found.cause, text=text)
    head, *path = topic.split(".")
    kind = KINDS.get(head.lower())
    if kind is not None:
        return _walk(Of(kind.model), kind.name, path)
    if head == "tool" and path:
        special = _tool(path[0]) if len(path) == 1 else None
        if special is not None:
            return special
        if path[0] in TOOLS:
            return _walk(Of(TOOLS[path[0]]), f"tool.{path[0]}", path[1:])
    if head in _ROOTS:
        return _walk(Of(_ROOTS[head]), head, path)
    return None


def _tool(kind: str) -> Explanation | None:
    """Kinds that are no models of their own: resolved, flattened, or refused."""
    if kind == "workbook":
        return _walk(Of(WorkbookCall), "tool.workbook", [])
    if kind == "task_sequence":
        text = "A pipeline under `tasks`; the same as a list under `tool`."
        return Explanation(topic="tool.task_sequence", title=text, text=text, type="map")
    if kind in REFUSED_KINDS:
        text = f"`{kind}` is not a tool kind; {REFUSED_KINDS[kind]}."
        return Explanation(topic=f"tool.{kind}", title=text, text=text)
    return None


def _older(model: type[Model] | None, topic: str, name: str) -> Explanation | None:
    """A key of an earlier release."""
    older = model.older.get(name) if model is not None else None
    if older is None:
        return None
    text = f"An older form, still read with a warning; write {older.instead}."
    return Explanation(topic=f"{topic}.{name}", title=text, text=text, type=older.shape.words())


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _walk(shape: Shape, topic: str, path: list[str]) -> Explanation | None:
    key: Key | None = None
    field: dataclasses.Field[Any] | None = None
    for name in path:
        model = model_of(shape)
        known = Fields.of(model) if model else None
        if known is None or model is None or name not in known.by_name:
            inner = _through(model, name)
            if inner is None:
                return _older(model, topic, name) if name == path[-1] else None
            model, known = inner
            topic = f"{topic}.spec"
        attr, key = known.by_name[name]
        field = next(item for item in dataclasses.fields(model) if item.name == attr)
        shape = key.shape
        topic = f"{topic}.{name}"
    return _explanation(topic, shape, key, field)


def _through(model: type[Model] | None, name: str) -> tuple[type[Model], Fields] | None:
    """A key that stands one level deeper under `spec`, as people say `loop.mode`."""
    if model is None:
        return None
    spec = Fields.of(model).by_name.get("spec")
    inner = model_of(spec[1].shape) if spec else None
    if inner is None or name not in Fields.of(inner).by_name:
        return None
    return inner, Fields.of(inner)


def _explanation(
    topic: str, shape: Shape, key: Key | None, field: dataclasses.Field[Any] | None
) -> Explanation:
    model = model_of(shape)
    about = (model.__doc__ or "").strip() if model else ""
    if key is None or field is None:
        return Explanation(topic=topic, title=about, text=about, type="map", keys=_keys(model))
    default = "" if field.default is dataclasses.MISSING else _word(field.default)
    text = f"{key.doc[:1].upper()}{key.doc[1:]}." + (f"\n\n{about}" if about else "")
    return Explanation(
        topic=topic,
        title=key.doc,
        text=text,
        type=shape.words(),
        required=key.required,
        default=default,
        aliases=key.aliases,
        keys=_keys(model),
    )


def _word(value: object) -> str:
    if value is None or value == ():
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _keys(model: type[Model] | None) -> tuple[tuple[str, str, str], ...]:
    if model is None:
        return ()
    return tuple(
        (item.name, item.shape.words(), item.doc) for item in Fields.of(model).keys.values()
    )


def model_of(shape: Shape) -> type[Model] | None:
    """The model inside a shape, through lists, maps and alternatives."""
    if isinstance(shape, Of):
        return shape.cls
    documented: type[Model] | None = getattr(shape, "documented", None)
    if documented is not None:
        return documented
    if isinstance(shape, (ListOf, MapOf)):
        return model_of(shape.item)
    if isinstance(shape, ByType):
        for inner in (shape.map, shape.list):
            found = model_of(inner) if inner is not None else None
            if found is not None:
                return found
    return None
