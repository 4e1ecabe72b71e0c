"""Which names a template reads, and what that says about where it belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from noetl.dsl.template import Template, compile_condition, compile_template, is_template, reads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.dsl.playbook.routing import Arc

Names = frozenset[tuple[str, ...]]

SCOPES = (
    "workload", "ctx", "iter", "steps", "step", "output", "event", "input", "args", "keychain",
    "execution", "execution_id",
)  # fmt: skip
LATE_SCOPES = ("catalog_id", "job", "path", "version", "result")
PIPELINE_NAMES = ("_prev", "_task", "_attempt", "results")
LOOP_NAMES = ("_index", "loop_index", "_total", "loop")
EVENT_NAMES = ("call.done", "loop.done", "call.error", "step.skipped")
_OUTCOME = frozenset({"status", "error"})


def names_in(value: object) -> Names:
    """The names that every template inside a value reads, as dotted paths."""
    found: set[tuple[str, ...]] = set()
    _collect(value, found)
    return frozenset(found)


def _collect(value: object, found: set[tuple[str, ...]]) -> None:
    if isinstance(value, str):
        if is_template(value):
            found |= reads(compile_template(value))
    elif isinstance(value, dict):
        for key, item in value.items():
            _collect(key, found)
            _collect(item, found)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, found)


def names_in_condition(condition: bool | str | None) -> Names:  # noqa: FBT001 - a condition may be a plain boolean
    """The names that a condition reads."""
    return reads(compile_condition(condition)) if isinstance(condition, str) else frozenset()


def outcome_of(arc: Arc) -> Literal["success", "error", "any"]:
    """After which outcome an arc is evaluated: written, or told by what its condition reads."""
    if arc.on is not None:
        return arc.on
    for path in names_in_condition(arc.when):
        whole_output = path == ("output",)
        if path[0] == "event" or whole_output or (path[0] == "output" and path[1] in _OUTCOME):
            return "any"
    return "success"


def nodes_of(template: Template) -> Iterator[Any]:
    """Every node of a template's syntax tree."""
    waiting: list[Any] = [template.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            waiting.extend(node)
        elif slots := getattr(node, "__slots__", ()):
            yield node
            waiting.extend(getattr(node, name) for name in slots)
