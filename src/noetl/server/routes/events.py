"""Reports of workers, the hot route; single events; lines that tasks wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.events import MOST_LINES, LogBatch, Posted, Reports
from noetl.ids import parse
from noetl.server.access import caller_of
from noetl.server.errors import Unacceptable
from noetl.server.moments import moment_of
from noetl.server.plain import answer_to, id_of_command, single
from noetl.server.routes.exchange import MOST_REPORT_BYTES, json, read, route
from noetl.store.base import Line

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    return [
        route(plane, "POST", "/api/events/batch", _reports, "event:write"),
        route(plane, "POST", "/api/logs/batch", _lines, "event:write"),
        route(plane, "POST", "/api/events", _event, "event:write"),
        route(plane, "GET", "/api/events/{event_id}", _recorded, "execution:read"),
        route(plane, "GET", "/api/events/{event_id}/result", _result, "execution:read"),
    ]


async def _reports(plane: Plane, request: Request) -> Response:
    body = await read(request, Reports, MOST_REPORT_BYTES)
    return json(await plane.intake.report(body, caller_of(request), _size(request)))


def _size(request: Request) -> int:
    """About how many bytes a request holds while it is queued."""
    told = request.headers.get("content-length", "")
    return int(told) if told.isascii() and told.isdigit() else 0


async def _event(plane: Plane, request: Request) -> Response:
    body = await read(request, Posted, MOST_REPORT_BYTES)
    caller = caller_of(request)
    reports = single(body, plane.parts.ids.new(), caller.pool or "")
    return json(answer_to(await plane.intake.report(reports, caller, _size(request))))


async def _recorded(plane: Plane, request: Request) -> Response:
    return json(await plane.history.event(parse(request.path_params["event_id"])))


async def _result(plane: Plane, request: Request) -> Response:
    return json(await plane.history.event_result(parse(request.path_params["event_id"])))


async def _lines(plane: Plane, request: Request) -> Response:
    body = await read(request, LogBatch, MOST_REPORT_BYTES)
    if len(body.entries) > MOST_LINES:
        raise Unacceptable(
            f"{len(body.entries)} lines in one call", code="batch_size_invalid",
            hint=f"at most {MOST_LINES}",
        )  # fmt: skip
    lines = [
        Line(
            execution_id=parse(item.execution_id),
            command_id=id_of_command(item.command_id),
            attempt=item.attempt,
            n=item.n,
            ts=moment_of(item.ts, "ts"),
            text=item.text,
            step=item.step,
            task=item.task,
            stream=item.stream,
            level=item.level,
        )
        for item in body.entries
    ]
    await plane.parts.store.output.add(lines)
    plane.signals.wrote({line.execution_id for line in lines})
    return json({"status": "ok", "count": len(body.entries)})
