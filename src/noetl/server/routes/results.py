"""Values over the inline limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from noetl.api.results import Stored
from noetl.ids import parse
from noetl.server.errors import BadReference
from noetl.server.routes.exchange import JSON, MOST_RESULT_BYTES, body_of, json, known, route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from noetl.server.plane import Plane


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    return [
        route(plane, "PUT", "/api/result/{execution_id}", _put),
        route(plane, "GET", "/api/result", _get),
    ]


async def _put(plane: Plane, request: Request) -> Response:
    known(request, "step")
    execution_id = parse(request.path_params["execution_id"])
    await plane.details.row(execution_id)
    step = request.query_params.get("step", "playbook")
    data = await body_of(request, MOST_RESULT_BYTES)
    media_type = request.headers.get("content-type", JSON)
    reference = await plane.large.stored(execution_id, step, data, media_type)
    return json(Stored(reference=msgspec.to_builtins(reference)), 201)


async def _get(plane: Plane, request: Request) -> Response:
    known(request, "ref")
    ref = request.query_params.get("ref")
    if not ref:
        raise BadReference("name `ref`")
    data = await plane.large.read(ref)
    return Response(data, media_type=await plane.large.media_type(ref))
