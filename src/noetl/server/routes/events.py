"""Reports of workers, the hot route; single events; lines that tasks wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.events import (
    MOST_LINES,
    LinesTaken,
    LogBatch,
    Posted,
    PostedAnswer,
    Reported,
    Reports,
)
from noetl.api.shapes import Row
from noetl.edge.declared import Declared
from noetl.edge.errors import Forbidden, Unacceptable
from noetl.edge.moments import moment_of
from noetl.edge.reading import json, length_of, read
from noetl.ids import parse
from noetl.server.access.entry import caller_of, must_serve
from noetl.server.fleet.plain import answer_to, id_of_command, single
from noetl.server.routes.exchange import MOST_REPORT_BYTES, route
from noetl.store.base import Line

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.access.entry import Caller
    from noetl.server.plane import Plane
    from noetl.server.reading.history import Sight

_READ: Final = "execution:read"
_WRITE: Final = "event:write"


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    one = "/api/events/{event_id}"
    reports = Declared(
        about="Takes reports of a worker, and answers with its next work.",
        body=Reports,
        answer=Reported,
        codes=("batch_size_invalid", "bad_status", "pool_forbidden", "pool_saturated"),
    )
    lines = Declared(
        about="Takes lines that tasks wrote.",
        body=LogBatch,
        answer=LinesTaken,
        codes=("batch_size_invalid", "pool_forbidden"),
    )
    event = Declared(
        about="Takes a single event.",
        body=Posted,
        answer=PostedAnswer,
        codes=(
            "unknown_event_type",
            "bad_status",
            "forbidden_event",
            "unknown_execution",
            "pool_forbidden",
        ),
    )
    recorded = Declared(about="Tells one event.", answer=Row, codes=("not_found",))
    result = Declared(
        about="Tells the result of an event, fetched when it lies apart.",
        codes=("not_found", "result_gone", "result_too_large"),
    )
    return [
        route(plane, "POST", "/api/events/batch", _reports, _WRITE, reports),
        route(plane, "POST", "/api/logs/batch", _lines, _WRITE, lines),
        route(plane, "POST", "/api/events", _event, _WRITE, event),
        route(plane, "GET", one, _recorded, _READ, recorded),
        route(plane, "GET", f"{one}/result", _result, _READ, result),
    ]


async def _reports(plane: Plane, request: Request) -> Response:
    body = await read(request, Reports, MOST_REPORT_BYTES)
    caller = caller_of(request)
    if caller.is_bound:
        must_serve(caller)
        for name in {str(item.execution_id or body.execution_id) for item in body.events}:
            await _must_own(plane, caller, name)
    return json(await plane.intake.report(body, caller, length_of(request) or 0))


async def _must_own(plane: Plane, caller: Caller, execution_id: str) -> None:
    """Keep people from runs of other tenants; workers report for all of them."""
    if not caller.is_bound or not await plane.owners.exists(execution_id):
        return  # a run that nobody knows is refused below, event by event
    await plane.owners.must(caller, _WRITE, execution_id)


async def _event(plane: Plane, request: Request) -> Response:
    body = await read(request, Posted, MOST_REPORT_BYTES)
    caller = caller_of(request)
    await _must_own(plane, caller, str(body.execution_id))
    reports = single(body, plane.parts.ids.new(), caller.pool or "")
    return json(answer_to(await plane.intake.report(reports, caller, length_of(request) or 0)))


async def _recorded(plane: Plane, request: Request) -> Response:
    return json(await plane.history.event(_id(request), _seen_by(plane, request)))


async def _result(plane: Plane, request: Request) -> Response:
    return json(await plane.history.event_result(_id(request), _seen_by(plane, request)))


def _id(request: Request) -> str:
    return parse(request.path_params["event_id"])


def _seen_by(plane: Plane, request: Request) -> Sight:
    """Whether the caller has the run of an event; refused when he may not read it."""
    caller = caller_of(request)

    async def sees(execution_id: str) -> bool:
        if not await plane.owners.sees(caller, execution_id):
            return False
        await plane.owners.must(caller, _READ, execution_id)
        return True

    return sees


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
    caller = caller_of(request)
    if caller.is_bound:
        for name in {line.execution_id for line in lines}:
            await _must_own(plane, caller, name)
    if caller.pool is not None:
        await _own_lines(plane, caller.pool, lines)
    await plane.parts.store.output.add(lines)
    plane.signals.wrote({line.execution_id for line in lines})
    return json(LinesTaken(count=len(body.entries)))


async def _own_lines(plane: Plane, pool: str, lines: list[Line]) -> None:
    """Refuse lines that are not of a command of the pool, and of its run."""
    told = {(line.command_id, line.execution_id) for line in lines}
    rows = await plane.parts.store.commands.those([command_id for command_id, _ in told])
    own = {(row.command_id, row.execution_id) for row in rows.values() if row.pool == pool}
    if foreign := sorted(told - own):
        raise Forbidden(
            f"the command {foreign[0][0]} is none of the pool {pool!r}", code="pool_forbidden"
        )
