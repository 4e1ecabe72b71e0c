"""The whole document: paths, answers, problems, models."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from noetl import __version__
from noetl.api.codes import PROBLEMS
from noetl.edge.declared import PUBLIC
from noetl.edge.openapi.operations import method_of, names_of, operation_ids, plain_path
from noetl.edge.openapi.schemas import PLACE, Schemas
from noetl.edge.problems import MEDIA_TYPE as PROBLEM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from noetl.edge.declared import Declared, Parameter
    from noetl.edge.openapi.operations import Named

    CodesOf = Callable[[Named], Iterable[str]]

Json = dict[str, Any]

JSON: Final = "application/json"
BEARER: Final = "bearer"
_NO_CONTENT: Final = 204
_ID: Final[Json] = {
    "type": "string",
    "pattern": "^[1-9][0-9]{0,18}$",
    "description": "A decimal number in 1..2^63-1.",
}
_IDS: Final = (
    "execution_id", "event_id", "account_id", "token_id", "session_id", "schedule_id",
)  # fmt: skip
_NAME: Final[Json] = {"type": "string", "minLength": 1}
_PATH: Final[Json] = {
    "type": "string",
    "minLength": 1,
    "description": "May hold slashes.",
}
_KINDS: Final[dict[str, Json]] = {
    "text": {"type": "string"},
    "number": {"type": "integer"},
    "flag": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "id": {"type": "string", "pattern": "^[1-9][0-9]{0,18}$"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """What a process says about its routes as a whole."""

    about: str
    codes_of: CodesOf
    """The problems that a route is answered with."""
    always: tuple[Any, ...] = ()
    """Models that are told although no route declares them."""
    url: str = "/"
    """Where the routes are."""
    bare_tag: str = ""
    """The tag of paths outside of `/api`; without one it is their first word."""


def document_of(routes: Sequence[Named], book: Book) -> Json:
    """The OpenAPI document of routes."""
    schemas = Schemas(_models(routes), book.always)
    ids = operation_ids(routes)
    paths: dict[str, Json] = {}
    for route in routes:
        method = method_of(route)
        operation = _operation(route, ids[method, route.path], schemas, book)
        paths.setdefault(plain_path(route), {})[method.lower()] = operation
    tags = sorted({tag for item in paths.values() for one in item.values() for tag in one["tags"]})
    return {
        "openapi": "3.1.0",
        "info": {"title": "NoETL", "version": __version__, "description": book.about},
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "servers": [{"url": book.url}],
        "tags": [{"name": tag} for tag in tags],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {
                BEARER: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token, or the text of a session.",
                }
            },
        },
    }


def _models(routes: Sequence[Named]) -> Iterator[Any]:
    for route in routes:
        declared = route.declared
        for model in (declared.body, declared.answer, *declared.also.values()):
            if model is not None:
                yield from model if isinstance(model, tuple) else (model,)


def _operation(route: Named, operation_id: str, schemas: Schemas, book: Book) -> Json:
    declared = route.declared
    made: Json = {
        "operationId": operation_id,
        "tags": [_tag_of(route, book)],
        "summary": declared.about.rstrip("."),
        "x-noetl-permission": route.permission,
        "parameters": [
            *(_in_path(name, route.path) for name in names_of(route)),
            *map(_in_query, declared.query),
        ],
        "responses": _responses(route, schemas, book),
        "security": [] if route.permission == PUBLIC else [{BEARER: []}],
    }
    if declared.audit is not None:
        made["x-noetl-audit"] = declared.audit
    body = _body(declared, schemas)
    if body is not None:
        made["requestBody"] = body
    return made


def _tag_of(route: Named, book: Book) -> str:
    """The first word of a path."""
    parts = route.path.strip("/").split("/")
    return parts[1].partition(".")[0] if parts[0] == "api" else book.bare_tag or parts[0] or "ui"


def _in_path(name: str, path: str) -> Json:
    schema = _ID if name in _IDS else _PATH if f"{{{name}:path}}" in path else _NAME
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(parameter: Parameter) -> Json:
    schema = dict(_KINDS[parameter.kind])
    if parameter.words:
        schema["enum"] = list(parameter.words)
    if parameter.least is not None:
        schema["minimum"] = parameter.least
    if parameter.most is not None:
        schema["maximum"] = parameter.most
    if parameter.is_repeated:
        schema = {"type": "array", "items": schema}
    made: Json = {
        "name": parameter.name,
        "in": "query",
        "description": parameter.about,
        "schema": schema,
    }
    if parameter.is_required:
        made["required"] = True
    return made


def _body(declared: Declared, schemas: Schemas) -> Json | None:
    content: Json = {}
    if declared.body is not None:
        content[JSON] = {"schema": schemas.of(declared.body)}
    if declared.takes is not None:
        content.setdefault(declared.takes, {"schema": {}})
    if not content:
        return None
    schema = schemas.of(declared.body)
    name = schema.get("$ref", "").removeprefix(PLACE)
    needed = bool(schemas.components.get(name, {}).get("required"))
    return {"required": needed, "content": content}


def _responses(route: Named, schemas: Schemas, book: Book) -> Json:
    """Every status that a caller may see; one may be an answer now and a problem then."""
    made = {str(status): answer for status, answer in _answers(route.declared, schemas)}
    problem = {PROBLEM: {"schema": {"$ref": f"{PLACE}Problem"}}}
    for status, codes in _problems_of(route, book).items():
        told = made.setdefault(str(status), {"description": ""})
        words = ", ".join(f"`{code}`" for code in codes)
        told["description"] = f"{told['description']} or {words}".removeprefix(" or ")
        told["content"] = told.get("content", {}) | problem
    return dict(sorted(made.items()))


def _problems_of(route: Named, book: Book) -> dict[int, list[str]]:
    """Codes of problems by status."""
    found: dict[int, list[str]] = defaultdict(list)
    for code in dict.fromkeys(book.codes_of(route)):
        found[PROBLEMS[code].status].append(code)
    return dict(sorted(found.items()))


def _answers(declared: Declared, schemas: Schemas) -> Iterator[tuple[int, Json]]:
    model, status = declared.answer, declared.status
    yield status, _answer(status, model, declared.media_type, schemas, declared.follow)
    for other, model_of_other in declared.also.items():
        has_body = model_of_other is not None
        kind = declared.media_type if model_of_other is bytes or not has_body else JSON
        made = _answer(other, model_of_other, kind, schemas)
        yield other, made if has_body else {"description": made["description"]}


def _answer(
    status: int,
    model: Any,  # noqa: ANN401 - a type
    media_type: str,
    schemas: Schemas,
    follow: str | None = None,
) -> Json:
    made: Json = {"description": HTTPStatus(status).phrase}
    if status == _NO_CONTENT:
        return made
    if media_type == JSON:
        made["content"] = {JSON: {"schema": schemas.of(model)}}
    else:
        made["content"] = {media_type: {}}
    if follow is not None:
        made["content"][follow] = {}
    return made
