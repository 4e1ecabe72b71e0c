"""Documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from noetl.api.catalog import CatalogQuery, Register, Resource
from noetl.server.access import caller_of
from noetl.server.cursor import Cursors
from noetl.server.errors import Forbidden, Unacceptable
from noetl.server.routes.exchange import boolean, json, known, number, read, route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_QUERY = (
    "resource_type", "path_prefix", "q", "include_archived", "versions", "content", "limit",
    "cursor",
)  # fmt: skip


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    return [
        route(plane, "POST", "/api/catalog/register", _register, "catalog:write"),
        route(plane, "GET", "/api/catalog/resource", _resource, "catalog:read"),
        route(plane, "POST", "/api/catalog/resource", _resource_posted, "catalog:read"),
        route(plane, "GET", "/api/catalog", _list, "catalog:read"),
        route(plane, "POST", "/api/catalog/list", _list_posted, "catalog:read"),
    ]


async def _register(plane: Plane, request: Request) -> Response:
    body = await read(request, Register)
    made = await plane.documents.register(body, caller_of(request))
    return json(made, 201 if made.changed else 200, {"ETag": f'"{made.digest}"'})


async def _resource(plane: Plane, request: Request) -> Response:
    known(request, "catalog_id", "path", "version")
    asked = request.query_params
    return await _found(
        plane,
        request,
        Resource(
            catalog_id=asked.get("catalog_id"),
            path=asked.get("path"),
            version=asked.get("version"),
        ),
    )


async def _resource_posted(plane: Plane, request: Request) -> Response:
    return await _found(plane, request, await read(request, Resource))


async def _found(plane: Plane, request: Request, wanted: Resource) -> Response:
    if wanted.catalog_id is None:
        _may_look_around(request)
    found = await plane.documents.find(wanted)
    return json(found, headers={"ETag": f'"{found.digest}"'})


def _may_look_around(request: Request) -> None:
    """Refuse those who may read only what they were told of."""
    caller = caller_of(request)
    if caller.mark("catalog:read") == "o":
        raise Forbidden(
            f"the account {caller.account!r} reads documents by `catalog_id` only",
            hint="the id stands in the command",
        )


async def _list(plane: Plane, request: Request) -> Response:
    _may_look_around(request)
    known(request, *_QUERY)
    asked = request.query_params
    versions = asked.get("versions", "latest")
    if versions not in {"latest", "all"}:
        raise Unacceptable("`versions` is neither `latest` nor `all`")
    query = CatalogQuery(
        resource_type=asked.get("resource_type"),
        path_prefix=asked.get("path_prefix"),
        q=asked.get("q"),
        include_archived=boolean(request, "include_archived"),
        versions=cast("Any", versions),
        content=boolean(request, "content"),
        limit=number(request, "limit", 50, 200, 1),
        cursor=asked.get("cursor"),
    )
    return await _listed(plane, query)


async def _list_posted(plane: Plane, request: Request) -> Response:
    _may_look_around(request)
    return await _listed(plane, await read(request, CatalogQuery))


async def _listed(plane: Plane, query: CatalogQuery) -> Response:
    cursors = Cursors(plane.parts.cursor_key, plane.parts.clock)
    return json(await plane.documents.listed(query, cursors))
