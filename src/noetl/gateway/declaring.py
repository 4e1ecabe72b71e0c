"""Routes of the gateway: who may call them, how often, and what becomes of their errors."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocketDisconnect, WebSocketState

from noetl.edge.declared import Declared as Shown
from noetl.edge.door import BODY, LATE
from noetl.edge.errors import Draining, Forbidden, RequestTimeout
from noetl.edge.problems import REQUEST_ID, answer_of
from noetl.edge.reading import TIME_LIMIT, must_be_declared, request_id_of
from noetl.errors import NoetlError
from noetl.gateway.errors import SERVER_FAULT, told
from noetl.gateway.tracing import spanned

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.websockets import WebSocket

    from noetl.gateway.gate import Gate
    from noetl.gateway.person import Person

PUBLIC: Final = "public"
SESSION: Final = "session"
CALLBACK: Final = "callback"
VERIFIED: Final = "verified"
SERVICE: Final = "service"
READS_RUNTIME: Final = "runtime:read"
PERMISSIONS: Final = (PUBLIC, SESSION, CALLBACK, VERIFIED, SERVICE, READS_RUNTIME)
"""Anybody; somebody with a session; whoever shows the token of a request; whoever a listener
verifies; our own processes; somebody whom the server gives this permission."""
CLOSED: Final = 1011
_INSIDE: Final = frozenset({PUBLIC, CALLBACK, VERIFIED})
"""The route looks itself at who calls."""
_OURS: Final = frozenset({SERVICE, READS_RUNTIME})
"""The bearer of our own processes opens the route."""
_SPARE_S: Final = 30.0
"""How much longer a call may take than the server does for it."""
_CLIENT_GONE: Final = 499
_UNREAD: Final = frozenset({408, 413})
"""The rest of the body is not waited for."""
_UNAUTHORIZED: Final = 401
_KEPT: Final = frozenset({b"cache-control", b"etag"})
_PERSON: Final = "noetl.person"
_NAME: Final = re.compile(r"{[^}]*}")
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared(Shown):
    """How a route of the gateway is used."""

    limit: str = "call"
    """The scope of the rate limit by session; empty: the route takes from buckets itself."""
    purpose: str = ""
    """What a ticket has to be for that opens the route; empty: none does."""
    span: str = ""
    """The name of its spans after `gateway.`; from the path without it."""
    is_stream: bool = False
    """It goes on until somebody leaves: no new one while the gateway stops."""
    takes_any_query: bool = False
    """Names of the query are for somebody else to judge."""
    refused: Callable[[Response, BaseException], Response] | None = None
    """Turns the answer of an error into the route's own form; none: it is a problem."""
    challenge: Callable[[Request], str] | None = None
    """What a 401 tells in `WWW-Authenticate`; `Bearer` without it."""


class Named(Route):
    """A route that says which permission it asks for."""

    permission: str
    declared: Declared


class NamedSocket(WebSocketRoute):
    """A WebSocket that says which permission it asks for."""

    permission: str
    declared: Declared


def route(  # noqa: PLR0913, PLR0917 - a route is what it does, and what it says about itself
    gate: Gate,
    method: str,
    path: str,
    answer: Callable[[Gate, Request], Awaitable[Response]],
    permission: str,
    declared: Declared,
) -> Named:
    """A route whose errors are problems, and that asks who may call it."""
    _must_be_permission(permission, f"{method} {path}")
    exchange = _Exchange(gate, method, path, answer, permission, declared)
    made = Named(path, exchange.endpoint, methods=[method])
    if method == "GET" and declared.is_stream and made.methods is not None:
        made.methods.discard("HEAD")
    _end_at_end(made)
    made.permission, made.declared = permission, declared
    return made


def own_route(  # noqa: PLR0913, PLR0917 - as `route`
    gate: Gate,
    method: str,
    path: str,
    answer: Callable[[Gate, Request], Awaitable[Response]],
    permission: str,
    declared: Declared,
) -> Named:
    """A route that keeps its own time, limits, spans and refusals, since strangers flood it."""
    _must_be_permission(permission, f"{method} {path}")

    async def endpoint(request: Request) -> Response:
        try:
            return await answer(gate, request)
        except Exception as error:  # noqa: BLE001 - the border: every error of a route is an answer
            return refusal(gate, error, request, (method, path))

    made = Named(path, endpoint, methods=[method])
    if made.methods is not None:
        made.methods.discard("HEAD")
    _end_at_end(made)
    made.permission, made.declared = permission, declared
    return made


def socket_route(
    gate: Gate,
    path: str,
    answer: Callable[[Gate, WebSocket], Awaitable[None]],
    permission: str,
    declared: Declared | None = None,
) -> NamedSocket:
    """A WebSocket; what is raised before it is accepted is answered as a problem.

    The permission is looked at by the route, since the first message may bring the credential.
    """
    _must_be_permission(permission, f"WS {path}")
    shown = declared or Declared(about="Opens a WebSocket.", is_stream=True)

    async def endpoint(socket: WebSocket) -> None:
        about = {"url.path": path}
        with spanned(gate.tracer, f"gateway.{name_of(path, shown)}", socket.headers, about):
            await _conversed(gate, socket, answer)

    made = NamedSocket(path, endpoint)
    _end_at_end(made)
    made.permission, made.declared = permission, shown
    return made


def person_of(request: HTTPConnection) -> Person:
    """Who calls; only routes that ask for a session have somebody."""
    found: Person = request.scope[_PERSON]
    return found


def admit(request: HTTPConnection, person: Person) -> None:
    """Note who calls."""
    request.scope[_PERSON] = person


