"""Reports of workers: the hot route."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.api.events import MOST_LINES, LogBatch, Reports
from noetl.server.errors import Unacceptable
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
        route(plane, "POST", "/api/events/batch", _reports),
        route(plane, "POST", "/api/logs/batch", _lines),
    ]


async def _reports(plane: Plane, request: Request) -> Response:
    return json(await plane.intake.report(await read(request, Reports, MOST_REPORT_BYTES)))


async def _lines(plane: Plane, request: Request) -> Response:
    body = await read(request, LogBatch, MOST_REPORT_BYTES)
    if len(body.entries) > MOST_LINES:
        raise Unacceptable(
            f"{len(body.entries)} lines in one call", code="batch_size_invalid",
            hint=f"at most {MOST_LINES}",
        )  # fmt: skip
    await plane.parts.store.output.add([
        Line(
            execution_id=item.execution_id,
            command_id=item.command_id,
            attempt=item.attempt,
            n=item.n,
            ts=item.ts,
            text=item.text,
            step=item.step,
            task=item.task,
            stream=item.stream,
            level=item.level,
        )
        for item in body.entries
    ])  # fmt: skip
    return json({"status": "ok", "count": len(body.entries)})
