"""The language as JSON Schema: kinds of documents and kinds of tools."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.catalog import DocumentKind, DocumentKinds, ToolKind, ToolKinds
from noetl.dsl import schema
from noetl.dsl.explain import explain
from noetl.dsl.shape import nearest
from noetl.dsl.tasks.about import about
from noetl.edge.declared import UNCHANGED, Declared
from noetl.edge.errors import NotFound
from noetl.server.access.permissions import PUBLIC
from noetl.server.routes.etags import tagged_bytes
from noetl.server.routes.exchange import route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_encode: Final = msgspec.json.Encoder().encode


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    return [
        route(plane, "GET", "/api/schema", _kinds, PUBLIC, Declared(
            about="The kinds of documents.", answer=DocumentKinds, also=UNCHANGED)),
        route(plane, "GET", "/api/schema/{kind}", _kind, PUBLIC, Declared(
            about="The JSON Schema of a kind of document.", answer=dict[str, Any],
            also=UNCHANGED, codes=("not_found",))),
        route(plane, "GET", "/api/tools", _tools, "catalog:read", Declared(
            about="The kinds of tools.", answer=ToolKinds, also=UNCHANGED)),
        route(plane, "GET", "/api/tools/{kind}", _tool, "catalog:read", Declared(
            about="A kind of tool, with its JSON Schema.", answer=ToolKind, also=UNCHANGED,
            codes=("not_found",))),
    ]  # fmt: skip


async def _kinds(plane: Plane, request: Request) -> Response:
    del plane
    return _answer(request, _all_kinds())


async def _kind(plane: Plane, request: Request) -> Response:
    del plane
    kind = request.path_params["kind"]
    known = {name.lower(): name for name in schema.kinds()}
    found = known.get(kind.lower())
    if found is None:
        raise NotFound(f"there is no kind `{kind[:80]}`", hint=nearest(kind, list(known.values())))
    return _answer(request, _schema(found))


async def _tools(plane: Plane, request: Request) -> Response:
    del plane
    return _answer(request, _all_tools())


async def _tool(plane: Plane, request: Request) -> Response:
    del plane
    kind = request.path_params["kind"]
    if kind not in schema.tool_kinds():
        hint = nearest(kind, list(schema.tool_kinds()))
        raise NotFound(f"there is no kind of tool `{kind[:80]}`", hint=hint)
    return _answer(request, _tool_schema(kind))


def _answer(request: Request, body: bytes) -> Response:
    return tagged_bytes(request, body, body)


# What the language says is the same for as long as the process lives.


@lru_cache(maxsize=1)
def _all_kinds() -> bytes:
    items = tuple(
        DocumentKind(kind=kind, description=_about(kind), url=f"/api/schema/{kind}")
        for kind in schema.kinds()
    )
    return _encode(DocumentKinds(items=items))


@lru_cache(maxsize=32)
def _schema(kind: str) -> bytes:
    return _encode(schema.schema(kind))


@lru_cache(maxsize=1)
def _all_tools() -> bytes:
    known = schema.tool_kinds().items()
    items = (ToolKind(kind=k, description=d, extra=about(k).extra) for k, d in known)
    return _encode(ToolKinds(items=tuple(items)))


@lru_cache(maxsize=64)
def _tool_schema(kind: str) -> bytes:
    told = about(kind)
    made = ToolKind(
        kind=kind,
        description=schema.tool_kinds()[kind],
        extra=told.extra,
        schema=schema.tool_schema(kind),
        returns=dict(told.returns),
        errors=told.every_error,
    )
    return _encode(made)


def _about(kind: str) -> str:
    found = explain(kind)
    return "" if found is None else found.title
