"""Workers make themselves known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.runtime import Joined, Left, WorkerEntry
from noetl.server.execute import DEFAULT_POOL
from noetl.server.routes.exchange import json, read, route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    return [
        route(plane, "POST", "/api/worker/pool/register", _join),
        route(plane, "POST", "/api/worker/pool/deregister", _leave),
    ]


async def _join(plane: Plane, request: Request) -> Response:
    body = await read(request, WorkerEntry)
    pool = body.labels.get("pool_name") or body.labels.get("pool") or DEFAULT_POOL
    plane.workers.join(body.name, pool, body.capacity)
    return json(Joined(name=body.name, lease_seconds=plane.parts.lease_s))


async def _leave(plane: Plane, request: Request) -> Response:
    plane.workers.leave((await read(request, Left)).name)
    return json({"status": "ok"})
