"""Looking into runs: graph, timeline, reasons, the past, children; and lists as they change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.api.executions import ExecutionPage
from noetl.api.reading import Replayed, RunGraph, Timeline, Why
from noetl.edge.declared import CURSOR, EVENTS, LIMIT, Declared, Parameter
from noetl.edge.errors import BadQuery, Unacceptable
from noetl.edge.reading import boolean, json, moment, number
from noetl.ids import parse
from noetl.server.access.caller import must_hold
from noetl.server.access.entry import caller_of
from noetl.server.access.owning import owned
from noetl.server.reading.feed import TOPICS
from noetl.server.reading.listener import Listener
from noetl.server.reading.replay import LIMIT as LIMIT_OF_STATE
from noetl.server.reading.replay import MOST, PROJECTIONS, At
from noetl.server.reading.timeline import LANES, MOST_LANES
from noetl.server.routes.exchange import route
from noetl.server.routes.executions import FILTERS, listing_of
from noetl.server.routes.stream import EventStream, guard
from noetl.store.base import Listing

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send

    from noetl.server.plane import Plane

_READ: Final = "execution:read"
_LISTED: Final = 50
_MOST_LISTED: Final = 200
_MOST_SEQ: Final = 1 << 62
_OF_TOPICS: Final = {
    "executions": _READ,
    "subscriptions": "subscription:read",
    "pools": "runtime:read",
    "catalog": "catalog:read",
    "system": "runtime:read",
}
_STATE: Final = (
    Parameter("as_of_event_id", "After this event.", "id"),
    Parameter("as_of_position", "After so many events.", "number", least=0),
    Parameter("seq", "Another word for `as_of_position`.", "number", least=0),
    Parameter("as_of_time", "After the last event up to this time.", "time"),
    Parameter("projection", "Only this part.", words=PROJECTIONS),
    Parameter("limit", "How many entries of each part.", "number", least=1, most=MOST),
    Parameter("resolve_payloads", "With the values of references.", "flag"),
)


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    run = "/api/executions/{execution_id}"
    graph = Declared(about="Draws a run: nodes, arcs, and how far it is.", answer=RunGraph)
    timeline = Declared(
        about="Tells the attempts of a run in the order in which they could be claimed.",
        answer=Timeline,
        query=(
            Parameter("limit", "How many lanes.", "number", least=1, most=MOST_LANES),
            CURSOR,
        ),
    )
    why = Declared(about="Tells why a run is not moving.", answer=Why)
    children = Declared(
        about="Lists the runs that a run has started, oldest first.",
        answer=ExecutionPage,
        query=(
            Parameter("order", "By the time of the start.", words=("asc", "desc")),
            LIMIT,
            CURSOR,
        ),
    )
    state = Declared(
        about="Tells the state of a run after any of its events.",
        answer=Replayed,
        query=_STATE,
        codes=("bad_position", "bad_query"),
    )
    replay = Declared(
        about="Tells the state of a run after any of its events.",
        answer=Replayed,
        query=(Parameter("execution_id", "Of this run.", "id", is_required=True), *_STATE),
        codes=("unknown_execution", "bad_position", "bad_query"),
    )
    feed = Declared(
        about="Tells rows of lists as they change, as server-sent events.",
        media_type=EVENTS,
        query=(Parameter("topics", f"Which lists: {', '.join(TOPICS)}."), *FILTERS),
        codes=("bad_status",),
    )
    return [
        route(plane, "GET", f"{run}/graph", _graph, _READ, graph),
        route(plane, "GET", f"{run}/timeline", _timeline, _READ, timeline),
        route(plane, "GET", f"{run}/why", _why, _READ, why),
        route(plane, "GET", f"{run}/children", _children, _READ, children),
        route(plane, "GET", f"{run}/state", _state, _READ, state),
        route(plane, "GET", "/api/replay/state", _replay, _READ, replay),
        route(plane, "GET", "/api/stream", _feed, _READ, feed),
    ]


async def _graph(plane: Plane, request: Request) -> Response:
    return json(await plane.graphs.graph(await owned(plane, request, _READ)))


async def _timeline(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, _READ)
    limit = number(request, "limit", LANES, MOST_LANES, 1)
    cursor = request.query_params.get("cursor")
    return json(await plane.timelines.page(execution_id, limit, cursor))


async def _why(plane: Plane, request: Request) -> Response:
    return json(await plane.reasons.why(await owned(plane, request, _READ)))


async def _children(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, _READ)
    await plane.owners.of(execution_id)
    order = request.query_params.get("order", "asc")
    if order not in {"asc", "desc"}:
        raise Unacceptable("`order` is neither `asc` nor `desc`")
    caller = caller_of(request)
    allowed, denied = caller.reach(_READ)
    listing = Listing(
        tenant_id=caller.tenant_id if caller.is_bound else None,
        allowed=allowed,
        denied=denied,
        parent_execution_id=execution_id,
        is_ascending=order == "asc",
        limit=number(request, "limit", _LISTED, _MOST_LISTED, 1),
    )
    return json(await plane.lists.page(listing, request.query_params.get("cursor")))


async def _state(plane: Plane, request: Request) -> Response:
    return await _folded(plane, request, await owned(plane, request, _READ))


async def _replay(plane: Plane, request: Request) -> Response:
    named = request.query_params.get("execution_id")
    if named is None:
        raise Unacceptable(
            "`execution_id` is missing",
            errors=({"pointer": "/execution_id", "code": "validation_failed"},),
        )
    execution_id = parse(named)
    await plane.owners.must(caller_of(request), _READ, execution_id)
    return await _folded(plane, request, execution_id)


async def _folded(plane: Plane, request: Request, execution_id: str) -> Response:
    asked = request.query_params
    if "as_of_position" in asked and "seq" in asked:
        raise BadQuery("`seq` is another word for `as_of_position`; name one of them")
    name = "seq" if "seq" in asked else "as_of_position"
    event_id = asked.get("as_of_event_id")
    at = At(
        event_id=None if event_id is None else parse(event_id),
        position=number(request, name, 0, _MOST_SEQ) if name in asked else None,
        time=moment(request, "as_of_time"),
    )
    projection = asked.get("projection", "all")
    if projection not in PROJECTIONS:
        raise Unacceptable(f"there is no projection `{projection}`", hint=", ".join(PROJECTIONS))
    return json(
        await plane.replays.state(
            execution_id,
            at,
            projection=projection,
            limit=number(request, "limit", LIMIT_OF_STATE, MOST, 1),
            resolves=boolean(request, "resolve_payloads"),
        )
    )


# ----------------------------------------------------------------------------- lists that change


async def _feed(plane: Plane, request: Request) -> Response:
    caller = caller_of(request)
    topics = tuple(dict.fromkeys(request.query_params.get("topics", "executions").split(",")))
    for topic in topics:
        if topic not in _OF_TOPICS:
            raise Unacceptable(f"there is no topic `{topic}`", hint=", ".join(TOPICS))
        must_hold(caller, _OF_TOPICS[topic])
    since = request.headers.get("last-event-id")
    listener = Listener(
        plane.feed, caller, topics, listing_of(request), None if since is None else parse(since)
    )
    plane.feed.open(listener)
    return Followed(plane, listener, request)


class Followed(EventStream):
    """Sends what a listener is told; when it ends, nobody listens any more."""

    def __init__(self, plane: Plane, listener: Listener, request: Request) -> None:
        super().__init__(plane.streams, listener, guard(plane, request, _READ))
        self._feed = plane.feed
        self._listener = listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client leaves, or falls too far behind."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._feed.close(self._listener)
