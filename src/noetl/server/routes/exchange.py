"""Reading requests and writing answers, the same way on every route."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Route

from noetl.api.commands import Claim, Claimer, Heartbeat, HeldOne, Release
from noetl.api.events import LogBatch, Reports
from noetl.api.models import decoder_of
from noetl.errors import NoetlError
from noetl.ids import random_key
from noetl.server.access.entry import admit
from noetl.server.access.permissions import ANYBODY, PERMISSIONS, PUBLIC
from noetl.server.edge.bodies import CODINGS, Unpacking, must_be_plain, not_json
from noetl.server.edge.door import BODY, LATE, REQUEST_S
from noetl.server.edge.errors import (
    BadMediaType,
    PoolSaturated,
    RequestTimeout,
    TooLarge,
    Unacceptable,
)
from noetl.server.edge.moments import moment_of
from noetl.server.edge.problems import answer_of, header, named
from noetl.telemetry.failpoint import armed, failpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.requests import Request

    from noetl.server.access.caller import Caller
    from noetl.server.plane import Plane
    from noetl.server.routes.declared import Declared, Parameter

T = TypeVar("T")

MOST_BYTES: Final = 2 * 1024 * 1024
MOST_REPORT_BYTES: Final = 8 * 1024 * 1024
MOST_BATCH_BYTES: Final = 16 * 1024 * 1024
MOST_RESULT_BYTES: Final = 64 * 1024 * 1024
IDLE_BODY_S: Final = 10.0
JSON: Final = "application/json"

# The reports of workers come from our own encoder, are the most of all bodies, and carry what user
# code returned: any text, however deep.
_HOT: Final[frozenset[type]] = frozenset(
    {Claim, Claimer, Heartbeat, HeldOne, LogBatch, Release, Reports}
)
_OF_IDS: Final = re.compile(r"_ids?(/[^/]*)?\Z")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[([^\]]*)\]")
_READS: Final = ("GET", "HEAD")
_CLIENT_GONE: Final = 499
SERVER_FAULT: Final = 500
_LIMIT: Final = "noetl.limit"
_ID: Final = "noetl.request_id"
_CALLER: Final = "noetl.caller"
_log: Final = logging.getLogger(__name__)
_encode: Final = msgspec.json.Encoder().encode


# ---------------------------------------------------------------------------------- in


async def body_of(request: Request, most: int = MOST_BYTES) -> bytes:
    """The whole body."""
    whole: bytes | None = request.scope.get(BODY)
    if whole is not None and header(request, b"content-encoding") is None:
        if len(whole) > most:
            raise TooLarge(f"the body has more than {most} bytes")
        return whole
    parts = [part async for part in parts_of(request, most)]
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def parts_of(
    request: Request, most: int = MOST_BYTES, *, is_long: bool = False
) -> AsyncIterator[bytes]:
    """The body as it comes, counted; a packed one is counted as it expands.

    A long one may take any time as long as it comes; what follows has a request's time again.
    """
    limit: asyncio.Timeout | None = request.scope.get(_LIMIT)
    deadline = limit.when() if limit is not None and not is_long else None
    packing = _packing(request, most)
    size, is_coming = 0, True
    while is_coming:
        if limit is not None:
            _wait_for_part(limit, deadline)
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        is_coming = message.get("more_body", False)
        if packing is not None and part:
            part = packing.feed(part)
        size += len(part)
        if size > most:
            raise TooLarge(f"the body has more than {most} bytes")
        if part:
            yield part
    if limit is not None:
        now = asyncio.get_running_loop().time()
        limit.reschedule(now + REQUEST_S if is_long else deadline)
    if packing is not None:
        packing.end()


def _wait_for_part(limit: asyncio.Timeout, deadline: float | None) -> None:
    next_part = asyncio.get_running_loop().time() + IDLE_BODY_S
    limit.reschedule(next_part if deadline is None else min(next_part, deadline))


def _packing(request: Request, most: int) -> Unpacking | None:
    word = (header(request, b"content-encoding") or "identity").strip().lower()
    if word in {"identity", ""}:
        return None
    if word not in CODINGS:
        hint = f"send {' or '.join(CODINGS)}, or plain bytes"
        raise BadMediaType(f"the server does not unpack {word!r}", hint=hint)
    return Unpacking(most, word)


async def read(request: Request, kind: type[T], most: int = MOST_BYTES) -> T:
    """The body as its model; an empty one is the model of an empty object."""
    media_type = header(request, b"content-type")
    if media_type is not None and "json" not in media_type.lower():
        raise BadMediaType(f"the body is {media_type[:100]!r}", hint=f"send {JSON}")
    data = await body_of(request, most) or b"{}"
    try:
        made = decoder_of(kind).decode(data)
    except msgspec.ValidationError as fault:
        must_be_plain(data)
        raise _unacceptable(str(fault)) from None
    except RecursionError:
        raise Unacceptable("the body is nested too deeply", code="bad_value") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise not_json(data, fault) from None
    if kind not in _HOT:
        must_be_plain(data)
    return made


def _unacceptable(message: str) -> Unacceptable:
    """What a decoder says of a body, with a pointer to the place."""
    what, _, place = message.partition(" - at `")
    pointer = _STEP.sub(r"/\1\2", place.rstrip("`").removeprefix("$"))
    code = "validation_failed"
    if "unknown field" in what:
        code = "unknown_field"
        pointer += "/" + what.partition("`")[2].partition("`")[0]
    elif what.startswith("Expected `int | str") and _OF_IDS.search(pointer):
        code = "invalid_id"
    return Unacceptable(message, code=code, errors=({"pointer": pointer, "code": code},))


def _must_be_declared(request: Request, query: tuple[Parameter, ...]) -> None:
    """Refuse a name that the route does not declare, and a single one that stands twice."""
    declared = {one.name: one for one in query}
    seen = set()
    for name, _ in request.query_params.multi_items():
        if name not in declared:
            raise Unacceptable(f"the query has no `{name}`", code="unknown_parameter")
        if name in seen and not declared[name].is_repeated:
            raise Unacceptable(f"`{name}` stands twice in the query", code="bad_value")
        seen.add(name)


def number(request: Request, name: str, default: int, most: int, least: int = 0) -> int:
    """A whole number of the query; one outside of its bounds is refused."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        raise _bad_parameter(name, f"is not a whole number in {least}..{most}")
    value = int(text)
    if not least <= value <= most:
        raise _bad_parameter(name, f"is not in {least}..{most}")
    return value