def name_of(path: str, declared: Declared) -> str:
    """The short name of a route, for spans."""
    if declared.span:
        return declared.span
    words = [word for word in _NAME.sub("", path).split("/") if word and word != "api"]
    return ".".join(words) or "ui"


class _Exchange:
    """One route at work."""

    def __init__(  # noqa: PLR0913, PLR0917 - as `route`
        self,
        gate: Gate,
        method: str,
        path: str,
        answer: Callable[[Gate, Request], Awaitable[Response]],
        permission: str,
        declared: Declared,
    ) -> None:
        self._gate = gate
        self._answer = answer
        self._permission = permission
        self._declared = declared
        self._name = (method, path)
        self._span = f"gateway.{name_of(path, declared)}"
        self._about = {"http.request.method": method, "http.route": path}

    async def endpoint(self, request: Request) -> Response:
        """The answer, whatever happens."""
        with spanned(self._gate.tracer, self._span, request.headers, self._about) as span:
            try:
                response = await self._limited(request)
                if self._permission not in _INSIDE:
                    _keep_nowhere(response)
            except Exception as error:  # noqa: BLE001 - the border: every error of a route is an answer
                response = refusal(self._gate, error, request, self._name)
                challenge = self._declared.challenge
                if response.status_code == _UNAUTHORIZED and challenge is not None:
                    response.headers["WWW-Authenticate"] = challenge(request)
                if self._declared.refused is not None:
                    response = self._declared.refused(response, error)
            span.answered(response.status_code)
            return response

    async def _limited(self, request: Request) -> Response:
        """The answer in time; what comes slowly is refused by whoever hears it."""
        longest = self._gate.settings.timeout_s + _SPARE_S
        limit = asyncio.timeout(None if BODY in request.scope else longest)
        try:
            async with limit:
                request.scope[TIME_LIMIT] = None if BODY in request.scope else limit
                return await self._answered(request)
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimeout("the request came too slowly", hint="send it at once") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not request.scope.pop(LATE, False):
                raise
            task.uncancel()
            raise RequestTimeout("the request took too long", hint="send it at once") from None

    async def _answered(self, request: Request) -> Response:
        gate, declared = self._gate, self._declared
        if declared.is_stream:
            _must_be_open(gate)
        if self._permission not in _INSIDE:
            await self._admitted(request)
        if request.scope["query_string"] and not declared.takes_any_query:
            must_be_declared(request, declared.query)
        return await self._answer(gate, request)

    async def _admitted(self, request: Request) -> None:
        gate, declared = self._gate, self._declared
        if self._permission in _OURS and gate.access.is_service(request):
            return
        found = await gate.access.person(request, purpose=declared.purpose)
        person = found.at(gate.peers.address(request))
        admit(request, person)
        if declared.limit:
            gate.limits.take(declared.limit, person.session_id or person.user_id)
        if self._permission == SERVICE:
            raise Forbidden("only processes of the platform may do this")
        if self._permission != SESSION:
            who = await gate.upstream.acting_for(person).whoami()
            if self._permission not in who.permissions:
                raise Forbidden(f"{person.subject} may not do this: {self._permission}")


def refusal(
    gate: Gate, error: BaseException, request: HTTPConnection, name: tuple[str, str]
) -> Response:
    """The answer of an error."""
    if isinstance(error, ClientDisconnect | WebSocketDisconnect):
        return Response(status_code=_CLIENT_GONE)  # which nobody will read
    seen = told(error)
    fields = {"request_id": request.scope.get(REQUEST_ID), "method": name[0], "path": name[1]}
    if not isinstance(seen, NoetlError):
        _log.error("a call has failed", exc_info=error, extra=fields)
    elif seen.status >= SERVER_FAULT:
        more = {"code": seen.code, "reason": seen.message}
        _log.warning("a call was not served", extra={**fields, **more})
    response = answer_of(seen, request.scope.get(REQUEST_ID), gate.seen)
    if response.status_code in _UNREAD:
        response.headers["Connection"] = "close"
    return response


async def _conversed(
    gate: Gate, socket: WebSocket, answer: Callable[[Gate, WebSocket], Awaitable[None]]
) -> None:
    name = ("WS", socket.scope["path"])
    try:
        _must_be_open(gate)
        await answer(gate, socket)
    except WebSocketDisconnect:
        return
    except Exception as error:  # noqa: BLE001 - the border: every error of a socket is told
        response = refusal(gate, error, socket, name)
        if socket.application_state is WebSocketState.CONNECTING:
            await socket.send_denial_response(response)
        elif socket.application_state is WebSocketState.CONNECTED:
            await socket.close(CLOSED)


def _must_be_open(gate: Gate) -> None:
    if gate.closing.is_set():
        raise Draining("the gateway is stopping", hint="another one takes it")


def _keep_nowhere(response: Response) -> None:
    """Let nobody on the way keep what is told to one person, unless the answer says how long."""
    if not any(name in _KEPT for name, _ in response.raw_headers):
        response.raw_headers.append((b"cache-control", b"no-store"))


def _must_be_permission(permission: str, name: str) -> None:
    if permission not in PERMISSIONS:
        raise ValueError(f"{name} asks for {permission!r}, which is no permission")


def _end_at_end(made: Any) -> None:  # noqa: ANN401 - a route of either kind
    whole = made.path_regex.pattern.removesuffix("$")
    made.path_regex = re.compile(rf"{whole}\Z")  # `$` would let a line end stand behind it


__all__ = (
    "CALLBACK",
    "PERMISSIONS",
    "PUBLIC",
    "READS_RUNTIME",
    "SERVICE",
    "SESSION",
    "VERIFIED",
    "Declared",
    "Named",
    "NamedSocket",
    "admit",
    "name_of",
    "own_route",
    "person_of",
    "refusal",
    "request_id_of",
    "route",
    "socket_route",
)
