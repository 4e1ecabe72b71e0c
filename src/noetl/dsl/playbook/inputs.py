"""Models of `inputs`: the typed schema of what a caller may pass, and its JSON Schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.dsl.shape import (
    ByType,
    Data,
    Definitions,
    Flag,
    JsonSchema,
    ListOf,
    MapOf,
    Model,
    Number,
    Of,
    Text,
    choice,
    key,
    model,
    whole,
)
from noetl.dsl.shape.reader import value_at
from noetl.dsl.shape.units import Scalar

if TYPE_CHECKING:
    from collections.abc import Mapping

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_COPIED = {
    "enum": "enum",
    "min": "minimum",
    "max": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
    "format": "format",
    "title": "title",
    "description": "description",
}


class _Self:
    """The shape of a nested input field; named late because fields nest."""

    def read(self, value: Any, place: Any, reader: Any) -> Any:  # noqa: ANN401 - see Shape
        return Of(InputField).read(value, place, reader)

    def schema(self, definitions: Definitions) -> JsonSchema:
        return Of(InputField).schema(definitions)

    def words(self) -> str:
        return "input field"


@model
class InputField(Model):
    """One value that a caller may pass."""

    type: str = key(
        choice("string", "integer", "number", "boolean", "object", "array", "any"),
        "type of the value",
        default="any",
    )
    required: bool = key(Flag(), "must be passed", default=False)
    default: Any = key(Data(), "value when it is not passed", default=None)
    enum: tuple[Any, ...] = key(ListOf(Data()), "allowed values", default=())
    min: float | None = key(Number(), "smallest number", default=None)
    max: float | None = key(Number(), "largest number", default=None)
    min_length: int | None = key(whole(0), "shortest text or list", default=None)
    max_length: int | None = key(whole(0), "longest text or list", default=None)
    pattern: str | None = key(Text(), "regular expression of the text", default=None)
    format: str | None = key(Text(), "format such as `date-time`", default=None)
    items: Any = key(_Self(), "shape of the items of an array", default=None)
    properties: Mapping[str, Any] = key(
        MapOf(_Self()), "shape of an object's keys", default_factory=dict
    )
    secret: bool = key(Flag(), "stored redacted and sealed", default=False)
    credential: str | None = key(Text(), "glob of credential aliases", default=None)
    title: str | None = key(Text(), "label in forms", default=None)
    description: str | None = key(Text(), "help in forms", default=None)
    order: int | None = key(whole(), "place in forms", default=None)
    ui: Any = key(ByType(map=Data(only="map"), text=Scalar()), "form hints", default=None)

    def accepts(self, value: object) -> bool:
        """Whether a value has the type, and is one of the values, that this input takes."""
        return _has_type(value, self.type) and (not self.enum or value in self.enum)

    @property
    def has_default(self) -> bool:
        """Whether a default was written (null counts)."""
        here = value_at(self.place)
        return isinstance(here, dict) and "default" in here


def _has_type(value: object, word: str) -> bool:
    if isinstance(value, bool):
        return word in {"boolean", "any"}
    types: dict[str, tuple[type, ...]] = {
        "string": (str,),
        "integer": (int,),
        "number": (int, float),
        "boolean": (),
        "object": (dict,),
        "array": (list,),
    }
    return word == "any" or isinstance(value, types[word])


def input_schema(fields: Mapping[str, InputField], *, strict: bool = False) -> JsonSchema:
    """The JSON Schema that a start request is checked against."""
    schema: JsonSchema = {"$schema": _DIALECT, "type": "object"} | _object(fields)
    if strict:
        schema["additionalProperties"] = False
    return schema


def _object(fields: Mapping[str, InputField]) -> JsonSchema:
    body: JsonSchema = {"properties": {name: _field(item) for name, item in fields.items()}}
    required = [name for name, item in fields.items() if item.required]
    if required:
        body["required"] = required
    return body


def _field(field: InputField) -> JsonSchema:
    schema: JsonSchema = {}
    if field.type != "any":
        schema["type"] = field.type
    for attr, name in _COPIED.items():
        value = getattr(field, attr)
        if value is None or value == ():
            continue
        of_items = field.type == "array" and name.endswith("Length")
        word = name.replace("Length", "Items") if of_items else name
        schema[word] = list(value) if isinstance(value, tuple) else value
    if field.has_default:
        schema["default"] = field.default
    if field.secret:
        schema["writeOnly"] = True
    if field.items is not None:
        schema["items"] = _field(field.items)
    if field.properties:
        schema |= _object(field.properties)
    return schema
