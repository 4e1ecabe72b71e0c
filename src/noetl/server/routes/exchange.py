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
from noetl.server.access import admit
from noetl.server.bodies import Unpacking, must_be_plain, not_json
from noetl.server.errors import BadMediaType, RequestTimeout, TooLarge, Unacceptable
from noetl.server.moments import moment_of
from noetl.server.permissions import PERMISSIONS, PUBLIC
from noetl.server.problems import answer_of, named

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from noetl.server.plane import Plane
    from noetl.server.routes.declared import Declared, Parameter

T = TypeVar("T")

MOST_BYTES: Final = 2 * 1024 * 1024
MOST_REPORT_BYTES: Final = 8 * 1024 * 1024
MOST_BATCH_BYTES: Final = 16 * 1024 * 1024
MOST_RESULT_BYTES: Final = 64 * 1024 * 1024
REQUEST_S: Final = 60.0
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
_LIMIT: Final = "noetl.limit"
_ID: Final = "noetl.request_id"
_log: Final = logging.getLogger(__name__)
_encode: Final = msgspec.json.Encoder().encode


# ---------------------------------------------------------------------------------- in


async def body_of(request: Request, most: int = MOST_BYTES) -> bytes:
    """The body, counted while it comes; a gzip one is counted as it expands."""
    limit: asyncio.Timeout | None = request.scope.get(_LIMIT)
    deadline = limit.when() if limit is not None else None
    packing = _packing(request, most)
    parts: list[bytes] = []
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
        parts.append(part)
    if limit is not None:
        limit.reschedule(deadline)
    if packing is not None:
        packing.end()
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _wait_for_part(limit: asyncio.Timeout, deadline: float | None) -> None:
    next_part = asyncio.get_running_loop().time() + IDLE_BODY_S
    limit.reschedule(next_part if deadline is None else min(next_part, deadline))


def _packing(request: Request, most: int) -> Unpacking | None:
    word = request.headers.get("content-encoding", "identity").strip().lower()
    if word in {"identity", ""}:
        return None
    if word != "gzip":
        raise BadMediaType(f"the server does not unpack {word!r}", hint="send gzip, or plain JSON")
    return Unpacking(most)


async def read(request: Request, kind: type[T], most: int = MOST_BYTES) -> T:
    """The body as its model; an empty one is the model of an empty object."""
    media_type = request.headers.get("content-type")
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


def known(request: Request, *names: str) -> None:
    """Refuse a query name that the route does not have, and one that stands twice."""
    seen = set()
    for name, _ in request.query_params.multi_items():
        if name not in names:
            raise Unacceptable(f"the query has no `{name}`", code="unknown_parameter")
        if name in seen:
            raise Unacceptable(f"`{name}` stands twice in the query", code="bad_value")
        seen.add(name)


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
    declared: Declared | None


def route(  # noqa: PLR0913, PLR0917 - a route is what it does, and what it says about itself
    plane: Plane,
    method: str,
    path: str,
    answer: Callable[[Plane, Request], Awaitable[Response]],
    permission: str,
    declared: Declared | None = None,
) -> Route:
    """A route whose errors are problems, and that asks who may call it."""
    if permission not in PERMISSIONS and permission != PUBLIC:
        raise ValueError(f"{method} {path} asks for {permission!r}, which is no permission")
    exchange = _Exchange(plane, method, path, answer, permission, declared)
    made = Named(path, exchange.endpoint, methods=[method])
    made.permission = permission
    made.declared = declared
    return made


class _Exchange:
    """One route at work."""

    def __init__(  # noqa: PLR0913, PLR0917 - as `route`
        self,
        plane: Plane,
        method: str,
        path: str,
        answer: Callable[[Plane, Request], Awaitable[Response]],
        permission: str,
        declared: Declared | None,
    ) -> None:
        self._plane = plane
        self._declared = declared
        self._name = (method, path)
        self._answer = answer
        self._permission = permission
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
            response = self._refusal(error, request_id)
        response.raw_headers.append((b"x-request-id", request_id.encode("ascii")))
        if self._is_write:
            took = clock.monotonic() - began
            self._plane.metrics.wrote(self._name[1], response.status_code, took)
            if _log.isEnabledFor(logging.DEBUG):
                self._told(request_id, response.status_code, took)
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
        admit(scope, await plane.access.caller(request, self._permission))
        if self._declared is not None and scope["query_string"]:
            _must_be_declared(request, self._declared.query)
        if plane.parts.is_open:  # the caller is part of this process, and waits as long as it likes
            return await self._answer(plane, request)
        limit = asyncio.timeout(REQUEST_S)
        try:
            async with limit:
                scope[_LIMIT] = limit
                return await self._answer(plane, request)
        except TimeoutError:
            if not limit.expired():
                raise
            raise RequestTimeout(
                "the request took too long", hint="send the body at once"
            ) from None

    def _refusal(self, error: Exception, request_id: str) -> Response:
        if isinstance(error, ClientDisconnect):
            return Response(status_code=_CLIENT_GONE)  # which nobody will read
        if not isinstance(error, NoetlError):
            _log.error("a request has failed", exc_info=error, extra=self._fields(request_id))
        elif error.status >= 500:  # noqa: PLR2004 - the server's own fault
            _log.warning(
                "a request was not served",
                extra={**self._fields(request_id), "code": error.code, "reason": error.message},
            )
        return answer_of(error, request_id)

    def _told(self, request_id: str, status: int, took: float) -> None:
        more = {"status": status, "duration_ms": round(took * 1000, 3)}
        _log.debug("a write was answered", extra={**self._fields(request_id), **more})

    def _fields(self, request_id: str) -> dict[str, Any]:
        method, path = self._name
        return {"request_id": request_id, "method": method, "path": path}
