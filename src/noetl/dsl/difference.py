"""Two versions of a document: what differs, as text and as meaning, and what may break others."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING, Any, Literal

from noetl.dsl.form import kind_of
from noetl.dsl.playbook.document import Playbook
from noetl.dsl.shape import Fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from noetl.dsl.parse import Parsed
    from noetl.dsl.playbook.inputs import InputField
    from noetl.dsl.playbook.step import Step
    from noetl.dsl.shape import Model

MOST_LINES = 2_000
"""Of changed text that is compared line by line; above, the one replaces the other as a whole."""
_CONTEXT = 3
_MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class ChangedStep:
    """A step that is in both versions, and the keys in which it differs."""

    step: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A default of the workload that was added, removed or changed."""

    name: str
    change: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None


Code = Literal["kind_changed", "input_removed", "input_required", "input_type", "step_removed"]


@dataclass(frozen=True, slots=True)
class Breaking:
    """A change that those who use the document may stumble over."""

    code: Code
    name: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What differs between two versions."""

    unified: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[ChangedStep, ...] = ()
    workload: tuple[ValueChange, ...] = ()
    breaking: tuple[Breaking, ...] = ()


def difference(
    before: Parsed,
    after: Parsed,
    names: tuple[str, str] = ("before", "after"),
    named: Mapping[str, Sequence[str]] | None = None,
) -> Difference:
    """What differs; `named` tells who names a step of the playbook from outside."""
    text = unified(before.document.text, after.document.text, names)
    old = before.model if isinstance(before.model, Playbook) else None
    new = after.model if isinstance(after.model, Playbook) else None
    breaking = list(_kind(before, after))
    if old is None or new is None:
        return Difference(unified=text, breaking=tuple(breaking))
    steps = {step.name: step for step in old.workflow}
    now = {step.name: step for step in new.workflow}
    removed = tuple(name for name in steps if name not in now)
    changes = ((name, changed_keys(steps[name], now[name])) for name in steps if name in now)
    breaking += _inputs(old, new)
    breaking += _steps(removed, named or {})
    return Difference(
        unified=text,
        added=tuple(name for name in now if name not in steps),
        removed=removed,
        changed=tuple(ChangedStep(name, keys) for name, keys in changes if keys),
        workload=tuple(_workload(old.workload, new.workload)),
        breaking=tuple(breaking),
    )


def unified(before: str, after: str, names: tuple[str, str]) -> str:
    """The texts as a unified difference; empty when they are the same but for their line ends."""
    old, new = before.splitlines(), after.splitlines()
    if old == new:
        return ""
    head, tail = _shared(old, new)
    if max(len(old), len(new)) - head - tail > MOST_LINES:
        return "\n".join(_coarse(old, new, names, head, tail)) + "\n"
    return "\n".join(unified_diff(old, new, *names, lineterm="", n=_CONTEXT)) + "\n"


def _shared(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines both begin with, and end with."""
    most = min(len(old), len(new))
    head = next((n for n in range(most) if old[n] != new[n]), most)
    rest = most - head
    tail = next((n for n in range(rest) if old[-1 - n] != new[-1 - n]), rest)
    return head, tail


def _coarse(
    old: list[str], new: list[str], names: tuple[str, str], head: int, tail: int
) -> Iterator[str]:
    """One hunk: everything between the shared head and the shared tail."""
    left, right = old[head : len(old) - tail], new[head : len(new) - tail]
    yield f"--- {names[0]}"
    yield f"+++ {names[1]}"
    yield f"@@ -{head + 1},{len(left)} +{head + 1},{len(right)} @@"
    yield from (f"-{line}" for line in left)
    yield from (f"+{line}" for line in right)


def changed_keys(before: Step, after: Step) -> tuple[str, ...]:
    """The keys in which two steps differ; of a single tool of one kind, those of the tool."""
    found: list[str] = []
    for name in _differing(before, after):
        if name == "tool" and _is_same_tool(before, after):
            found += [f"tool.{key}" for key in _differing(before.tools[0], after.tools[0])]
        else:
            found.append(name)
    if before.is_pipeline != after.is_pipeline and "tool" not in found:
        found.append("tool")
    return tuple(found)


def _is_same_tool(before: Step, after: Step) -> bool:
    if before.is_pipeline or after.is_pipeline:
        return False
    return [task.kind for task in before.tools] == [task.kind for task in after.tools]


def _differing(before: Model, after: Model) -> list[str]:
    keys = Fields.of(type(before)).keys
    found = [
        item.name for attr, item in keys.items() if getattr(before, attr) != getattr(after, attr)
    ]
    return found + sorted(
        name
        for name in {*before.extra, *after.extra}
        if before.extra.get(name, _MISSING) != after.extra.get(name, _MISSING)
    )


def _workload(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[ValueChange]:
    for name, value in before.items():
        if name not in after:
            yield ValueChange(name, "removed", before=value)
        elif _is_other(value, after[name]):
            yield ValueChange(name, "changed", before=value, after=after[name])
    for name, value in after.items():
        if name not in before:
            yield ValueChange(name, "added", after=value)


def _is_other(before: object, after: object) -> bool:
    """Whether values differ; `true` is not 1."""
    return before != after or isinstance(before, bool) != isinstance(after, bool)


def _kind(before: Parsed, after: Parsed) -> Iterator[Breaking]:
    if before.kind and after.kind and before.kind != after.kind:
        message = f"it was a {before.kind} and is a {after.kind} now"
        yield Breaking("kind_changed", after.kind, message)


def _inputs(before: Playbook, after: Playbook) -> Iterator[Breaking]:
    old, new = _takes(before), _takes(after)
    for name, (kind, _) in old.items():
        if name not in new:
            yield Breaking("input_removed", name, f"`{name}` is not an input any more")
        elif not _is_wider(kind, new[name][0]):
            message = f"`{name}` was of type {kind} and is of type {new[name][0]} now"
            yield Breaking("input_type", name, message)
    for name, (_, is_required) in new.items():
        if is_required and not old.get(name, ("", False))[1]:
            yield Breaking("input_required", name, f"`{name}` must be passed now")


def _takes(playbook: Playbook) -> dict[str, tuple[str, bool]]:
    """What a caller may pass: the type of each value, and whether it must be there."""
    found = {name: (_type(value), False) for name, value in playbook.workload.items()}
    return found | {
        name: (item.type, _is_required(name, item, playbook))
        for name, item in playbook.inputs.items()
    }


def _is_required(name: str, item: InputField, playbook: Playbook) -> bool:
    return item.required and not item.has_default and name not in playbook.workload


def _type(value: object) -> str:
    """The type that a default suggests; a template or nothing suggests none."""
    kind = kind_of(value)
    is_open = kind == "null" or (isinstance(value, str) and "{{" in value)
    return "any" if is_open else kind


def _is_wider(before: str, after: str) -> bool:
    return after in {before, "any"} or before == "any" or (before, after) == ("integer", "number")


def _steps(removed: Sequence[str], named: Mapping[str, Sequence[str]]) -> Iterator[Breaking]:
    for name in removed:
        if who := named.get(name):
            shown = ", ".join(who)
            yield Breaking("step_removed", name, f"the step `{name}` is gone, and {shown} names it")
