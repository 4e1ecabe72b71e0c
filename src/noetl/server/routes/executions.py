"""Starting, reading and steering runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.executions import Control, Execute, Executes, Finalize, Fork, Rerun
from noetl.engine.status import STATUSES
from noetl.engine.upcast import status_word
from noetl.ids import parse
from noetl.server.access import caller_of
from noetl.server.errors import Unacceptable
from noetl.server.history import Query, wanted_types
from noetl.server.listing import LinesQuery
from noetl.server.routes import stream
from noetl.server.routes.exchange import boolean, json, known, moment, number, read, route
from noetl.server.starts import trace_of
from noetl.server.tail import Tail, place_of
from noetl.server.wanted import version_of
from noetl.store.base import Listing

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

MOST_BATCH_BYTES: Final = 16 * 1024 * 1024
_PAGE: Final = 100
_MOST: Final = 1_000
_NEWEST: Final = 100
_LISTED: Final = 50
_MOST_LISTED: Final = 200
_MOST_OFFSET: Final = 5_000
_MOST_SEQ: Final = 1 << 62
_LIST: Final = (
    "status", "path", "catalog_id", "version", "parent_execution_id", "label", "pool",
    "created_by", "since", "until", "has_error", "request_id", "client_id", "q", "limit",
    "cursor", "order", "offset",
)  # fmt: skip
_EVENTS: Final = (
    "after_seq", "after", "since_event_id", "event_type", "step", "order", "fields", "limit",
    "cursor",
)  # fmt: skip
_LOGS: Final = (
    "step", "command_id", "stream", "level", "since", "q", "limit", "cursor", "follow",
)  # fmt: skip
_REPEATED: Final = frozenset({"status", "label", "event_type"})


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    run = "/api/executions/{execution_id}"
    return [
        route(plane, "POST", "/api/execute", _execute, "execution:run"),
        route(plane, "POST", "/api/run/playbook", _execute, "execution:run"),
        route(plane, "POST", "/api/execute/batch", _batch, "execution:run"),
        route(plane, "GET", "/api/executions", _list, "execution:read"),
        route(plane, "GET", run, _execution, "execution:read"),
        route(plane, "GET", f"{run}/status", _status, "execution:read"),
        route(plane, "GET", f"{run}/events", _events, "execution:read"),
        route(plane, "GET", f"{run}/children", _children, "execution:read"),
        route(plane, "GET", f"{run}/why", _why, "execution:read"),
        route(plane, "GET", f"{run}/logs", _logs, "execution:read"),
        route(plane, "GET", f"{run}/cancellation-check", _cancellation, "command:claim"),
        route(plane, "GET", f"{run}/steps/{{step}}/result", _step_result, "execution:read"),
        route(plane, "POST", f"{run}/cancel", _cancel, "execution:control"),
        route(plane, "POST", f"{run}/pause", _pause, "execution:control"),
        route(plane, "POST", f"{run}/resume", _resume, "execution:control"),
        route(plane, "POST", f"{run}/finalize", _finalize, "execution:control"),
        route(plane, "POST", f"{run}/rerun", _rerun, "execution:run"),
        route(plane, "POST", f"{run}/fork", _fork, "execution:run"),
        *stream.routes(plane),
    ]


def _id(request: Request) -> str:
    return parse(request.path_params["execution_id"])


# ----------------------------------------------------------------------------- starting


async def _execute(plane: Plane, request: Request) -> Response:
    body = await read(request, Execute)
    caller = caller_of(request)
    if body.dry_run:
        return json(await plane.starts.rehearse(body, caller))
    headers = request.headers
    try:
        started = await plane.starts.execute(
            body, caller, key=headers.get("idempotency-key"), trace=trace_of(headers)
        )
    except Exception:
        plane.metrics.execute_outcomes.inc("api", "error")
        raise
    plane.metrics.execute_outcomes.inc("api", started.status)
    return json(started)


async def _batch(plane: Plane, request: Request) -> Response:
    body = await read(request, Executes, MOST_BATCH_BYTES)
    trace = trace_of(request.headers)
    started = await plane.batches.execute(body.executions, caller_of(request), trace)
    plane.metrics.batch(started.started, started.duplicates, started.failed)
    return json(started)


# ----------------------------------------------------------------------------- reading


def _asked(request: Request, *names: str) -> None:
    """Refuse unknown names; only some may stand more than once."""
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in names:
            raise Unacceptable(f"the query has no `{name}`", code="unknown_parameter")
        if name in seen and name not in _REPEATED:
            raise Unacceptable(f"`{name}` stands twice in the query", code="bad_value")
        seen.add(name)


def _is(request: Request, name: str, yes: str, no: str) -> bool:
    """Whether a word of the query is the first of two; the second is the default."""
    given = request.query_params.get(name, no)
    if given not in {yes, no}:
        raise Unacceptable(f"`{name}` is neither `{yes}` nor `{no}`")
    return given == yes


async def _list(plane: Plane, request: Request) -> Response:
    _asked(request, *_LIST)
    asked = request.query_params
    parent, catalog_id = asked.get("parent_execution_id"), asked.get("catalog_id")
    listing = Listing(
        limit=number(request, "limit", _LISTED, _MOST_LISTED, 1),
        offset=number(request, "offset", 0, _MOST_OFFSET),
        is_ascending=_is(request, "order", "asc", "desc"),
        status=tuple(sorted({_status_word(word) for word in asked.getlist("status")})),
        path=asked.get("path"),
        catalog_id=None if catalog_id is None else parse(catalog_id),
        version=version_of(asked.get("version")),
        parent_execution_id=parent if parent in {None, "none"} else parse(parent),
        labels=dict(_label(text) for text in asked.getlist("label")),
        pool=asked.get("pool"),
        created_by=asked.get("created_by"),
        since=moment(request, "since"),
        until=moment(request, "until"),
        has_error=boolean(request, "has_error") if "has_error" in asked else None,
        request_id=asked.get("request_id"),
        client_id=asked.get("client_id"),
        q=asked.get("q"),
    )
    return json(await plane.lists.page(listing, asked.get("cursor")))


def _status_word(text: str) -> str:
    word = status_word(text)
    if word not in STATUSES:
        raise Unacceptable(f"`{text}` is not a status", code="bad_status", hint=", ".join(STATUSES))
    return word


def _label(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise Unacceptable(f"`{text}` is not a label", hint="label=key:value")
    return name, value


async def _execution(plane: Plane, request: Request) -> Response:
    known(request, "include_events", "include_state")
    execution_id = _id(request)
    has_events = boolean(request, "include_events")
    with_state = boolean(request, "include_state")
    found = await plane.details.execution(execution_id, with_state=with_state)
    if not has_events:
        return json(found)
    newest = await plane.history.page(execution_id, Query(limit=_NEWEST, is_descending=True))
    return json({**_fields(found), "events": newest.items[::-1]})


def _fields(value: object) -> dict[str, object]:
    return {name: getattr(value, name) for name in value.__struct_fields__}  # type: ignore[attr-defined]  # a struct


async def _status(plane: Plane, request: Request) -> Response:
    return json(await plane.lists.status(_id(request)))


async def _children(plane: Plane, request: Request) -> Response:
    return json(await plane.lists.children(_id(request)))


async def _cancellation(plane: Plane, request: Request) -> Response:
    return json(await plane.lists.cancellation(_id(request)))


async def _events(plane: Plane, request: Request) -> Response:
    _asked(request, *_EVENTS)
    asked = request.query_params
    name = "after" if "after" in asked else "after_seq"
    since = asked.get("since_event_id")
    query = Query(
        after_seq=number(request, name, 0, _MOST_SEQ) if name in asked else None,
        since_event_id=None if since is None else parse(since),
        types=wanted_types(asked.getlist("event_type")),
        step=asked.get("step"),
        is_descending=_is(request, "order", "desc", "asc"),
        is_lean=_is(request, "fields", "lean", "full"),
        limit=number(request, "limit", _PAGE, _MOST, 1),
        cursor=asked.get("cursor"),
    )
    return json(await plane.history.page(_id(request), query))


async def _why(plane: Plane, request: Request) -> Response:
    return json(await plane.details.why(_id(request)))


async def _logs(plane: Plane, request: Request) -> Response:
    known(request, *_LOGS)
    asked = request.query_params
    command_id = asked.get("command_id")
    query = LinesQuery(
        step=asked.get("step"),
        command_id=None if command_id is None else parse(command_id),
        stream=asked.get("stream"),
        level=asked.get("level"),
        since=moment(request, "since"),
        q=asked.get("q"),
        limit=number(request, "limit", _MOST, _MOST, 1),
        cursor=asked.get("cursor"),
    )
    execution_id = _id(request)
    if not boolean(request, "follow"):
        return json(await plane.lists.lines(execution_id, query))
    await plane.details.row(execution_id)
    place = request.headers.get("last-event-id")
    after = None if place is None else place_of(place)
    tail = Tail(plane.streams, execution_id, caller_of(request).account, query, after)
    plane.streams.admit(tail)
    return stream.EventStream(plane.streams, tail)


async def _step_result(plane: Plane, request: Request) -> Response:
    return json(await plane.details.step_result(_id(request), request.path_params["step"]))


# ----------------------------------------------------------------------------- steering


async def _cancel(plane: Plane, request: Request) -> Response:
    body = await read(request, Control)
    return json(await plane.controls.cancel(_id(request), body, _by(request)))


async def _pause(plane: Plane, request: Request) -> Response:
    body = await read(request, Control)
    return json(await plane.controls.pause(_id(request), body, _by(request)))


async def _resume(plane: Plane, request: Request) -> Response:
    body = await read(request, Control)
    return json(await plane.controls.resume(_id(request), body, _by(request)))


async def _finalize(plane: Plane, request: Request) -> Response:
    body = await read(request, Finalize)
    return json(await plane.controls.finalize(_id(request), body, _by(request)))


def _by(request: Request) -> str:
    account = caller_of(request).account
    return "user" if account == "local" else account


async def _rerun(plane: Plane, request: Request) -> Response:
    body = await read(request, Rerun)
    account = caller_of(request).account
    return json(await plane.repeats.rerun(_id(request), body, account))


async def _fork(plane: Plane, request: Request) -> Response:
    body = await read(request, Fork)
    account = caller_of(request).account
    return json(await plane.repeats.fork(_id(request), body, account))
