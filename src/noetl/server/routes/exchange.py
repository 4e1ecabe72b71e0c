"""Routes of the server: who may call them, how long they take, what becomes of their errors."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from noetl.api.executions import MOST_START_BYTES
from noetl.edge.door import BODY, LATE, REQUEST_S
from noetl.edge.errors import PoolSaturated, RequestTimeout
from noetl.edge.problems import REQUEST_ID, answer_of, named
from noetl.edge.reading import TIME_LIMIT, must_be_declared, request_id_of
from noetl.errors import NoetlError
from noetl.ids import random_key
from noetl.server.access.entry import admit
from noetl.server.access.permissions import ANYBODY, PERMISSIONS, PUBLIC
from noetl.telemetry.failpoint import armed, failpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from noetl.edge.declared import Declared
    from noetl.server.access.caller import Caller
    from noetl.server.plane import Plane

MOST_REPORT_BYTES: Final = 8 * 1024 * 1024
MOST_BATCH_BYTES: Final = MOST_START_BYTES
MOST_RESULT_BYTES: Final = 64 * 1024 * 1024
SERVER_FAULT: Final = 500
_READS: Final = ("GET", "HEAD")
_UNCHANGED: Final = 304
"""The caller has it: nothing was done."""
_CLIENT_GONE: Final = 499
_CALLER: Final = "noetl.caller"
_log: Final = logging.getLogger(__name__)


class Named(Route):
    """A route that says which permission it asks for."""

    permission: str
    declared: Declared


def route(  # noqa: PLR0913, PLR0917 - a route is what it does, and what it says about itself
    plane: Plane,
    method: str,
    path: str,
    answer: Callable[[Plane, Request], Awaitable[Response]],
    permission: str,
    declared: Declared,
) -> Route:
    """A route whose errors are problems, and that asks who may call it."""
    if permission not in PERMISSIONS and permission not in {PUBLIC, ANYBODY}:
        raise ValueError(f"{method} {path} asks for {permission!r}, which is no permission")
    exchange = _Exchange(plane, method, path, answer, permission, declared)
    made = Named(path, exchange.endpoint, methods=[method])
    whole = made.path_regex.pattern.removesuffix("$")
    made.path_regex = re.compile(rf"{whole}\Z")  # `$` would let a line end stand behind it
    made.permission = permission
    made.declared = declared
    return made


def internal_route(
    plane: Plane,
    method: str,
    path: str,
    answer: Callable[[Plane, Request], Awaitable[Response]],
    declared: Declared,
) -> Route:
    """A route for the platform's own processes."""
    return route(plane, method, f"/api/internal/{path}", answer, "internal", declared)


class _Exchange:
    """One route at work."""

    def __init__(  # noqa: PLR0913, PLR0917 - as `route`
        self,
        plane: Plane,
        method: str,
        path: str,
        answer: Callable[[Plane, Request], Awaitable[Response]],
        permission: str,
        declared: Declared,
    ) -> None:
        self._plane = plane
        self._declared = declared
        self._name = (method, path)
        self._answer = answer
        self._permission = permission
        self._action = declared.audit
        self._services = declared.services
        self._is_write = method not in _READS
        self._prefix = f"r-{random_key()[:16]}"
        self._count = 0

    async def endpoint(self, request: Request) -> Response:
        """The answer, whatever happens."""
        scope, clock = request.scope, self._plane.parts.clock
        scope[REQUEST_ID] = request_id = named(request) or self._minted()
        began = clock.monotonic()
        try:
            response = await (self._written(request) if self._is_write else self._answered(request))
        except Exception as error:  # noqa: BLE001 - the border: every error of a route is an answer
            response = self._refusal(error, request)
            if not self._plane.parts.is_open:
                self._plane.audits.failed(request, error, self._action, " ".join(self._name))
        response.raw_headers.append((b"x-request-id", request_id.encode("ascii")))
        if self._is_write:
            if armed:
                await failpoint("server.reply")
            took = clock.monotonic() - began
            self._plane.metrics.wrote(self._name[1], response.status_code, took)
            if _log.isEnabledFor(logging.DEBUG):
                self._told(request, response.status_code, took)
        return response

    def _minted(self) -> str:
        """A name that no other route and no other process gives."""
        self._count += 1
        return f"{self._prefix}-{self._count}"

    async def _written(self, request: Request) -> Response:
        access = self._plane.access
        access.begin()
        try:
            return await self._answered(request)
        finally:
            access.end()

    async def _answered(self, request: Request) -> Response:
        plane, scope = self._plane, request.scope
        admit(scope, await plane.access.caller(request, self._permission, self._services))
        if scope["query_string"]:
            must_be_declared(request, self._declared.query)
        if plane.parts.is_open:  # the caller is part of this process, and waits as long as it likes
            return await self._answer(plane, request)
        # When nothing more is to come, the listener looks at the time.
        response = await (self._watched(request) if BODY in scope else self._limited(request))
        if self._action is not None and response.status_code != _UNCHANGED:
            await plane.audits.did(request, self._action)
        return response

    async def _limited(self, request: Request) -> Response:
        limit = asyncio.timeout(REQUEST_S)
        try:
            async with limit:
                request.scope[TIME_LIMIT] = limit
                return await self._answer(self._plane, request)
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimeout(
                "the request took too long", hint="send the body at once"
            ) from None

    async def _watched(self, request: Request) -> Response:
        try:
            return await self._answer(self._plane, request)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not request.scope.pop(LATE, False):
                raise
            task.uncancel()
            raise RequestTimeout("the request took too long", hint="try again") from None

    def _refusal(self, error: Exception, request: Request) -> Response:
        if isinstance(error, ClientDisconnect):
            return Response(status_code=_CLIENT_GONE)  # which nobody will read
        if not isinstance(error, NoetlError):
            _log.error("a request has failed", exc_info=error, extra=self._fields(request))
        # Whoever asks for too much is not to fill the log, too; the backlog tells of it.
        elif error.status >= SERVER_FAULT and not isinstance(error, PoolSaturated):
            _log.warning(
                "a request was not served",
                extra={**self._fields(request), "code": error.code, "reason": error.message},
            )
        return answer_of(error, request_id_of(request), self._plane.parts.seen)

    def _told(self, request: Request, status: int, took: float) -> None:
        more = {"status": status, "duration_ms": round(took * 1000, 3)}
        _log.debug("a write was answered", extra={**self._fields(request), **more})

    def _fields(self, request: Request) -> dict[str, Any]:
        """Which request a line of the log is about, whose it is, and of which run."""
        method, path = self._name
        told = {"request_id": request_id_of(request), "method": method, "path": path}
        run = request.path_params.get("execution_id", "")
        if run.isascii() and run.isdigit():
            told["execution_id"] = run
        caller: Caller | None = request.scope.get(_CALLER)
        if caller is not None:
            told |= {"account": caller.account, "tenant": caller.tenant_id}
        return told
