"""The ways out of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from noetl.dsl.shape import (
    Data,
    Definitions,
    JsonSchema,
    ListOf,
    Model,
    Name,
    Of,
    OlderKey,
    choice,
    key,
    model,
)
from noetl.dsl.shape.reader import ARC
from noetl.dsl.shape.units import Condition, SetMap

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ARCS = 200
_FREE = Data(only="map")


@model
class Arc(Model):
    """One way out of a step."""

    older: ClassVar[Mapping[str, OlderKey]] = {
        "args": OlderKey(_FREE, "`set` with `ctx.`"),
        "cond": OlderKey(Condition(ARC), "`when`"),
        "set_ctx": OlderKey(_FREE, "`set` with `ctx.`"),
        "set_iter": OlderKey(_FREE, "`set` with `iter.`"),
    }

    step: str = key(Name(), "target step, or `end`")
    when: bool | str | None = key(Condition(ARC), "taken when true; absent: always", default=None)
    on: Literal["success", "error", "any"] | None = key(
        choice("success", "error", "any"),
        "after which outcome (any if `when` reads the outcome, else success)",
        default=None,
    )
    set: Mapping[str, Any] = key(SetMap(ARC), "written when taken", default_factory=dict)


@model
class NextSpec(Model):
    """How arcs are chosen."""

    mode: Literal["exclusive", "inclusive"] = key(
        choice("exclusive", "inclusive"), "first true arc, or every true arc", default="exclusive"
    )
    on_no_match: Literal["complete", "quiet", "fail"] | None = key(
        choice("complete", "quiet", "fail"), "when no arc fires", default=None
    )


@model
class Next(Model):
    """The ways out of a step."""

    spec: NextSpec | None = key(Of(NextSpec), "how arcs are chosen", default=None)
    arcs: tuple[Arc, ...] = key(ListOf(Of(Arc), most=MOST_ARCS), "the arcs in order")

    @property
    def mode(self) -> str:
        """First true arc, or every true arc."""
        return self.spec.mode if self.spec else "exclusive"


class NextShape(Of):
    """The router form; the schema also knows the older forms."""

    def __init__(self) -> None:
        super().__init__(Next)

    def schema(self, definitions: Definitions) -> JsonSchema:
        """The router form, or an older list or name."""
        arc = Of(Arc).schema(definitions)
        name = Name().schema(definitions)
        older = {"description": "Older form; write `next.arcs`.", "deprecated": True}
        return {
            "anyOf": [
                super().schema(definitions),
                name | older,
                older | {"type": "array", "items": {"anyOf": [name, arc]}},
                arc | older,
            ]
        }