def boolean(request: Request, name: str, *, default: bool = False) -> bool:
    """A yes or no of the query."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if text not in {"true", "false", "1", "0"}:
        raise _bad_parameter(name, "is neither `true` nor `false`")
    return text in {"true", "1"}


def moment(request: Request, name: str) -> str | None:
    """A time of the query, in the one form of answers."""
    text = request.query_params.get(name)
    return None if text is None else moment_of(text, name)


def _bad_parameter(name: str, what: str) -> Unacceptable:
    return Unacceptable(
        f"`{name}` {what}", errors=({"pointer": f"/{name}", "code": "validation_failed"},)
    )


# --------------------------------------------------------------------------------- out


def json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer."""
    return Response(_encode(value), status_code=status, media_type=JSON, headers=headers)


def request_id_of(request: Request) -> str:
    """The name of a request: the caller's own, or one that was made for it."""
    found: str = request.scope[_ID]
    return found


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
        scope[_ID] = request_id = named(request) or self._minted()
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
            _must_be_declared(request, self._declared.query)
        if plane.parts.is_open:  # the caller is part of this process, and waits as long as it likes
            return await self._answer(plane, request)
        # When nothing more is to come, the listener looks at the time.
        response = await (self._watched(request) if BODY in scope else self._limited(request))
        if self._action is not None:
            await plane.audits.did(request, self._action)
        return response

    async def _limited(self, request: Request) -> Response:
        limit = asyncio.timeout(REQUEST_S)
        try:
            async with limit:
                request.scope[_LIMIT] = limit
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
