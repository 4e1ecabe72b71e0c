"""Brings a Playbook's tree to its one normal form where no warning is due.

Resolves workbook calls, flattens `task_sequence`, names unnamed tasks and moves keys that have two
homes to one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.dsl.shape import Fields, nearest
from noetl.dsl.tasks import KINDS
from noetl.dsl.tasks.task import Task, TaskSpec
from noetl.dsl.yaml import MOST_NODES, Map, Place, Seq, copy

if TYPE_CHECKING:
    from collections.abc import MutableMapping, MutableSequence

    from noetl.dsl.shape.reader import Reader

_TO_STEP = frozenset({"input", "set", "output"})
_MERGED = frozenset({"input", "set"})
_STAYS = frozenset({"kind", "tasks", "name", "desc"})


class TreeEditor:
    """Changes a parsed tree and keeps the position of whatever it moves."""

    def rename(self, box: MutableMapping[str, Any], old: str, new: str) -> None:
        """Give a key another name; its place in the map is kept."""
        items = list(box.items())
        marks = _marks(box, old)
        box.clear()
        for name, value in items:
            box[new if name == old else name] = value
        if isinstance(box, Map) and marks is not None:
            box.at[new] = marks

    def move(
        self, box: MutableMapping[str, Any], name: str, target: MutableMapping[str, Any], new: str
    ) -> None:
        """Take a key out of one map and put it into another."""
        self.put(target, new, box[name], (box, name))
        del box[name]

    def put(
        self,
        target: MutableMapping[str, Any],
        name: str,
        value: Any,  # noqa: ANN401 - any YAML value
        like: tuple[Any, Any],
        *,
        of_key: bool = False,
    ) -> None:
        """Write a key that stands for the value (or the key itself) at `like`."""
        target[name] = value
        marks = _marks(*like)
        if marks is not None and of_key:
            marks = (marks[0], marks[1], marks[0], marks[1])
        if isinstance(target, Map) and marks is not None:
            target.at[name] = marks

    def replace(self, box: Any, name: Any, value: Any) -> None:  # noqa: ANN401 - any YAML value
        """Change a value in place."""
        box[name] = value

    def drop(self, box: MutableMapping[str, Any], name: str) -> None:
        """Remove a key."""
        del box[name]

    def map(self) -> Map:
        """A new, empty map."""
        return Map()

    def seq(self) -> Seq:
        """A new, empty list."""
        return Seq()

    def append(self, items: MutableSequence[Any], value: Any, like: tuple[Any, Any]) -> None:  # noqa: ANN401 - any YAML value
        """Add an item that stands for the value at `like`."""
        items.append(value)
        marks = _marks(*like)
        if isinstance(items, Seq) and marks is not None:
            items.at.append(marks)


def _marks(box: Any, name: Any) -> Any:  # noqa: ANN401 - any YAML container
    if isinstance(box, Map):
        return box.at.get(name)
    if isinstance(box, Seq) and name < len(box.at):
        return box.at[name]
    return None


def _size(value: object) -> int:
    """How many nodes a value has."""
    if isinstance(value, dict):
        return 1 + sum(1 + _size(item) for item in value.values())
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


class Normaliser:
    """Rewrites one Playbook tree; remembers which workbook tasks are used."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._edit = TreeEditor()
        self._book: dict[str, Map] = {}
        self._sizes: dict[str, int] = {}
        self._copied = 0
        self.used: set[str] = set()

    def playbook(self, root: Map) -> None:
        """Bring the tree to its normal form."""
        self._read_workbook(root)
        steps = root.get("workflow")
        if not isinstance(steps, Seq):
            return
        place = Place(root, "workflow", None)
        for index, step in enumerate(steps):
            if isinstance(step, Map):
                self._step(step, Place(steps, index, place))

    def _read_workbook(self, root: Map) -> None:
        book = root.get("workbook")
        if not isinstance(book, Seq):
            return
        place = Place(root, "workbook", None)
        for index, entry in enumerate(book):
            if not isinstance(entry, Map) or not isinstance(tool := entry.get("tool"), Map):
                continue
            where = Place(entry, "tool", Place(book, index, place))
            if tool.get("kind") in ("workbook", "task_sequence"):
                message = "a workbook task is one plain tool"
                self._reader.report("DSL053", message, Place(tool, "kind", where))
                self._edit.replace(tool, "kind", "noop")
            self._homes(tool, where)
            if isinstance(name := entry.get("name"), str):
                self._book.setdefault(name, tool)

    def _step(self, step: Map, place: Place) -> None:
        if "output_select" in step:
            self._into_output(step)
        tool = step.get("tool")
        if isinstance(tool, Map) and tool.get("kind") == "task_sequence":
            tool = self._flatten(step, tool, Place(step, "tool", place))
        where = Place(step, "tool", place)
        if isinstance(tool, Map):
            step["tool"] = self._task(tool, where, named=False)
        elif isinstance(tool, Seq):
            for index, task in enumerate(tool):
                if not isinstance(task, Map):
                    continue
                if task.get("kind") == "task_sequence":
                    here = Place(task, "kind", Place(tool, index, where))
                    self._reader.report("DSL050", "pipelines do not nest", here,
                                        hint="write its tasks in this list")  # fmt: skip
                    self._edit.replace(task, "kind", "noop")
                    task.pop("tasks", None)
                task = self._task(task, Place(tool, index, where), named=True)  # noqa: PLW2901 - replaced in the list below
                if "name" not in task:
                    self._edit.put(task, "name", f"task_{index}", (task, "kind"))
                tool[index] = task

    def _flatten(self, step: Map, tool: Map, place: Place) -> Any:  # noqa: ANN401 - any YAML value
        tasks = tool.get("tasks")
        if not isinstance(tasks, list):
            self._reader.report("DSL051", "`task_sequence` needs `tasks`", place, into=True)
            tasks = Seq()
        self._homes(tool, place)
        for name in tool:
            if name not in _STAYS:
                self._lift(step, tool, name, Place(tool, name, place))
        step["tool"] = tasks
        return tasks

    def _lift(self, step: Map, tool: Map, name: str, where: Place) -> None:
        """What is said of a whole sequence is said of its step, where a step can say it."""
        known = Fields.of(Task)
        meant = known.by_name[name][0] if name in known.by_name else name
        first = known.present(tool, name) if name in known.by_name else name
        if first is not None and first != name:
            self._twice(name, first, where)
        elif meant in _TO_STEP or name.startswith("x-"):
            self._give(tool, name, step, meant, where)
        elif meant == "timeout":
            self._give(tool, name, self._spec_of(step, where), meant, where)
        elif meant == "spec":
            self._lift_spec(step, tool[name], where)
        else:
            hint = nearest(name, ["tasks", *sorted({*known.by_name} - {"kind", "auth"})])
            hint = f"write `{name}` on each task" if meant == "auth" else hint
            self._unknown(name, where, hint)

    def _lift_spec(self, step: Map, spec: Any, where: Place) -> None:  # noqa: ANN401 - any YAML value
        if not isinstance(spec, Map):
            self._reader.wrong_type(where, spec, "a map")
            return
        known = list(Fields.of(TaskSpec).by_name)
        for name in spec:
            inner = Place(spec, name, where)
            if name == "idempotent" or name.startswith("x-"):
                self._give(spec, name, self._spec_of(step, inner), name, inner)
            else:
                hint = f"write `spec.{name}` on each task" if name in known else ""
                self._unknown(name, inner, hint or nearest(name, known))

    def _spec_of(self, step: Map, like: Place) -> Any:  # noqa: ANN401 - any YAML value
        if step.get("spec") is None:
            self._edit.put(step, "spec", Map(), (like.container, like.key))
        return step["spec"]

    def _give(self, box: Map, name: str, target: Any, new: str, where: Place) -> None:  # noqa: ANN401 - any YAML value
        """Move a value to the step; a task's own input wins, all else may be said only once."""
        if not isinstance(target, Map):
            return  # reported where the step is read
        value, other = box[name], target.get(new)
        if other is None:
            self._edit.put(target, new, value, (box, name))
        elif new in _MERGED and isinstance(value, Map) and isinstance(other, Map):
            for key in value:
                if new == "input" or key not in other:
                    self._edit.put(other, key, value[key], (value, key))
                else:
                    self._clash(key, Place(value, key, where), "DSL039")
        elif not new.startswith("x-"):
            self._clash(new, where, "DSL033" if new == "output" else "DSL039")

    def _clash(self, name: str, where: Place, code: str) -> None:
        message = f"`{name}` stands on the step and on its tool"
        self._reader.report(code, message, where, on_key=True, hint="keep one of them")

    def _twice(self, name: str, other: str, where: Place) -> None:
        message = f"`{name}` and `{other}` say the same"
        self._reader.report("DSL039", message, where, on_key=True, hint="keep one of them")

    def _unknown(self, name: str, where: Place, hint: str) -> None:
        self._reader.report("DSL030", f"unknown key `{name}`", where, on_key=True, hint=hint)

    def _task(self, task: Map, place: Place, *, named: bool) -> Map:
        self._homes(task, place)
        if task.get("kind") != "workbook":
            return task
        wanted_key = "task" if "task" in task else "name"
        wanted = task.get(wanted_key)
        entry = self._book.get(wanted) if isinstance(wanted, str) else None
        if entry is None:
            self._missing(task, wanted_key, wanted, place)
            return self._stand_in(task, named=named)
        self.used.add(str(wanted))
        if not self._has_room(str(wanted), entry):
            message = f"more than {MOST_NODES} nodes after the workbook is resolved"
            self._reader.report("DSL011", message, Place(task, wanted_key, place))
            return self._stand_in(task, named=named)
        return self._call(task, entry, named=named)

    def _has_room(self, name: str, entry: Map) -> bool:
        """Whether one more copy of a workbook task stays within the nodes of a document."""
        if name not in self._sizes:
            self._sizes[name] = _size(entry)
        self._copied += self._sizes[name]
        return self._copied <= MOST_NODES

    def _missing(self, task: Map, name: str, wanted: object, place: Place) -> None:
        if wanted is None:
            self._reader.report("DSL051", "`workbook` needs `name`", place, into=True)
            return
        message = f"the workbook has no task `{str(wanted)[:80]}`"
        hint = nearest(str(wanted), list(self._book))
        self._reader.report("DSL018", message, Place(task, name, place), hint=hint)

    def _stand_in(self, task: Map, *, named: bool) -> Map:
        blank = Map()
        self._edit.put(blank, "kind", "noop", (task, "kind"))
        if named and isinstance(task.get("name"), str):
            self._edit.put(blank, "name", task["name"], (task, "name"))
        return blank

    def _call(self, task: Map, entry: Map, *, named: bool) -> Map:
        merged: Any = copy(entry)
        merged.pop("name", None)
        known = Fields.of(KINDS.get(str(entry.get("kind")), Task))
        for name in list(task):
            if name in {"kind", "task"} or (name == "name" and not named):
                continue
            attribute = known.by_name[name][0] if name in known.by_name else ""
            spellings = known.names(name) if attribute else (name,)
            own = next((key for key in spellings if key in merged), name)
            both = isinstance(merged.get(own), Map) and isinstance(task[name], Map)
            if attribute == "input" and both:
                for inner in task[name]:
                    self._edit.put(merged[own], inner, task[name][inner], (task[name], inner))
                continue
            merged.pop(own, None)
            self._edit.put(merged, name, task[name], (task, name))
        return merged  # type: ignore[no-any-return] # the copy of a map is a map

    def _homes(self, task: Map, place: Place) -> None:
        """Keys that have two accepted homes go to one."""
        spec = task.get("spec")
        if isinstance(spec, Map):
            for name in [name for name in ("timeout", "timeout_s") if name in spec]:
                own = Fields.of(Task).present(task, "timeout")
                if own is None:
                    self._edit.move(spec, name, task, "timeout")
                else:
                    where = Place(spec, name, Place(task, "spec", place))
                    self._twice(f"spec.{name}", own, where)
                    self._edit.drop(spec, name)
            if not spec:
                self._edit.drop(task, "spec")
        if "output_select" in task:
            self._into_output(task)

    def _into_output(self, box: Map) -> None:
        if box.get("output") is None:
            self._edit.put(box, "output", Map(), (box, "output_select"))
        output = box["output"]
        if isinstance(output, Map) and not {"select", "output_select"} & output.keys():
            self._edit.move(box, "output_select", output, "select")
