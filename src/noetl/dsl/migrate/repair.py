"""Rewrites refused forms of earlier releases that have one equal; only `noetl migrate` does so.

The parser refuses these forms, because reading them silently would hide that they are gone. What is
not mechanical is left as it stands and stays refused.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, MutableSequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Protocol

from noetl.dsl.older.upgrade import Box, Editor, Report
from noetl.dsl.playbook.step import Step
from noetl.dsl.shape import Fields
from noetl.dsl.tasks import KINDS
from noetl.dsl.tasks.task import Task

_SINKS = ("sink", "save")
_WORKBOOK = "workbook"
_BRANCH_KEYS = frozenset({"next", "tool", "set", "set_ctx"})
_WRITES = frozenset({"set", "set_ctx", "args"})
_END = "end"


class InsertingEditor(Editor, Protocol):
    """An editor that can also put an item between others."""

    def insert(
        self,
        items: MutableSequence[Any],
        index: int,
        value: Any,  # noqa: ANN401 - any YAML value
        like: tuple[Any, Any],
    ) -> None:
        """Put an item that stands for the value at `like` before another."""


class Repair:
    """Rewrites the mechanical part of the refused forms of one Playbook."""

    def __init__(self, edit: InsertingEditor, report: Report) -> None:
        self._edit = edit
        self._report = report

    def playbook(self, root: Box) -> None:
        """Rewrite what has one equal, below the root of a Playbook."""
        self._head(root)
        steps = root.get("workflow")
        if not isinstance(steps, list):
            return
        for step in list(steps):
            if isinstance(step, MutableMapping):
                self._step(step, steps)

    def _step(self, step: Box, steps: MutableSequence[Any]) -> None:
        self._type(step)
        self._pipe(step)
        self._loop(step)
        self._vars(step)
        self._rules(step)
        for task in _tasks(step):
            self._vars(task)
            self._rules(task)
        self._sinks(step)
        self._case(step, steps)

    def _head(self, root: Box) -> None:
        if root.get("apiVersion") == "noetl.io/v1":
            self._report("DSL022", root, "apiVersion", "`apiVersion` is now `noetl.io/v2`", "")
            self._edit.replace(root, "apiVersion", "noetl.io/v2")
        is_agent = str(root.get("kind")).lower() == "agent"
        if is_agent and isinstance(metadata := root.get("metadata"), MutableMapping):
            message = "`Agent` is a Playbook with `metadata.agent`"
            self._report("DSL103", root, "kind", message, "")
            self._edit.replace(root, "kind", "Playbook")
            self._edit.put(metadata, "agent", True, (root, "kind"))  # noqa: FBT003 - the value itself
        if isinstance(values := root.get("vars"), MutableMapping):
            self._join_vars(root, "workload", {name: name for name in values})

    def _rename(self, box: Box, old: str, new: str) -> None:
        self._report("repair", box, old, f"`{old}` is now `{new}`", "")
        self._edit.rename(box, old, new)

    # ------------------------------------------------------------------ small forms

    def _type(self, step: Box) -> None:
        """`type` beside the keys of a tool becomes `tool`."""
        kind = step.get("type")
        if not isinstance(kind, str) or "tool" in step or kind not in {*KINDS, _WORKBOOK}:
            return
        self._report("repair", step, "type", "`type` is now `kind` of `tool`", "")
        of_step = {*Fields.of(Step).by_name, *Step.older, "sink", "save", "case", "vars"}
        of_tool = {*Fields.of(KINDS.get(kind, Task)).by_name, *Task.older, "task"}
        tool = self._edit.map()
        self._edit.put(tool, "kind", kind, (step, "type"))
        for name in [name for name in step if name in of_tool - of_step]:
            self._edit.move(step, name, tool, name)
        self._edit.replace(step, "type", tool)
        self._edit.rename(step, "type", "tool")

    def _pipe(self, step: Box) -> None:
        if isinstance(step.get("pipe"), list) and "tool" not in step:
            self._rename(step, "pipe", "tool")

    def _loop(self, step: Box) -> None:
        if not isinstance(loop := step.get("loop"), MutableMapping):
            return
        for old, new in (("collection", "in"), ("element", "iterator")):
            if old in loop and new not in loop:
                self._rename(loop, old, new)
        for name in [name for name in ("mode", "max_in_flight") if name in loop]:
            if loop.get("spec") is None:
                self._edit.put(loop, "spec", self._edit.map(), (loop, name))
            if isinstance(spec := loop["spec"], MutableMapping) and name not in spec:
                self._report("repair", loop, name, f"`{name}` is now `spec.{name}`", "")
                self._edit.move(loop, name, spec, name)

    def _vars(self, box: Box) -> None:
        if not isinstance(values := box.get("vars"), MutableMapping):
            return
        scoped = {name: f"ctx.{name.removeprefix('ctx.')}" for name in values}
        if len({*scoped.values()}) == len(scoped):
            self._join_vars(box, "set", scoped)

    def _join_vars(self, box: Box, new: str, names: Mapping[str, str]) -> None:
        """Give `vars` its new name, or put its values (under new names) beside those there."""
        values, target = box["vars"], box.get(new, {})
        if not isinstance(target, MutableMapping):
            return
        scope = "ctx." if new == "set" else ""
        if {*names.values()} & {name if "." in name else scope + name for name in target}:
            return
        if new in box:
            self._report("repair", box, "vars", f"`vars` is now `{new}`", "")
            for name in names:
                self._edit.move(values, name, target, names[name])
            self._edit.drop(box, "vars")
            return
        for name in names:
            if names[name] != name:
                self._edit.rename(values, name, names[name])
        self._rename(box, "vars", new)

    def _rules(self, box: Box) -> None:
        spec = box.get("spec")
        policy = spec.get("policy") if isinstance(spec, MutableMapping) else None
        if not isinstance(policy, MutableMapping):
            return
        admit = policy.get("admit")
        inner = admit.get("rules") if isinstance(admit, MutableMapping) else None
        for rules in (policy.get("rules"), inner):
            for rule in rules if isinstance(rules, list) else ():
                if isinstance(rule, MutableMapping) and "expr" in rule and "when" not in rule:
                    self._rename(rule, "expr", "when")

    # ------------------------------------------------------------------ sinks

    def _sinks(self, step: Box) -> None:
        """A tool that only wrote the result becomes a task of the pipeline."""
        tool = step.get("tool")
        if isinstance(tool, list):
            for index in range(len(tool) - 1, -1, -1):
                if isinstance(tool[index], MutableMapping):
                    self._sink(_inner(tool[index]), tool, index + 1)
            self._sink(step, tool, len(tool))
        elif isinstance(tool, MutableMapping) and (_writer(tool) or _writer(step)):
            if tool.get("kind") == "task_sequence" or _has_rules(step):
                return
            tasks = self._edit.seq()
            if "name" not in tool:
                self._edit.put(tool, "name", "main", (step, "tool"))
            self._edit.append(tasks, tool, (step, "tool"))
            self._sink(tool, tasks, 1)
            self._sink(step, tasks, len(tasks))
            self._edit.replace(step, "tool", tasks)

    def _sink(self, box: Box, tasks: MutableSequence[Any], index: int) -> None:
        while (found := _writer(box)) is not None:
            name, task = found
            self._report("repair", box, name, f"`{name}` is now a task of its own", "")
            taken = {_name_of(item) for item in tasks}
            if "name" not in task:
                self._edit.put(task, "name", _free(name, taken), (box, name))
            self._edit.insert(tasks, index, task, (box, name))
            self._edit.drop(box, name)
            self._sink(task, tasks, index + 1)
            index += 1

    # ------------------------------------------------------------------ case

    def _case(self, step: Box, steps: MutableSequence[Any]) -> None:
        """Each branch becomes an arc; a tool inside it, a step between."""
        branches = step.get("case")
        if not isinstance(branches, list) or not _takes_arcs(step):
            return
        plans = [plan for branch in branches if (plan := _plan(branch)) is not None]
        names = {item.get("step") for item in steps if isinstance(item, MutableMapping)}
        ends = any(plan.is_only_set for plan in plans)
        if len(plans) < len(branches) or (ends and _END in names):
            return
        self._report("repair", step, "case", "`case` is now arcs of `next`", "")
        arcs = self._edit.seq()
        added: list[Box] = []
        for number, plan in enumerate(plans, 1):
            name = _free(f"{step.get('step')}_case_{number}", names)
            arc = self._direct(plan) if plan.is_direct else self._between(plan, name, added)
            if "when" in plan.branch:
                self._edit.move(plan.branch, "when", arc, "when")
            self._edit.append(arcs, arc, (branches, number - 1))
        self._join(step, arcs)
        place = next(index for index, item in enumerate(steps) if item is step)
        for offset, new in enumerate(added, 1):
            self._edit.insert(steps, place + offset, new, (step, "next"))
        for new in added:
            self._step(new, steps)

    def _direct(self, plan: _Plan) -> Box:
        """The arc of a branch that only routes."""
        like = plan.parts.get("next") or (plan.branch, next(iter(plan.branch)))
        target = plan.targets[0] if plan.targets else _END
        arc: Any = target
        if isinstance(target, str):
            arc = self._edit.map()
            self._edit.put(arc, "step", target, like)
        for name in ("set", "set_ctx"):
            if name in plan.parts:
                self._edit.move(*plan.parts[name], arc, name)
        return arc  # type: ignore[no-any-return] # a map of the document

    def _between(self, plan: _Plan, name: str, added: list[Box]) -> Box:
        """A step that does the work of a branch, and the arc that enters it."""
        like = plan.parts.get("tool") or plan.parts["next"]
        new, arc = self._edit.map(), self._edit.map()
        self._edit.put(new, "step", name, like)
        self._edit.put(arc, "step", name, like)
        for part in ("set", "set_ctx"):
            if part in plan.parts:
                self._edit.move(*plan.parts[part], new if "tool" in plan.parts else arc, part)
        if len(plan.targets) > 1 and not any(_has_condition(item) for item in plan.targets):
            spec = self._edit.map()
            self._edit.put(spec, "next_mode", "inclusive", like)
            self._edit.put(new, "spec", spec, like)
        for part in ("tool", "next"):
            if part in plan.parts:
                self._edit.move(*plan.parts[part], new, part)
        added.append(new)
        return arc

    def _join(self, step: Box, arcs: MutableSequence[Any]) -> None:
        """Put the arcs of `case` before those that the step already has."""
        router = step.get("next")
        if isinstance(router, MutableMapping) and "arcs" in router:
            for index, arc in enumerate(arcs):
                self._edit.insert(router["arcs"], index, arc, (step, "case"))
            self._edit.drop(step, "case")
            return
        for item in _targets(router):
            arc = item
            if isinstance(item, str):
                arc = self._edit.map()
                self._edit.put(arc, "step", item, (step, "next"))
            self._edit.append(arcs, arc, (step, "next"))
        if "next" in step:
            self._edit.drop(step, "next")
        router = self._edit.map()
        self._edit.put(router, "arcs", arcs, (step, "case"))
        self._edit.replace(step, "case", router)
        self._edit.rename(step, "case", "next")


@dataclass(frozen=True, slots=True)
class _Plan:
    """A branch of `case` whose parts all have a place in the new form."""

    branch: Box
    parts: dict[str, tuple[Box, str]]
    targets: list[Any]

    @property
    def is_direct(self) -> bool:
        """Whether one arc says it all."""
        if "tool" in self.parts or len(self.targets) > 1:
            return False
        target = self.targets[0] if self.targets else None
        own = {*target} if isinstance(target, MutableMapping) else set()
        return not own & {"when", "cond"} and not (own & _WRITES and {*self.parts} & _WRITES)

    @property
    def is_only_set(self) -> bool:
        """Whether the branch ends here."""
        return "tool" not in self.parts and not self.targets


def _plan(branch: object) -> _Plan | None:
    """What a branch consists of; None when a part of it has no equal."""
    if not isinstance(branch, MutableMapping) or not {*branch} <= {"when", "then", "else"}:
        return None
    body = branch.get("then", branch.get("else"))
    if isinstance(body, MutableMapping) and {*body} == {"then"}:
        body = body["then"]
    parts: dict[str, tuple[Box, str]] = {}
    for item in body if isinstance(body, list) else [body]:
        if not isinstance(item, MutableMapping) or not {*item} <= _BRANCH_KEYS - {*parts}:
            return None
        parts |= {name: (item, name) for name in item}
    box, name = parts.get("next", ({}, ""))
    targets = _targets(box.get(name))
    if not parts or any(not isinstance(item, str) and "step" not in item for item in targets):
        return None
    return _Plan(branch, parts, targets)


def _targets(value: object) -> list[Any]:
    """The targets of an older `next`: names and maps."""
    items = value if isinstance(value, list) else [] if value is None else [value]
    return [item if isinstance(item, (str, MutableMapping)) else {} for item in items]


def _takes_arcs(step: Box) -> bool:
    """Whether arcs may be put before the step's own without a change of meaning."""
    spec, value = step.get("spec"), step.get("next")
    if isinstance(spec, MutableMapping) and spec.get("next_mode") == "inclusive":
        return False
    if isinstance(value, MutableMapping) and "arcs" in value:
        inner = value.get("spec")
        mode = inner.get("mode") if isinstance(inner, MutableMapping) else None
        return mode != "inclusive" and isinstance(value["arcs"], list)
    targets = _targets(value)
    names = [item for item in targets if isinstance(item, str)]
    return all(isinstance(item, str) or "step" in item for item in targets) and not (
        len(names) > 1 and len(names) == len(targets)
    )


