"""Claims, beats and releases of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.commands import Claim, Claimer, Heartbeat, Release
from noetl.server.routes.exchange import body_of, json, read, route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane


def routes(plane: Plane) -> list[Route]:
    """Every route of this file; the fixed paths stand before the one with a name in it."""
    return [
        route(plane, "POST", "/api/commands/claim", _claim),
        route(plane, "POST", "/api/commands/heartbeat", _heartbeat),
        route(plane, "POST", "/api/commands/release", _release),
        route(plane, "POST", "/api/commands/{event_id}/claim", _claim_one),
        route(plane, "POST", "/api/callbacks/{key}", _answer),
    ]


async def _claim(plane: Plane, request: Request) -> Response:
    return json(await plane.claims.claim(await read(request, Claim)))


async def _claim_one(plane: Plane, request: Request) -> Response:
    body = await read(request, Claimer)
    return json(await plane.claims.claim_one(request.path_params["event_id"], body.worker_id))


async def _heartbeat(plane: Plane, request: Request) -> Response:
    return json(await plane.claims.heartbeat(await read(request, Heartbeat)))


async def _release(plane: Plane, request: Request) -> Response:
    await plane.claims.release(await read(request, Release))
    return json({"status": "ok"})


async def _answer(plane: Plane, request: Request) -> Response:
    data = await body_of(request)
    return json(await plane.answers.answer(request.path_params["key"], data))
