"""Documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.catalog import Register
from noetl.server.routes.exchange import json, known, read, route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    return [
        route(plane, "POST", "/api/catalog/register", _register),
        route(plane, "GET", "/api/catalog/resource", _resource),
    ]


async def _register(plane: Plane, request: Request) -> Response:
    made = await plane.documents.register(await read(request, Register))
    return json(made, 201 if made.changed else 200)


async def _resource(plane: Plane, request: Request) -> Response:
    known(request, "catalog_id", "path", "version")
    asked = request.query_params
    found = await plane.documents.find(
        asked.get("catalog_id"), asked.get("path"), asked.get("version")
    )
    return json(found)
