"""Shapes of lists, of maps with free keys, and of keys that take several YAML types."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

from noetl.dsl.shape.base import Definitions, JsonSchema, Model, Of, Shape, blank_of
from noetl.dsl.shape.leaves import NAME, NAME_PATTERN
from noetl.dsl.shape.reader import WORKER, Reader, type_name
from noetl.dsl.yaml import Place

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class ListOf:
    """A list of one shape; `lone` also accepts a single item in place of a list of one."""

    item: Shape
    least: int = 0
    most: int = 0
    lone: bool = False
    code: str = "DSL014"
    blank: ClassVar[tuple[()]] = ()

    def read(self, value: Any, place: Place, reader: Reader) -> tuple[Any, ...]:  # noqa: ANN401 - see Shape
        """Read every item."""
        if not isinstance(value, list):
            if self.lone:
                return (self.item.read(value, place, reader),)
            reader.wrong_type(place, value, "a list")
            return ()
        if len(value) < self.least:
            reader.report("DSL039", f"at least {self.least} item is needed", place)
        if self.most and len(value) > self.most:
            reader.report(self.code, f"{len(value)} items; {self.most} is the most", place)
            return ()
        read = self.item.read
        return tuple(read(item, Place(value, i, place), reader) for i, item in enumerate(value))

    def schema(self, definitions: Definitions) -> JsonSchema:
        """An array."""
        item = self.item.schema(definitions)
        plain: JsonSchema = {"type": "array", "items": item}
        if self.least:
            plain["minItems"] = self.least
        if self.most:
            plain["maxItems"] = self.most
        return {"anyOf": [plain, item]} if self.lone else plain

    def words(self) -> str:
        """A list of what."""
        return f"list of {self.item.words()}"


@dataclasses.dataclass(frozen=True, slots=True)
class MapOf:
    """A map with names of the author's own and values of one shape."""

    item: Shape
    named: bool = False

    def read(self, value: Any, place: Place, reader: Reader) -> dict[str, Any]:  # noqa: ANN401 - see Shape
        """Read every value."""
        if not isinstance(value, dict):
            reader.wrong_type(place, value, "a map")
            return {}
        result: dict[str, Any] = {}
        for name, item in value.items():
            where = Place(value, name, place)
            if self.named and not NAME.fullmatch(name):
                reader.report("DSL015", f"`{name[:80]}` is not a name", where, on_key=True)
            result[name] = self.item.read(item, where, reader)
        return result

    def schema(self, definitions: Definitions) -> JsonSchema:
        """An object with free keys."""
        plain: JsonSchema = {
            "type": "object",
            "additionalProperties": self.item.schema(definitions),
        }
        if self.named:
            plain["propertyNames"] = {"pattern": NAME_PATTERN}
        return plain

    def words(self) -> str:
        """A map of what."""
        return f"map of {self.item.words()}"


class Written:
    """A map with the keys of a model, kept as its author wrote it: null is not absent there."""

    role: ClassVar[str] = WORKER

    def __init__(self, cls: type[Model]) -> None:
        self.documented = cls

    def read(self, value: Any, place: Place, reader: Reader) -> dict[str, Any]:  # noqa: ANN401 - see Shape
        """Check the keys and their values; the map itself is the value."""
        Of(self.documented).read(value, place, reader)
        return value if isinstance(value, dict) else {}

    def schema(self, definitions: Definitions) -> JsonSchema:
        """The model's definition."""
        return Of(self.documented).schema(definitions)

    def words(self) -> str:
        """A map, by the name of its model."""
        return Of(self.documented).words()


@dataclasses.dataclass(frozen=True, slots=True)
class ByType:
    """Different shapes for different YAML types of one key, told apart without guessing."""

    text: Shape | None = None
    number: Shape | None = None
    flag: Shape | None = None
    list: Shape | None = None
    map: Shape | None = None

    @property
    def blank(self) -> Any:  # noqa: ANN401 - see Shape
        """The blank of the richest alternative."""
        shapes = (self.map, self.list, self.text, self.number, self.flag)
        return blank_of(next(shape for shape in shapes if shape is not None))

    def read(self, value: Any, place: Place, reader: Reader) -> Any:  # noqa: ANN401 - see Shape
        """Read by the type that was written."""
        shape = getattr(self, _TYPE_KEYS.get(type_name(value), ""), None)
        if shape is None:
            reader.wrong_type(place, value, self.words())
            return self.blank
        return shape.read(value, place, reader)

    def _shapes(self) -> Sequence[Shape]:
        shapes = (self.text, self.number, self.flag, self.list, self.map)
        return [shape for shape in shapes if shape is not None]

    def schema(self, definitions: Definitions) -> JsonSchema:
        """Any of the alternatives."""
        return {"anyOf": [shape.schema(definitions) for shape in self._shapes()]}

    def words(self) -> str:
        """The alternatives."""
        return ", or ".join(dict.fromkeys(shape.words() for shape in self._shapes()))


_TYPE_KEYS = {
    "text": "text",
    "a number": "number",
    "true or false": "flag",
    "a list": "list",
    "a map": "map",
}


class WhenThen:
    """A rule: `{when, then}` or `{then}`, and last `{else: {then: ...}}` or `{else: ...}`."""

    def __init__(self, rule: type[Model], body: type[Model]) -> None:
        self.documented = rule
        self._body = body

    def parts(self, value: Any, place: Place, reader: Reader) -> tuple[Any, Any]:  # noqa: ANN401 - see Shape
        """The condition (none: always) and what follows, whatever the form."""
        if not isinstance(value, dict) or "else" not in value:
            rule = Of(self.documented).read(value, place, reader)
            return rule.when, rule.then
        _alone(value, "else", place, reader)
        body, where = value["else"], Place(value, "else", place)
        if isinstance(body, dict) and "then" in body:
            _alone(body, "then", where, reader)
            body, where = body["then"], Place(body, "then", where)
        return None, Of(self._body).read(body, where, reader)

    def schema(self, definitions: Definitions) -> JsonSchema:
        """Any of the forms."""
        body = Of(self._body).schema(definitions)
        last = _closed("else", {"anyOf": [_closed("then", body), body]})
        return {"anyOf": [Of(self.documented).schema(definitions), last]}

    def words(self) -> str:
        """A rule."""
        return "rule {when, then} or {else}"


def _alone(value: dict[str, Any], name: str, place: Place, reader: Reader) -> None:
    """Refuse every key beside one."""
    for other in value:
        if other != name and not other.startswith("x-"):
            message = f"unknown key `{other[:80]}` beside `{name}`"
            reader.report("DSL030", message, Place(value, other, place), on_key=True)


def _closed(name: str, schema: JsonSchema) -> JsonSchema:
    """A map with one key."""
    return {
        "type": "object",
        "required": [name],
        "properties": {name: schema},
        "patternProperties": {"^x-": True},
        "additionalProperties": False,
    }
