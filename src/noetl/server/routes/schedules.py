"""Schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.schedules import (
    Backfill,
    Backfilled,
    Fired,
    Fires,
    Removed,
    Schedule,
    ScheduleBody,
    SchedulePage,
)
from noetl.edge.declared import CURSOR, LIMIT, Declared, Parameter
from noetl.edge.reading import boolean, json, number, read
from noetl.server.access.entry import caller_of
from noetl.server.auditing.audit import audited
from noetl.server.operations.scheduled import MOST_NEXT
from noetl.server.routes.exchange import route
from noetl.store.base import ScheduleListing

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_CREATED: Final = 201
_STARTS: Final = (
    "unknown_path", "invalid_input", "not_executable", "no_entry_step",
    "requirement_missing", "quota_exceeded", "concurrency_limit", "reserved_pool",
)  # fmt: skip
_COUNT: Final = Parameter("count", "How many times.", "number", least=1, most=MOST_NEXT)


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    every, one = "/api/schedules", "/api/schedules/{schedule_id}"
    reads, writes = "schedule:read", "schedule:write"
    return [
        route(plane, "GET", every, _page, reads, Declared(
            about="Lists schedules, by name.", answer=SchedulePage, query=(
                LIMIT, CURSOR, Parameter("path", "Only those of this playbook."),
                Parameter("enabled", "Only those that are on, or off.", "flag"),
            ))),
        route(plane, "POST", every, _add, writes, Declared(
            about="Makes a schedule.", body=ScheduleBody, answer=Schedule, status=_CREATED,
            audit="schedule.create", codes=("in_use", "quota_exceeded", "unknown_path",
                                           "pool_invalid", "reserved_pool"))),
        route(plane, "GET", one, _get, reads, Declared(
            about="Shows one schedule.", answer=Schedule)),
        route(plane, "PUT", one, _change, writes, Declared(
            about="Writes a schedule anew; with equal times it keeps its place.",
            body=ScheduleBody, answer=Schedule, audit="schedule.change",
            codes=("in_use", "unknown_path", "pool_invalid", "reserved_pool"))),
        route(plane, "DELETE", one, _remove, writes, Declared(
            about="Forgets a schedule; runs that it has started go on.", answer=Removed,
            audit="schedule.delete", codes=("in_use",))),
        route(plane, "POST", f"{one}/pause", _pause, writes, Declared(
            about="Stops a schedule from firing.", answer=Schedule, audit="schedule.pause")),
        route(plane, "POST", f"{one}/resume", _resume, writes, Declared(
            about="Lets a schedule fire again, from now on.", answer=Schedule,
            audit="schedule.resume")),
        route(plane, "POST", f"{one}/trigger", _trigger, writes, Declared(
            about="Starts a run of a schedule now.", answer=Fired, audit="schedule.trigger",
            codes=_STARTS)),
        route(plane, "POST", f"{one}/backfill", _backfill, writes, Declared(
            about="Starts the runs of times that have passed.", body=Backfill,
            answer=Backfilled, audit="schedule.backfill", codes=_STARTS)),
        route(plane, "GET", f"{one}/next", _next, reads, Declared(
            about="Tells when a schedule fires next.", answer=Fires, query=(_COUNT,))),
    ]  # fmt: skip


async def _page(plane: Plane, request: Request) -> Response:
    asked = request.query_params
    listing = ScheduleListing(
        limit=number(request, "limit", 50, 200, 1),
        path=asked.get("path"),
        enabled=boolean(request, "enabled") if "enabled" in asked else None,
    )
    return json(await plane.scheduled.page(caller_of(request), listing, asked.get("cursor")))


async def _add(plane: Plane, request: Request) -> Response:
    body = await read(request, ScheduleBody)
    made = await plane.scheduled.add(caller_of(request), body)
    audited(request, f"{made.name} ({made.schedule_id})", path=made.path)
    return json(made, _CREATED)


async def _get(plane: Plane, request: Request) -> Response:
    return json(await plane.scheduled.get(caller_of(request), _id(request)))


async def _change(plane: Plane, request: Request) -> Response:
    body = await read(request, ScheduleBody)
    audited(request, _id(request), path=body.path)
    return json(await plane.scheduled.change(caller_of(request), _id(request), body))


async def _remove(plane: Plane, request: Request) -> Response:
    audited(request, _id(request))
    return json(await plane.scheduled.remove(caller_of(request), _id(request)))


async def _pause(plane: Plane, request: Request) -> Response:
    audited(request, _id(request))
    return json(await plane.scheduled.turn(caller_of(request), _id(request), is_on=False))


async def _resume(plane: Plane, request: Request) -> Response:
    audited(request, _id(request))
    return json(await plane.scheduled.turn(caller_of(request), _id(request), is_on=True))


async def _trigger(plane: Plane, request: Request) -> Response:
    fired = await plane.scheduled.trigger(caller_of(request), _id(request))
    audited(request, _id(request), execution_id=fired.execution_id)
    return json(fired)


async def _backfill(plane: Plane, request: Request) -> Response:
    body = await read(request, Backfill)
    done = await plane.scheduled.backfill(caller_of(request), _id(request), body)
    audited(request, _id(request), runs=len(done.items))
    return json(done)


async def _next(plane: Plane, request: Request) -> Response:
    count = number(request, "count", 10, MOST_NEXT, 1)
    return json(await plane.scheduled.next(caller_of(request), _id(request), count))


def _id(request: Request) -> str:
    found: str = request.path_params["schedule_id"]
    return found
