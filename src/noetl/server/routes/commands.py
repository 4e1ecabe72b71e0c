"""Claims, beats and releases of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.commands import Claim, Claimer, Heartbeat, HeldOne, Release
from noetl.server.access import caller_of
from noetl.server.routes.exchange import body_of, json, read, route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane


def routes(plane: Plane) -> list[Route]:
    """Every route of this file; the fixed paths stand before the one with a name in it."""
    one = "/api/commands/{event_id}"
    return [
        route(plane, "POST", "/api/commands/claim", _claim, "command:claim"),
        route(plane, "POST", "/api/commands/heartbeat", _heartbeat, "command:claim"),
        route(plane, "POST", "/api/commands/release", _release, "command:claim"),
        route(plane, "GET", one, _command, "command:claim"),
        route(plane, "POST", f"{one}/claim", _claim_one, "command:claim"),
        route(plane, "POST", f"{one}/heartbeat", _heartbeat_one, "command:claim"),
        route(plane, "POST", f"{one}/release", _release_one, "command:claim"),
        route(plane, "POST", "/api/callbacks/{key}", _answer, "public"),
    ]


def _id(request: Request) -> str:
    found: str = request.path_params["event_id"]
    return found


async def _claim(plane: Plane, request: Request) -> Response:
    body = await read(request, Claim)
    clock = plane.parts.clock
    began = clock.monotonic()
    claimed = await plane.claims.claim(body, caller_of(request))
    if body.wait_seconds <= 0:
        plane.metrics.command_claim_duration.observe(clock.monotonic() - began)
    return json(claimed)


async def _command(plane: Plane, request: Request) -> Response:
    return json(await plane.claims.command(_id(request), caller_of(request)))


async def _claim_one(plane: Plane, request: Request) -> Response:
    body = await read(request, Claimer)
    caller = caller_of(request)
    return json(await plane.claims.claim_one(_id(request), body.worker_id, caller))


async def _heartbeat(plane: Plane, request: Request) -> Response:
    return json(await plane.claims.heartbeat(await read(request, Heartbeat)))


async def _heartbeat_one(plane: Plane, request: Request) -> Response:
    body = await read(request, HeldOne)
    return json(await plane.claims.heartbeat_one(_id(request), body, caller_of(request)))


async def _release(plane: Plane, request: Request) -> Response:
    await plane.claims.release(await read(request, Release))
    return json({"status": "ok"})


async def _release_one(plane: Plane, request: Request) -> Response:
    body = await read(request, HeldOne)
    await plane.claims.release_one(_id(request), body, caller_of(request))
    return json({"status": "ok"})


async def _answer(plane: Plane, request: Request) -> Response:
    data = await body_of(request)
    return json(await plane.answers.answer(request.path_params["key"], data))
