"""Starting, reading and steering runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.executions import Control, Dedup, Execute, Finalize, Fork, Rerun
from noetl.ids import parse
from noetl.server.errors import Unacceptable
from noetl.server.routes.exchange import json, known, number, read, route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_PAGE: Final = 100
_MOST: Final = 1_000
_MOST_KEY: Final = 200
_KEY_WINDOW_S: Final = 86_400


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    run = "/api/executions/{execution_id}"
    return [
        route(plane, "POST", "/api/execute", _execute),
        route(plane, "POST", "/api/run/playbook", _execute),
        route(plane, "GET", run, _execution),
        route(plane, "GET", f"{run}/events", _events),
        route(plane, "GET", f"{run}/why", _why),
        route(plane, "GET", f"{run}/logs", _logs),
        route(plane, "GET", f"{run}/steps/{{step}}/result", _step_result),
        route(plane, "POST", f"{run}/cancel", _cancel),
        route(plane, "POST", f"{run}/pause", _pause),
        route(plane, "POST", f"{run}/resume", _resume),
        route(plane, "POST", f"{run}/finalize", _finalize),
        route(plane, "POST", f"{run}/rerun", _rerun),
        route(plane, "POST", f"{run}/fork", _fork),
    ]


def _id(request: Request) -> str:
    return parse(request.path_params["execution_id"])


async def _execute(plane: Plane, request: Request) -> Response:
    body = await read(request, Execute)
    key = request.headers.get("idempotency-key")
    if key is not None and body.dedup is None:
        if not 1 <= len(key) <= _MOST_KEY:
            raise Unacceptable(f"`Idempotency-Key` has 1..{_MOST_KEY} characters")
        dedup = Dedup(key=f"idempotency:{key}", window_secs=_KEY_WINDOW_S)
        body = msgspec.structs.replace(body, dedup=dedup)
    return json(await plane.runs.execute(body))


async def _execution(plane: Plane, request: Request) -> Response:
    return json(await plane.details.execution(_id(request)))


async def _events(plane: Plane, request: Request) -> Response:
    known(request, "after", "limit")
    after = number(request, "after", 0, 1 << 62)
    limit = max(1, number(request, "limit", _PAGE, _MOST))
    return json(await plane.details.events(_id(request), after, limit))


async def _why(plane: Plane, request: Request) -> Response:
    return json(await plane.details.why(_id(request)))


async def _logs(plane: Plane, request: Request) -> Response:
    known(request, "step")
    execution_id = _id(request)
    await plane.details.row(execution_id)
    step = request.query_params.get("step")
    lines = await plane.parts.store.output.read(execution_id, step=step)
    return json({"items": lines, "next_cursor": None})


async def _step_result(plane: Plane, request: Request) -> Response:
    return json(await plane.details.step_result(_id(request), request.path_params["step"]))


async def _cancel(plane: Plane, request: Request) -> Response:
    return json(await plane.controls.cancel(_id(request), await read(request, Control)))


async def _pause(plane: Plane, request: Request) -> Response:
    return json(await plane.controls.pause(_id(request), await read(request, Control)))


async def _resume(plane: Plane, request: Request) -> Response:
    return json(await plane.controls.resume(_id(request), await read(request, Control)))


async def _finalize(plane: Plane, request: Request) -> Response:
    return json(await plane.controls.finalize(_id(request), await read(request, Finalize)))


async def _rerun(plane: Plane, request: Request) -> Response:
    return json(await plane.repeats.rerun(_id(request), await read(request, Rerun)))


async def _fork(plane: Plane, request: Request) -> Response:
    return json(await plane.repeats.fork(_id(request), await read(request, Fork)))
