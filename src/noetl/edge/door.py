"""From a request to its route: a fixed path is found by one look, another one among its like."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Match, Route

from noetl.edge.problems import refused
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.routing import BaseRoute
    from starlette.types import Receive, Scope, Send

GONE: Final = "noetl.gone"
"""Set in the scope of a request whose caller has left."""
LATE: Final = "noetl.late"
"""Set in the scope of a request that takes too long."""
PATIENT: Final = "noetl.patient"
"""Set in the scope of a request that sets bounds to its waiting itself."""
BODY: Final = "noetl.body"
"""The whole body of a request, when it had come before the request was begun."""
ABORT: Final = "noetl.abort"
"""Ends a connection at once, whatever its caller has not read yet."""
HEARD: Final = "noetl.heard"
"""Called when the other end of a WebSocket has answered a ping of the protocol."""
REQUEST_S: Final = 60.0
"""How long a request may take."""
SLOW: Final = "noetl.slow"
"""What is called with seconds for which the next request of a connection waits, unread."""
REPLY: Final = "noetl.reply"
"""Writes a whole answer at once: status, headers, body; false when it cannot now."""


class UndeclaredRoute(NoetlError):
    """A route that does not say who may call it: deny by default means that it cannot exist."""

    code = "undeclared_route"


class Door:
    """The ASGI app of a process; routes that are no `Route`, as WebSockets, are the router's."""

    def __init__(self, known: Sequence[BaseRoute]) -> None:
        must_declare(known)
        self.routes = routes = tuple(route for route in known if isinstance(route, Route))
        self._app = Starlette(routes=known, exception_handlers={404: refused, 405: refused})
        self._app.router.redirect_slashes = False
        self._app.router.default = _nowhere
        self._fixed: dict[tuple[str, str], Callable[[Request], Awaitable[Response]]] = {
            (method, route.path): route.endpoint
            for route in routes
            if "{" not in route.path
            for method in route.methods or ()
            if method != "HEAD"
        }
        self._alike: dict[tuple[str, str], list[tuple[int, Route]]] = {}
        for route in routes:
            if "{" in route.path:
                # A name that may hold slashes fits any number of them.
                parts = 0 if ":path}" in route.path else route.path.count("/")
                for method in (route.methods or set()) - {"HEAD"}:
                    alike = self._alike.setdefault((method, _begin(route.path)), [])
                    alike.append((parts, route))

    def _found(self, scope: Scope) -> Callable[[Request], Awaitable[Response]] | None:
        """What answers a request; none when the router is to say what is wrong with it."""
        method, path = scope.get("method", ""), scope.get("path", "")
        endpoint = self._fixed.get((method, path))
        if endpoint is not None:
            return endpoint
        slashes, begin = path.count("/"), _begin(path)
        above = begin.rpartition("/")[0]
        alike = self._alike.get((method, begin)) or self._alike.get((method, above))
        for parts, route in alike or ():
            if parts in {0, slashes}:
                match, more = route.matches(scope)
                if match is Match.FULL:
                    scope.update(more)
                    found: Callable[[Request], Awaitable[Response]] = route.endpoint
                    return found
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            endpoint = self._found(scope)
            if endpoint is None:
                await self._app(scope, receive, send)
                return
            response = await endpoint(Request(scope, receive, send))
            if not _is_written(scope, response):
                await response(scope, receive, send)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not scope.get(GONE) or task is None:
                raise
            task.uncancel()  # there is nobody left to answer


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    """There is no such route; an upgrade is told so in the same words."""
    missing = HTTPException(HTTPStatus.NOT_FOUND)
    if scope["type"] != "websocket":
        raise missing  # which the app answers
    response = await refused(HTTPConnection(scope), missing)
    await response(scope, receive, send)


def _begin(path: str) -> str:
    """What comes before the first name or the third slash of a path."""
    parts = path.split("/", 3)[:3]
    return "/".join(parts[:-1] if "{" in parts[-1] else parts)


def _is_written(scope: Scope, response: Response) -> bool:
    """Whether an answer that is whole could be written at once."""
    reply = scope.get(REPLY)
    if reply is None or type(response) is not Response or response.background is not None:
        return False
    return bool(reply(response.status_code, response.raw_headers, response.body))


def must_declare(routes: Sequence[BaseRoute]) -> None:
    """Refuse to start with a route that asks for no permission, not even `public`."""
    for route in routes:
        declared: Any = getattr(route, "permission", None)
        if not declared:
            name = getattr(route, "path", repr(route))
            methods = ",".join(sorted(getattr(route, "methods", None) or ()))
            raise UndeclaredRoute(
                f"the route {methods} {name} declares no permission",
                hint="make it with `route(..., permission)`; `public` is one",
            )
