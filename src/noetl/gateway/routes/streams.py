"""Streams to clients: server-sent events and WebSocket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.edge.declared import EVENTS, Parameter
from noetl.edge.errors import NotFound, Unacceptable
from noetl.gateway import sse, ws
from noetl.gateway.declaring import PUBLIC, SESSION, Declared, person_of, route, socket_route
from noetl.gateway.hub.greeting import greeting, tell_again

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute
    from starlette.websockets import WebSocket

    from noetl.gateway.gate import Gate

_LONGEST_ID: Final = 200


def routes(gate: Gate) -> list[BaseRoute]:
    """Every route of this file that is switched on."""
    made: list[BaseRoute] = []
    if gate.settings.is_sse_on:
        made.append(route(gate, "GET", "/events", _events, SESSION, _EVENTS))
    # The first message may bring the session: who calls is looked at inside.
    answer = ws.converse if gate.settings.is_ws_on else _off
    made.append(socket_route(gate, "/ws", answer, PUBLIC, _SOCKET))
    return made


async def _off(gate: Gate, socket: WebSocket) -> None:
    del gate
    raise NotFound(f"there is no {socket.url.path}")


_EVENTS: Final = Declared(
    about="Tells a client its messages as server-sent events.",
    media_type=EVENTS,
    query=(
        Parameter("client_id", "Which client it is; a new one without it."),
        Parameter("lastEventId", "Behind this event; `Last-Event-ID` wins."),
        Parameter("frames", "`message`: events without names.", words=tuple(sse.WIRES)),
        Parameter("ticket", "A ticket for `events`."),
        Parameter("session_token", "A session, where it is switched on."),
    ),
    purpose="events",
    is_stream=True,
    codes=("client_not_yours", "too_many_clients", "ticket_used", "query_token_disabled"),
)
_SOCKET: Final = Declared(
    about="Opens a WebSocket for calls and messages.",
    purpose=ws.PURPOSE,
    is_stream=True,
    takes_any_query=True,
    codes=("origin_refused",),
)


async def _events(gate: Gate, request: Request) -> Response:
    query = request.query_params
    kind = query.get("frames", sse.NAMED)
    if kind not in sse.WIRES:
        raise Unacceptable("`frames` is neither `named` nor `message`", code="bad_value")
    person, client_id = person_of(request), query.get("client_id", "")
    if client_id:
        gate.limits.take("connect", f"{person.user_id}/{client_id}")
    last = request.headers.get("last-event-id") or query.get("lastEventId", "")
    stream = await gate.hub.open(person, client_id, last[:_LONGEST_ID], "sse", sse.WIRES[kind])
    try:
        first = sse.opening(await greeting(gate.requests, stream), kind)
        tell_again(gate.requests, gate.hub, stream)
    except BaseException:
        await gate.hub.close(stream)
        raise
    return sse.EventStream(gate.hub, gate.clock, stream, first, kind)
