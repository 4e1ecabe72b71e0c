"""What every event means, who makes it, and where its facts stand in a row."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Final, Literal, get_type_hints

from noetl.engine import events as ev
from noetl.engine import subscriptions
from noetl.engine.rows import META, RESULT, TOP

WORKER: Final = frozenset({
    "command.started", "step.progress", "call.done", "call.error", "command.parked",
})  # fmt: skip
"""Events that a worker may report; the timer service and children report theirs through the
server."""
_REPORTED: Final = WORKER | {"timer.fired", "execution.returned"}
_CALLS: Final = frozenset({
    "playbook.started", "state.restored", "execution.paused", "execution.resumed",
    "execution.admitted", "playbook.cancelled", "command.claimed", "command.late",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One fact of an event."""

    name: str
    place: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDoc:
    """One event of the vocabulary."""

    name: str
    meaning: str
    producer: str
    status: str
    node_type: str
    fields: tuple[Field, ...]


def vocabulary() -> list[EventDoc]:
    """Every event, in the order of a run."""
    return [_described(cls) for cls in ev.KINDS.values()]


def _described(cls: type[ev.Event]) -> EventDoc:
    hints = get_type_hints(cls)
    name = str(cls.__struct_config__.tag)
    shown = zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)
    fields = tuple(
        Field(name=outward, place=_place(outward), type=_type(hints[inward]))
        for inward, outward in shown
        if inward not in {"outcome", "execution_id"}
    )
    return EventDoc(
        name=name,
        meaning=" ".join(str(inspect.getdoc(cls)).split("\n\n")[0].split()),
        producer=_producer(name),
        status=cls.status or "COMPLETED or FAILED",
        node_type=cls.node_type,
        fields=fields,
    )


def _producer(name: str) -> str:
    if name in _CALLS:
        return "call"
    if name in ev.OF_SUBSCRIPTIONS:
        return "report" if name in subscriptions.POSTED else "call"
    return "report" if name in _REPORTED else "engine"


def _place(name: str) -> str:
    if name in _FREE:
        return _FREE[name]
    if name in TOP or name == "step":
        return name
    if name in META:
        return f"meta.{name}"
    if name in RESULT:
        return "result.reference" if name == "reference" else "result.context.data"
    return f"context.{name}"


_FREE: Final = {"facts": "context", "about": "meta"}
"""Where events of subscriptions tell what no class names."""
_NAMES: Final = {
    "str": "text", "int": "whole number", "float": "number", "bool": "yes or no", "Any": "any",
    "Error": "error", "Reference": "reference", "Routing": "routing", "NoneType": "null",
}  # fmt: skip


def _type(hint: Any) -> str:  # noqa: ANN401 - a type
    """A type in plain words."""
    origin = getattr(hint, "__origin__", None)
    if origin is dict:
        return "map"
    if origin is tuple:
        return "list"
    args = getattr(hint, "__args__", ())
    if origin is Literal:
        return ", ".join(f"`{word}`" for word in args)
    if args:
        words = [_type(part) for part in args if part is not type(None)]
        return " or ".join(dict.fromkeys(words))
    return _NAMES.get(getattr(hint, "__name__", str(hint)), "map")
