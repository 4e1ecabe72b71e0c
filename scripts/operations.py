"""Lines of the generated pages about the HTTP APIs, from their API documents themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.edge.openapi import PLACE
from noetl.edge.problems import MEDIA_TYPE as PROBLEM

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

Json = dict[str, Any]

_JSON: Final = "application/json"


def operation_lines(
    document: Json, common: Collection[str], bodies: Mapping[tuple[str, str], str]
) -> Iterator[str]:
    """Every operation by its tag, then every model; codes in `common` are told once for all."""
    yield "Any route may answer " + ", ".join(f"[`{code}`](errors.md#{code})" for code in common)
    yield "where it fits; the codes that a route has besides stand with it."
    yield ""
    tags = [tag["name"] for tag in document["tags"]]
    yield f"Groups: {', '.join(f'[{tag}](#{_slug(tag)})' for tag in tags)}; [models](#models)."
    for tag in tags:
        yield ""
        yield f"## {tag}"
        for path, item in document["paths"].items():
            for method, one in item.items():
                if tag in one["tags"]:
                    yield from _operation(method.upper(), path, one, common, bodies)
    yield ""
    yield "## Models"
    for name, schema in document["components"]["schemas"].items():
        yield from _model(name, schema)
    yield ""


def _slug(tag: str) -> str:
    return tag.replace(".", "")


def _operation(
    method: str,
    path: str,
    one: Json,
    common: Collection[str],
    bodies: Mapping[tuple[str, str], str],
) -> Iterator[str]:
    yield ""
    yield f"### {method} {path}"
    yield ""
    yield f"{one['summary']}."
    told = [f"Permission `{one['x-noetl-permission']}`"]
    if "x-noetl-audit" in one:
        told.append(f"audited as `{one['x-noetl-audit']}`")
    yield f"{', '.join(told)}; operation `{one['operationId']}`."
    content = one.get("requestBody", {}).get("content", {})
    if content:
        kinds = " or ".join(_content(kind, made) for kind, made in content.items())
        most = bodies.get((method, path))
        yield f"Body: {kinds}, at most {most}." if most else f"Body: {kinds}."
    yield f"Answer: {'; '.join(_answers(one))}."
    own = [code for code in _codes(one) if code not in common]
    if own:
        yield f"Codes: {', '.join(f'[`{code}`](errors.md#{code})' for code in own)}."
    query = [parameter for parameter in one["parameters"] if parameter["in"] == "query"]
    if query:
        yield ""
        yield "| query | type | meaning |"
        yield "|---|---|---|"
        for parameter in query:
            needed = ", required" if parameter.get("required") else ""
            kind = _kind(parameter["schema"])
            yield f"| `{parameter['name']}` | {kind}{needed} | {parameter['description']} |"


def _content(kind: str, made: Json) -> str:
    schema = made.get("schema", {})
    return _kind(schema) if kind == _JSON and schema else f"`{kind}`"


def _answers(one: Json) -> Iterator[str]:
    for status, answer in one["responses"].items():
        content = {
            kind: made for kind, made in answer.get("content", {}).items() if kind != PROBLEM
        }
        if content:
            yield f"{status} {' or '.join(_content(kind, made) for kind, made in content.items())}"
        elif PROBLEM not in answer.get("content", {}):
            yield f"{status} without a body"


def _codes(one: Json) -> Iterator[str]:
    for answer in one["responses"].values():
        if PROBLEM in answer.get("content", {}):
            yield from answer["description"].split("`")[1::2]


def _model(name: str, schema: Json) -> Iterator[str]:
    yield ""
    yield f'### <a id="model-{name.lower()}"></a>{name}'
    yield ""
    yield schema.get("description", "")
    fields = schema.get("properties", {})
    if not fields:
        return
    needed = schema.get("required", ())
    yield ""
    yield "| field | type | default |"
    yield "|---|---|---|"
    for field, made in fields.items():
        default = "required" if field in needed else _default(made)
        yield f"| `{field}` | {_kind(made)} | {default} |"


def _default(schema: Json) -> str:
    default = schema.get("default")
    return f"`{default}`" if default not in (None, "", [], {}) else "-"


def _kind(schema: Json) -> str:
    """The type of a value in words, with a link to its model."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(PLACE)
        return f"[{name}](#model-{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    kind = str(schema.get("type", "any"))
    if kind == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(map(_kind, schema['prefixItems']))}]"
        return f"list of {_kind(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map of {_kind(schema['additionalProperties'])}"
    if schema.get("format") == "date-time":
        return "time"
    if "pattern" in schema:
        return "id"
    bounds = [str(schema[name]) for name in ("minimum", "maximum") if name in schema]
    return f"{kind} {'..'.join(bounds)}".strip()
