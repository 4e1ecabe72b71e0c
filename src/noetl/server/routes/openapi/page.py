"""The API document as one page of HTML that needs nothing from anywhere else."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from noetl.edge.openapi import PLACE
from noetl.edge.problems import MEDIA_TYPE as PROBLEM

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

_HERE: Final = files(__package__ or "noetl.server.routes.openapi")
_STYLE: Final = (_HERE / "page.css").read_text(encoding="utf-8")
_SCRIPT: Final = (_HERE / "page.js").read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


POLICY: Final = (
    f"default-src 'none'; style-src {_hash(_STYLE)}; script-src {_hash(_SCRIPT)}; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What the page may do: nothing but its own style and script."""


def page_of(document: Json) -> str:
    """The page of a document."""
    info = document["info"]
    groups = "".join(_groups(document))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body>"
        f"<header><h1>{escape(info['title'])} API <small>{escape(info['version'])}</small></h1>"
        f"<p>{_text(info['description'])}</p>"
        '<input id="search" type="search" placeholder="Search path, permission, code" '
        'aria-label="Search" autofocus><output id="count"></output>'
        '<p><a href="/api/openapi.json">openapi.json</a></p></header>'
        f"<main>{groups}</main><section><h2>Models</h2>{''.join(_models(document))}</section>"
        f"<script>{_SCRIPT}</script></body></html>"
    )


def _groups(document: Json) -> Iterator[str]:
    for tag in (one["name"] for one in document["tags"]):
        found = [
            _operation(method, path, one)
            for path, item in document["paths"].items()
            for method, one in item.items()
            if tag in one["tags"]
        ]
        yield f'<section id="{tag}"><h2>{escape(tag)}</h2>{"".join(found)}</section>'


def _operation(method: str, path: str, one: Json) -> str:
    audit = one.get("x-noetl-audit")
    about = [f"<p>Permission <code>{escape(one['x-noetl-permission'])}</code>"]
    about += [f", kept in the audit as <code>{escape(audit)}</code>" if audit else "", ".</p>"]
    return (
        f'<details id="{one["operationId"]}"><summary><b class="{method}">{method.upper()}</b> '
        f"<code>{escape(path)}</code> <span>{_text(one['summary'])}</span></summary>"
        f"{''.join(about)}{_parameters(one['parameters'])}{_body(one)}{_answers(one)}</details>"
    )


def _parameters(parameters: list[Json]) -> str:
    if not parameters:
        return ""
    rows = "".join(
        f"<tr><td><code>{escape(one['name'])}</code></td><td>{one['in']}</td>"
        f"<td>{kind_of(one['schema'])}</td><td>{_text(_said(one))}</td></tr>"
        for one in parameters
    )
    return f"<table><tr><th>name<th>in<th>type<th>meaning</tr>{rows}</table>"


def _said(parameter: Json) -> str:
    return str(parameter.get("description") or parameter["schema"].get("description", ""))


def _body(one: Json) -> str:
    content = one.get("requestBody", {}).get("content", {})
    kinds = ", ".join(
        f"<code>{escape(name)}</code> {kind_of(made['schema'])}" for name, made in content.items()
    )
    return f"<p>Body: {kinds}</p>" if kinds else ""


def _answers(one: Json) -> str:
    good, bad = [], []
    for status, answer in one["responses"].items():
        kinds = [
            f"<code>{escape(name)}</code> {kind_of(made.get('schema', {}))}"
            for name, made in answer.get("content", {}).items()
            if name != PROBLEM
        ]
        if kinds or PROBLEM not in answer.get("content", {}):
            good.append(f"{status} {' or '.join(kinds) or escape(answer['description'])}")
        else:
            bad.append(f"{status} {answer['description'].replace('`', '')}")
    return f"<p>Answers: {'; '.join(good)}</p><p class=dim>Problems: {'; '.join(bad)}</p>"


def _models(document: Json) -> Iterator[str]:
    for name, schema in document["components"]["schemas"].items():
        needed = schema.get("required", ())
        rows = "".join(
            f"<tr><td><code>{escape(field)}</code>{'' if field in needed else '?'}</td>"
            f"<td>{kind_of(made)}</td></tr>"
            for field, made in schema.get("properties", {}).items()
        )
        said = _text(schema.get("description", ""))
        yield (
            f'<details id="model-{name}"><summary><code>{name}</code> <span>{said}</span>'
            f"</summary><table>{rows}</table></details>"
        )


def kind_of(schema: Json) -> str:
    """The type of a value in words, with a link to its model."""
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(PLACE))
        return f'<a href="#model-{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(kind_of, schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(f"<code>{escape(str(word))}</code>" for word in schema["enum"])
    kind = schema.get("type", "any")
    if kind == "array" and "prefixItems" in schema:
        return f"list of {', '.join(map(kind_of, schema['prefixItems']))}"
    if kind == "array":
        return f"list of {kind_of(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"map of {kind_of(schema['additionalProperties'])}"
    bounds = [str(schema[name]) for name in ("minimum", "maximum") if name in schema]
    return f"{kind} {'..'.join(bounds)}".strip()


def _text(text: str) -> str:
    """A sentence with its names in the type of code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))