def _has_condition(target: object) -> bool:
    return isinstance(target, MutableMapping) and bool({"when", "cond"} & {*target})


def _has_rules(step: Box) -> bool:
    spec = step.get("spec")
    policy = spec.get("policy") if isinstance(spec, MutableMapping) else None
    return isinstance(policy, MutableMapping) and "rules" in policy


def _writer(box: Box) -> tuple[str, Box] | None:
    """The tool inside `sink` or `save`, if there is one."""
    for name in _SINKS:
        inner = box.get(name)
        if isinstance(inner, MutableMapping) and {*inner} == {"tool"}:
            inner = inner["tool"]
        if isinstance(inner, MutableMapping) and "kind" in inner:
            return name, inner
    return None


def _tasks(step: Box) -> list[Box]:
    tool = step.get("tool")
    tasks = tool if isinstance(tool, list) else [tool]
    return [_inner(task) for task in tasks if isinstance(task, MutableMapping)]


def _inner(task: Box) -> Box:
    """The task itself, also when it is written as `{name: task}`."""
    if len(task) == 1 and "kind" not in task:
        (inner,) = task.values()
        return inner if isinstance(inner, MutableMapping) else task
    return task


def _name_of(task: object) -> object:
    if not isinstance(task, MutableMapping):
        return None
    return next(iter(task)) if _inner(task) is not task else task.get("name")


def _free(name: str, taken: AbstractSet[object]) -> str:
    """A name that nothing has yet."""
    number = 1
    found = name
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found
