"""Requests of an operation: schemathesis makes some from its schemas, and each is varied."""

from __future__ import annotations

import json
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import HypothesisException
from schemathesis import GenerationMode

from noetl.server.routes.openapi import server_document
from scripts.interfaces import served

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from tests.fuzz.api.stage import Stage

JSON = "application/json"
STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 2**63, "", "0x10", "a\u0000b", "\ud83d\ude00", "../..", "x" * 5000,
    "{{7*7}}", "' or 1=1 --", [], [1], {}, {"a": {"b": None}}, "2026-13-01T00:00:00Z",
)  # fmt: skip
UNKNOWN = "zz_unknown"
WAITS = "wait_seconds"
WAITS_MS = "wait_ms"
SPARSE = 0.3


@lru_cache(maxsize=1)
def document() -> dict[str, Any]:
    """The API document of a server."""
    return server_document(served())  # type: ignore[arg-type]  # one of ours


@lru_cache(maxsize=1)
def operations() -> dict[str, tuple[str, str]]:
    """Method and path of every operation, by its id."""
    return {
        one["operationId"]: (method.upper(), path)
        for path, item in document()["paths"].items()
        for method, one in item.items()
    }


def operation(name: str) -> dict[str, Any]:
    """What the document says of an operation."""
    method, path = operations()[name]
    found: dict[str, Any] = document()["paths"][path][method.lower()]
    return found


@dataclass(frozen=True)
class Request:
    """One request before it is written."""

    names: dict[str, Any]
    query: dict[str, Any]
    body: Any
    """JSON, bytes as they are, or none."""
    bearer: str = "admin"

    def target(self, path: str) -> str:
        """Path and query, encoded."""
        for name, value in self.names.items():
            path = path.replace(f"{{{name}}}", quote(_text(value), safe="/", errors="replace"))
        pairs = [
            (name, _text(item))
            for name, value in self.query.items()
            for item in (value if isinstance(value, list) else [value])
        ]
        return f"{path}?{urlencode(pairs, errors='replace')}" if pairs else path

    def data(self) -> bytes:
        """The body as bytes."""
        if self.body is None or isinstance(self.body, bytes):
            return self.body or b""
        return json.dumps(self.body).encode("utf-8", "replace")


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value)


@lru_cache(maxsize=1)
def _schema() -> Any:
    """The document as schemathesis reads it: bodies that are bytes are made here."""
    made = deepcopy(document())
    for item in made["paths"].values():
        for one in item.values():
            content = one.get("requestBody", {}).get("content", {})
            content.pop("*/*", None)
            if "requestBody" in one and not content:
                del one["requestBody"]
    return schemathesis.openapi.from_dict(made)


def generated(name: str, count: int, number: int) -> list[Request]:
    """Requests as schemathesis makes them: two of three valid, as far as there are others."""
    method, path = operations()[name]
    found = _schema()[path][method]
    made: list[Request] = []

    def collect(mode: GenerationMode, most: int) -> None:
        @seed(number)
        @settings(
            max_examples=most, database=None, deadline=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(found.as_strategy(generation_mode=mode))
        def keep(case: Any) -> None:
            body = case.body if case.media_type and not _is_unset(case.body) else None
            names = dict(case.path_parameters or {})
            made.append(Request(names, dict(case.query or {}), body))

        keep()

    collect(GenerationMode.POSITIVE, count - count // 3)
    with suppress(HypothesisException):  # nothing that the operation takes can be wrong
        collect(GenerationMode.NEGATIVE, count // 3)
    return made


def _is_unset(value: Any) -> bool:
    return type(value).__name__ == "NotSet"


def varied(
    name: str, made: list[Request], stage: Stage, chance: random.Random
) -> Iterator[Request]:
    """Variations without end: as they are, with names that exist, with strange values."""
    takes_bytes = "*/*" in operation(name).get("requestBody", {}).get("content", {})
    while True:
        for request in made:
            one = request
            if takes_bytes and chance.random() < 0.7:
                one = replace(one, body=chance.randbytes(chance.randrange(200)))
            yield replace(one, bearer="")
            yield one
            yield _known(_sparse(name, one, chance), stage, chance)
            yield _known(_strange(one, chance), stage, chance)
            yield _known(_unknown(one, chance), stage, chance)


def _sparse(name: str, request: Request, chance: random.Random) -> Request:
    """The request with few of the members that may be left out: they often exclude each other."""
    if not isinstance(request.body, dict):
        return request
    content = operation(name).get("requestBody", {}).get("content", {})
    model = content.get(JSON, {}).get("schema", {}).get("$ref", "").rpartition("/")[2]
    needed = document()["components"]["schemas"].get(model, {}).get("required", ())
    kept = {
        key: value
        for key, value in request.body.items()
        if key in needed or chance.random() < SPARSE
    }
    query = {key: value for key, value in request.query.items() if chance.random() < 2 * SPARSE}
    return replace(request, body=kept, query=query)


def _known(request: Request, stage: Stage, chance: random.Random) -> Request:
    """The request with names of things that are there."""

    def named(name: str, value: Any) -> Any:
        found = stage.names.get(name)
        return chance.choice(found) if found and chance.random() < 0.9 else value

    names = {name: named(name, value) for name, value in request.names.items()}
    query = {name: named(name, value) for name, value in request.query.items()}
    body = request.body
    if isinstance(body, dict):
        body = {name: named(name, value) for name, value in body.items()}
    return replace(request, names=names, query=query, body=body)


def _strange(request: Request, chance: random.Random) -> Request:
    """The request with one value that hardly anybody sends."""
    value = chance.choice(STRANGE)
    places = [place for place in (request.query, request.body) if isinstance(place, dict) and place]
    if not places:
        word = _text(value).replace("/", "_") or "-"  # a slash would be another path
        return replace(request, names=dict.fromkeys(request.names, word))
    place = chance.choice(places)
    changed = {**place, chance.choice(list(place)): value}
    return replace(
        request,
        query=changed if place is request.query else request.query,
        body=changed if place is request.body else request.body,
    )


def _unknown(request: Request, chance: random.Random) -> Request:
    """The request with a name that nobody knows."""
    if isinstance(request.body, dict) and chance.random() < 0.5:
        return replace(request, body={**request.body, UNKNOWN: 1})
    return replace(request, query={**request.query, UNKNOWN: "1"})
