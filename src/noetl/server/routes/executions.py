"""Reading runs; `starts` begins them, and `controls` steers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.events import LogPage
from noetl.api.executions import (
    CancellationCheck,
    Events,
    Execution,
    ExecutionPage,
    Status,
)
from noetl.edge.declared import CURSOR, EVENTS, LIMIT, Declared, Parameter
from noetl.edge.errors import Unacceptable
from noetl.edge.reading import boolean, json, moment, number
from noetl.engine.status import STATUSES
from noetl.engine.upcast import status_word
from noetl.ids import parse
from noetl.server.access.entry import caller_of
from noetl.server.access.owning import owned
from noetl.server.ingest.wanted import version_of
from noetl.server.reading.history import Query, wanted_types
from noetl.server.reading.listing import LinesQuery
from noetl.server.reading.tail import Tail, place_of
from noetl.server.routes import stream
from noetl.server.routes.exchange import route
from noetl.store.base import Listing

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    from noetl.server.plane import Plane

_READ: Final = "execution:read"
_PAGE: Final = 100
_MOST: Final = 1_000
_NEWEST: Final = 100
_LISTED: Final = 50
_MOST_LISTED: Final = 200
_MOST_OFFSET: Final = 5_000
_MOST_SEQ: Final = 1 << 62
_MANY: Final = Parameter("limit", "How many at most.", "number", least=1, most=_MOST)
FILTERS: Final = (
    Parameter("status", "Of one of these statuses.", words=STATUSES, is_repeated=True),
    Parameter("path", "Of this playbook; ending in `*`, of those that begin so."),
    Parameter("catalog_id", "Of this version of a document.", "id"),
    Parameter("version", "Of this version."),
    Parameter("parent_execution_id", "Started by this run; `none`: by no run."),
    Parameter("label", "With this label, `key:value`.", is_repeated=True),
    Parameter("pool", "On this pool."),
    Parameter("created_by", "Asked for by this account."),
    Parameter("since", "Started at or after.", "time"),
    Parameter("until", "Started before.", "time"),
    Parameter("has_error", "With an error, or without.", "flag"),
    Parameter("request_id", "For this request of a client; `*`: for any."),
    Parameter("client_id", "For this client."),
    Parameter("q", "Whose path or error begins so."),
)
_LIST: Final = (
    *FILTERS,
    Parameter("order", "By the time of the start.", words=("asc", "desc")),
    Parameter("offset", "How many to pass over.", "number", least=0, most=_MOST_OFFSET),
    LIMIT,
    CURSOR,
)
_EVENTS: Final = (
    Parameter("after_seq", "Behind this place of the log.", "number"),
    Parameter("after", "Another word for `after_seq`.", "number"),
    Parameter("since_event_id", "Behind this event.", "id"),
    Parameter("event_type", "Of these types; `command.*` is a family.", is_repeated=True),
    Parameter("step", "Of this step."),
    Parameter("order", "In the order of the log, or against it.", words=("asc", "desc")),
    Parameter("fields", "`lean`: without payloads.", words=("lean", "full")),
    _MANY,
    CURSOR,
)
_LOGS: Final = (
    Parameter("step", "Of this step."),
    Parameter("command_id", "Of this command.", "id"),
    Parameter("stream", "Of this stream.", words=("stdout", "stderr", "log")),
    Parameter("level", "Of this level."),
    Parameter("since", "Written at or after.", "time"),
    Parameter("q", "With this text in it."),
    Parameter("follow", "As they are written, as server-sent events.", "flag"),
    _MANY,
    CURSOR,
)


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    run = "/api/executions/{execution_id}"
    listed = Declared(
        about="Lists runs, newest first.", answer=ExecutionPage, query=_LIST, codes=("bad_status",)
    )
    one = Declared(
        about="Tells one run.",
        answer=Execution,
        query=(
            Parameter("include_events", "With its newest events.", "flag"),
            Parameter("include_state", "With what its steps and its context hold.", "flag"),
        ),
    )
    status = Declared(about="Tells how far a run is.", answer=Status)
    events = Declared(about="Tells the events of a run.", answer=Events, query=_EVENTS)
    logs = Declared(
        about="Tells the lines that steps of a run wrote.",
        answer=LogPage,
        follow=EVENTS,
        query=_LOGS,
    )
    check = Declared(about="Tells whether a run was cancelled.", answer=CancellationCheck)
    result = Declared(about="Tells what a step of a run returned.")
    step = f"{run}/steps/{{step}}/result"
    return [
        route(plane, "GET", "/api/executions", _list, _READ, listed),
        route(plane, "GET", run, _execution, _READ, one),
        route(plane, "GET", f"{run}/status", _status, _READ, status),
        route(plane, "GET", f"{run}/events", _events, _READ, events),
        route(plane, "GET", f"{run}/logs", _logs, _READ, logs),
        route(plane, "GET", f"{run}/cancellation-check", _cancellation, "command:claim", check),
        route(plane, "GET", step, _step_result, _READ, result),
        *stream.routes(plane),
    ]


def _is(request: Request, name: str, yes: str, no: str) -> bool:
    """Whether a word of the query is the first of two; the second is the default."""
    given = request.query_params.get(name, no)
    if given not in {yes, no}:
        raise Unacceptable(f"`{name}` is neither `{yes}` nor `{no}`")
    return given == yes


async def _list(plane: Plane, request: Request) -> Response:
    return json(await plane.lists.page(listing_of(request), request.query_params.get("cursor")))


def listing_of(request: Request) -> Listing:
    """The runs that a query asks for, as far as its caller may see them."""
    asked = request.query_params
    parent, catalog_id = asked.get("parent_execution_id"), asked.get("catalog_id")
    caller = caller_of(request)
    allowed, denied = caller.reach(_READ)
    # A gateway looks for runs of its clients, whatever their tenants.
    is_wide = not caller.is_bound and ("request_id" in asked or "client_id" in asked)
    return Listing(
        tenant_id=None if is_wide else caller.tenant_id,
        allowed=allowed,
        denied=denied,
        limit=number(request, "limit", _LISTED, _MOST_LISTED, 1),
        offset=number(request, "offset", 0, _MOST_OFFSET),
        is_ascending=_is(request, "order", "asc", "desc"),
        status=tuple(sorted({status_of(word) for word in asked.getlist("status")})),
        path=asked.get("path"),
        catalog_id=None if catalog_id is None else parse(catalog_id),
        version=version_of(asked.get("version")),
        parent_execution_id=parent if parent in {None, "none"} else parse(parent),
        labels=dict(label_of(text) for text in asked.getlist("label")),
        pool=asked.get("pool"),
        created_by=asked.get("created_by"),
        since=moment(request, "since"),
        until=moment(request, "until"),
        has_error=boolean(request, "has_error") if "has_error" in asked else None,
        request_id=asked.get("request_id"),
        client_id=asked.get("client_id"),
        q=asked.get("q"),
    )


def status_of(text: str) -> str:
    """A status by any of its words."""
    word = status_word(text)
    if word not in STATUSES:
        raise Unacceptable(f"`{text}` is not a status", code="bad_status", hint=", ".join(STATUSES))
    return word


def label_of(text: str) -> tuple[str, str]:
    """A label of a query, `key:value`."""
    name, colon, value = text.partition(":")
    if not colon or not name:
        raise Unacceptable(f"`{text}` is not a label", hint="label=key:value")
    return name, value


async def _execution(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, _READ)
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
    return json(await plane.lists.status(await owned(plane, request, _READ)))


async def _cancellation(plane: Plane, request: Request) -> Response:
    return json(await plane.lists.cancellation(await owned(plane, request, "command:claim")))


async def _events(plane: Plane, request: Request) -> Response:
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
    return json(await plane.history.page(await owned(plane, request, _READ), query))


async def _logs(plane: Plane, request: Request) -> Response:
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
    execution_id = await owned(plane, request, _READ)
    if not boolean(request, "follow"):
        return json(await plane.lists.lines(execution_id, query))
    await plane.details.row(execution_id)
    place = request.headers.get("last-event-id")
    after = None if place is None else place_of(place)
    tail = Tail(plane.streams, execution_id, caller_of(request).account, query, after)
    plane.streams.admit(tail)
    still = stream.guard(plane, request, _READ, execution_id)
    return stream.EventStream(plane.streams, tail, still)


async def _step_result(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, _READ)
    return json(await plane.details.step_result(execution_id, request.path_params["step"]))
