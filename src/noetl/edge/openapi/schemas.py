"""Models of the API as JSON Schema: one component each, under the name of its class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.executions import Execute, Executes
from noetl.api.problems import Problem
from noetl.api.shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterable

Json = dict[str, Any]

PLACE: Final = "#/components/schemas/"
OF_SERVER: Final = (Execute, *SHAPES)
"""What the server reads by itself and answers besides."""


class Schemas:
    """The schema of every model that routes declare."""

    def __init__(self, models: Iterable[Any], always: Iterable[Any] = ()) -> None:
        told = (one for one in models if one is not bytes)
        wanted = list(dict.fromkeys((Problem, *always, *told)))
        made, components = msgspec.json.schema_components(wanted, ref_template=PLACE + "{name}")
        self._of: dict[Any, Json] = dict(zip(wanted, made, strict=True))
        self.components: dict[str, Json] = {
            name: _plain(schema) for name, schema in sorted(components.items())
        }
        for model in _structs(wanted):
            _complete(model, self.components.get(model.__name__))
        if Executes.__name__ in self.components:
            items = self.components[Executes.__name__]["properties"]["executions"]
            items["items"] = {"$ref": PLACE + Execute.__name__}

    def of(self, model: Any) -> Json:  # noqa: ANN401 - any type that msgspec reads
        """The schema of a model; none: any JSON."""
        if isinstance(model, tuple):
            return {"anyOf": [self.of(one) for one in model]}
        return {} if model is None else _plain(self._of[model])


def _complete(model: type[msgspec.Struct], schema: Json | None) -> None:
    """Say that an answer always has all of its members, unless it leaves out its defaults."""
    config = model.__struct_config__
    if schema is not None and not (config.omit_defaults or config.forbid_unknown_fields):
        schema["required"] = [
            field.encode_name
            for field in msgspec.structs.fields(model)
            if field.default is not msgspec.UNSET
        ]


def _structs(models: Iterable[Any]) -> set[type[msgspec.Struct]]:
    """Every struct that models are made of."""
    found: set[type[msgspec.Struct]] = set()
    waiting = [msgspec.inspect.type_info(model) for model in models]
    while waiting:
        info = waiting.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls in found:
                continue
            found.add(info.cls)
            waiting += [field.type for field in info.fields]
        waiting += [
            part
            for name in ("item_type", "key_type", "value_type", "type")
            if isinstance(part := getattr(info, name, None), msgspec.inspect.Type)
        ]
        waiting += getattr(info, "types", ())
        waiting += getattr(info, "item_types", ())
    return found


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON
    """A schema with tuples as lists, texts in one line, and no type beside a reference."""
    if isinstance(value, dict):
        made = {key: _plain(item) for key, item in value.items()}
        if "$ref" in made:
            made.pop("type", None)
        if isinstance(made.get("description"), str):
            made["description"] = " ".join(made["description"].split())
        if made.get("title") and "properties" in made:
            del made["title"]
        if made.get("required") == []:
            del made["required"]
        return made
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
