"""Models of `metadata`, shared by every kind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.shape import (
    Definitions,
    Flag,
    JsonSchema,
    ListOf,
    MapOf,
    Model,
    Text,
    key,
    model,
)
from noetl.dsl.shape.units import Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.dsl.shape.reader import Reader
    from noetl.dsl.yaml import Place

MOST_PATH = 255
_PATH = re.compile(r"[a-zA-Z0-9_.-]+(/[a-zA-Z0-9_.-]+)*")
PATH_PATTERN = r"^/?(?!\.{1,2}(/|$))[a-zA-Z0-9_.-]+(/(?!\.{1,2}(/|$))[a-zA-Z0-9_.-]+)*$"


def is_path(text: str) -> bool:
    """Whether a text is a catalog path."""
    return (
        len(text) <= MOST_PATH
        and _PATH.fullmatch(text) is not None
        and not {".", ".."} & set(text.split("/"))
    )


class PathShape:
    """A catalog path."""

    blank: ClassVar[str] = ""

    def read(self, value: Any, place: Place, reader: Reader) -> str:  # noqa: ANN401 - see Shape
        """Read a path."""
        if not isinstance(value, str):
            reader.wrong_type(place, value, "text")
            return ""
        if not is_path(value):
            reader.report("DSL016", f"`{value[:80]}` is not a catalog path", place)
        return value

    def schema(self, definitions: Definitions) -> JsonSchema:
        """A string with the path pattern."""
        del definitions
        lengths = [{"maxLength": MOST_PATH}, {"pattern": "^/", "maxLength": MOST_PATH + 1}]
        return {"type": "string", "pattern": PATH_PATTERN, "anyOf": lengths}

    def words(self) -> str:
        """A path."""
        return "catalog path such as `etl/orders`"


@model
class Metadata(Model):
    """Name, path and labels of a document; further keys are kept."""

    keeps_unknown: ClassVar[bool] = True

    name: str = key(Text(), "name of the document")
    path: str | None = key(PathShape(), "catalog identity (default: the name)", default=None)
    version: Any = key(Scalar(), "informative; the catalog numbers versions", default=None)
    description: str | None = key(Text(), "Markdown text", default=None)
    labels: Mapping[str, Any] = key(MapOf(Scalar()), "labels", default_factory=dict)
    tags: tuple[str, ...] = key(ListOf(Text(), lone=True), "tags", default=())
    owner: str | None = key(Text(), "who answers for it", default=None)
    exposed_in_ui: bool = key(Flag(), "shown in the web UI", default=True)
    exposes_as_mcp: bool = key(Flag(), "offered as an MCP tool", default=True)
    agent: bool = key(Flag(), "an agent", default=False)
    capabilities: tuple[str, ...] = key(ListOf(Text(), lone=True), "what it can do", default=())
