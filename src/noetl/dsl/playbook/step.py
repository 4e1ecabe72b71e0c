"""One node of the workflow."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.playbook.loop import Loop
from noetl.dsl.playbook.pipeline import ToolsShape
from noetl.dsl.playbook.policy import StepSpec
from noetl.dsl.playbook.routing import Arc, Next, NextShape
from noetl.dsl.shape import (
    AsPublished,
    Constraint,
    Data,
    Fields,
    Model,
    Name,
    Of,
    OlderKey,
    Text,
    key,
    model,
)
from noetl.dsl.shape.reader import SERVER, STEP_SET, WORKER
from noetl.dsl.shape.units import Condition, SetMap
from noetl.dsl.tasks import KINDS
from noetl.dsl.tasks.task import Output, SelectShape, Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.shape.reader import Reader
    from noetl.dsl.yaml import Place


_FREE = Data(only="map")
_HAS_RULES = {
    "required": ["spec"],
    "properties": {
        "spec": {"required": ["policy"], "properties": {"policy": {"required": ["rules"]}}}
    },
}
_ONE_INPUT = (("not", {"required": ["args", "input"]}),)
_RULES_OF_ONE_TOOL = (
    ("if", {"properties": {"tool": {"type": "array"}}}),
    ("then", {"not": _HAS_RULES}),
)


@model
class Step(Model):
    """One node of the workflow."""

    constraints: ClassVar[tuple[Constraint, ...]] = (
        AsPublished("older.upgrade: rules move to a single tool", _RULES_OF_ONE_TOOL),
        AsPublished(
            "older.upgrade: `args` is `input`", (("not", {"required": ["args", "input"]}),)
        ),
    )
    older: ClassVar[Mapping[str, OlderKey]] = {
        "when": OlderKey(Condition(SERVER), "`spec.policy.admit`"),
        "args": OlderKey(_FREE, "`input`"),
        "set_ctx": OlderKey(_FREE, "`set` with `ctx.`"),
        "set_iter": OlderKey(_FREE, "`set` with `iter.`"),
        "output_select": OlderKey(SelectShape(), "`output.select`"),
    }

    name: str = key(Name(), "unique name", name="step")
    desc: str | None = key(Text(), "what it is for", default=None)
    tools: tuple[Task, ...] = key(
        ToolsShape(), "one tool or a list; absent: a routing step", name="tool", default=()
    )
    is_pipeline: bool = dataclasses.field(default=False)
    input: Mapping[str, Any] = key(
        Data(WORKER, only="map"), "bound for every task; a task's own key wins",
        default_factory=dict,
    )  # fmt: skip
    loop: Loop | None = key(Of(Loop), "repeat over items", default=None)
    set: Mapping[str, Any] = key(
        SetMap(STEP_SET), "written after success, once per visit", default_factory=dict
    )
    next: Next | None = key(NextShape(), "the ways out; absent: the branch ends", default=None)
    output: Output | None = key(Of(Output), "how the result is stored", default=None)
    spec: StepSpec | None = key(Of(StepSpec), "limits, pool, admission", default=None)

    @property
    def arcs(self) -> tuple[Arc, ...]:
        """The ways out, in order."""
        return self.next.arcs if self.next else ()

    @property
    def failure_mode(self) -> str:
        """What a failed iteration does to the others."""
        policy = self.spec.policy if self.spec else None
        return policy.failure.mode if policy and policy.failure else "fail_fast"


class StepShape(Of):
    """Reads a step and tells a misplaced tool key from an unknown one."""

    def __init__(self) -> None:
        super().__init__(Step)

    def read(self, value: Any, place: Place, reader: Reader) -> Step:  # noqa: ANN401 - see Shape
        """Read a step; whether its tool is a list is part of its meaning."""
        step: Step = super().read(value, place, reader)
        if isinstance(value, dict) and isinstance(value.get("tool"), list):
            return dataclasses.replace(step, is_pipeline=True)
        return step

    def _unknown(
        self, name: str, item: object, where: Place, reader: Reader, extra: dict[str, Any]
    ) -> bool:
        step = where.container if isinstance(where.container, dict) else {}
        tool = step.get("tool", step)
        kind = tool.get("kind") if isinstance(tool, dict) else None
        cls = KINDS.get(kind) if isinstance(kind, str) else None
        if cls is not None and name in Fields.of(cls).by_name:
            message = f"`{name}` belongs to the tool `{kind}`"
            reader.report("DSL052", message, where, on_key=True, hint="move it into `tool`")
            return True
        return super()._unknown(name, item, where, reader, extra)
