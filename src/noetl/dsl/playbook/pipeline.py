"""The tools of a step: one task, or a list that runs in order as one command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.shape import (
    AtLeastOne,
    Constraint,
    Definitions,
    Fields,
    JsonSchema,
    ListOf,
    Model,
    Name,
    Of,
    key,
    model,
    nearest,
)
from noetl.dsl.tasks import KINDS, REFUSED_KINDS, Plugin
from noetl.dsl.tasks.task import Task, TaskSpec
from noetl.dsl.yaml import Place

if TYPE_CHECKING:
    from noetl.dsl.shape.reader import Reader


MOST_TASKS = 200


class TaskShape:
    """One task, read by its `kind`."""

    documented: ClassVar[type[Model]] = Task

    @property
    def blank(self) -> Task:
        """A task that does nothing."""
        return Task(kind="noop")

    def read(self, value: Any, place: Place, reader: Reader) -> Task:  # noqa: ANN401 - see Shape
        """Read a task with the model of its kind."""
        if value == "iterator":
            message = "`iterator` is a form of an earlier release"
            reader.report("DSL081", message, place, hint="use `loop` on the step")
            return self.blank
        if not isinstance(value, dict):
            reader.wrong_type(place, value, "a tool: a map with `kind`")
            return self.blank
        kind = value.get("kind")
        if not isinstance(kind, str):
            if "kind" in value:
                reader.wrong_type(Place(value, "kind", place), kind, "text")
            else:
                hint = "add `kind`, for example `kind: python`"
                reader.report("DSL037", "a tool needs `kind`", place, into=True, hint=hint)
            return self.blank
        found = KINDS.get(kind) or (Plugin if kind in reader.plugins else None)
        if found is None:
            self._unknown(kind, Place(value, "kind", place), reader)
            return Task(kind=kind, name=_text(value.get("name")), place=place)
        task: Task = Of(found).read(value, place, reader)
        if found is Plugin and reader.plugins[kind]:
            self._judge(value, place, reader)
        return task

    def _judge(self, value: dict[str, Any], place: Place, reader: Reader) -> None:
        """Report what the plug-in's own schema refuses."""
        from noetl.dsl.conformity import faults  # noqa: PLC0415 - the validator is not small

        for fault in faults(reader.plugins[value["kind"]], value):
            key = fault["pointer"].split("/")[1:2]
            where = Place(value, key[0], place) if key and key[0] in value else place
            reader.report("DSL054", fault["message"], where)

    def _unknown(self, kind: str, place: Place, reader: Reader) -> None:
        known = [*KINDS, *reader.plugins, "workbook"]
        hint = REFUSED_KINDS.get(kind) or (lambda: nearest(kind, known))
        reader.report("DSL050", f"unknown tool kind `{kind[:80]}`", place, hint=hint)

    def schema(self, definitions: Definitions) -> JsonSchema:
        """One alternative per kind, so that editors complete them."""
        return definitions.refer("Tool", lambda: _tool_schema(definitions))

    def words(self) -> str:
        """A tool."""
        return "tool: a map with `kind`"


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _tool_schema(definitions: Definitions) -> JsonSchema:
    kinds = [*KINDS, "workbook", "task_sequence"]
    cases: list[JsonSchema] = [
        {
            "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
            "then": Of(cls).schema(definitions),
        }
        for kind, cls in KINDS.items()
    ]
    cases.append(
        {
            "if": {"properties": {"kind": {"const": "workbook"}}, "required": ["kind"]},
            "then": Of(WorkbookCall).schema(definitions),
        }
    )
    cases.append(
        {
            "if": {"properties": {"kind": {"const": "task_sequence"}}, "required": ["kind"]},
            "then": _sequence_schema(definitions),
        }
    )
    described = [
        {"const": kind, "description": (KINDS[kind].__doc__ or "") if kind in KINDS else kind}
        for kind in kinds
    ]
    return {
        "type": "object",
        "required": ["kind"],
        "properties": {"kind": {"oneOf": described}},
        "allOf": cases,
    }


SEQUENCE_KEYS = ("name", "desc", "input", "set", "output", "timeout")
"""Keys of a task that a `task_sequence` has as well."""


def _sequence_schema(definitions: Definitions) -> JsonSchema:
    """`task_sequence`: a list of tools under `tasks`, and the keys that move to the step."""
    known = Fields.of(Task)
    names = {
        spelling: known.by_name[name][1] for name in SEQUENCE_KEYS for spelling in known.names(name)
    }
    tasks = {"type": "array", "minItems": 1, "items": _item_schema(definitions)}
    properties = {name: item.shape.schema(definitions) for name, item in names.items()}
    limits = Fields.of(TaskSpec)
    lifted = {
        spelling: limits.by_name[spelling][1].shape.schema(definitions)
        for spelling in (*limits.names("timeout"), "idempotent")
    }
    spec = {
        "type": ["object", "null"],
        "properties": lifted,
        "patternProperties": {"^x-": True},
        "additionalProperties": False,
    }
    return {
        "required": ["tasks"],
        "properties": {"kind": True, "tasks": tasks, **properties, "spec": spec},
        "patternProperties": {"^x-": True},
        "additionalProperties": False,
    }


def _item_schema(definitions: Definitions) -> JsonSchema:
    """One task of a list, or the older `{name: tool}`."""
    tool = TaskShape().schema(definitions)
    named = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "deprecated": True,
        "description": "Older form; write `name` beside `kind`.",
        "additionalProperties": tool,
    }
    return {"if": {"type": "object", "required": ["kind"]}, "then": tool, "else": named}


@model
class WorkbookCall(Task):
    """Uses a task of the workbook; replaced by it when the document is read."""

    keeps_unknown: ClassVar[bool] = True
    constraints: ClassVar[tuple[Constraint, ...]] = (AtLeastOne(("name", "task")),)

    task: str | None = key(Name(), "workbook entry, when `name` names the task", default=None)


class ToolsShape:
    """A single tool, or a list of tasks that run in order as one command."""

    documented: ClassVar[type[Model]] = Task
    blank: ClassVar[tuple[()]] = ()

    def read(self, value: Any, place: Place, reader: Reader) -> tuple[Task, ...]:  # noqa: ANN401 - see Shape
        """Read a single tool as a tuple of one; `Step.is_pipeline` tells them apart."""
        if isinstance(value, list):
            if not value:
                reader.report("DSL039", "the pipeline is empty", place)
            return ListOf(TaskShape(), most=MOST_TASKS).read(value, place, reader)
        return (TaskShape().read(value, place, reader),)

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A tool, a list of tools, or the older list of `{name: tool}`."""
        tool = TaskShape().schema(definitions)
        item = _item_schema(definitions)
        many = {"type": "array", "minItems": 1, "maxItems": MOST_TASKS, "items": item}
        return {"if": {"type": "array"}, "then": many, "else": tool}

    def words(self) -> str:
        """A tool or a pipeline."""
        return "one tool, or a list of tasks (a pipeline)"
