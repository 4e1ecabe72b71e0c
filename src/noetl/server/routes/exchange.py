"""Reading requests and writing answers, the same way on every route."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from noetl.api.models import decoder_of
from noetl.errors import NoetlError
from noetl.server.errors import BadJson, TooLarge, Unacceptable
from noetl.server.problems import answer_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from noetl.server.plane import Plane

T = TypeVar("T")

MOST_BYTES: Final = 2 * 1024 * 1024
MOST_REPORT_BYTES: Final = 8 * 1024 * 1024
MOST_RESULT_BYTES: Final = 64 * 1024 * 1024
JSON: Final = "application/json"

_STEP: Final = re.compile(r"\.([^.\[]+)|\[([^\]]*)\]")
_log: Final = logging.getLogger(__name__)
_encode: Final = msgspec.json.Encoder().encode


async def body_of(request: Request, most: int = MOST_BYTES) -> bytes:
    """The body, counted while it comes."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise TooLarge(f"the body has more than {most} bytes")
        if part:
            parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def read(request: Request, kind: type[T], most: int = MOST_BYTES) -> T:
    """The body as its model; an empty one is the model of an empty object."""
    data = await body_of(request, most)
    try:
        made = decoder_of(kind).decode(data or b"{}")
    except msgspec.ValidationError as fault:
        raise _unacceptable(str(fault)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise BadJson(f"the body is not JSON: {fault}") from None
    return made


def _unacceptable(message: str) -> Unacceptable:
    """What a decoder says of a body, with a pointer to the place."""
    what, _, place = message.partition(" - at `")
    pointer = _STEP.sub(r"/\1\2", place.rstrip("`").removeprefix("$"))
    code = "validation_failed"
    if "unknown field" in what:
        code = "unknown_field"
        pointer += "/" + what.partition("`")[2].partition("`")[0]
    return Unacceptable(message, code=code, errors=({"pointer": pointer, "code": code},))


def json(value: object, status: int = 200) -> Response:
    """An answer."""
    return Response(_encode(value), status_code=status, media_type=JSON)


def number(request: Request, name: str, default: int, most: int) -> int:
    """A whole number of the query, within its bounds."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()):
        raise Unacceptable(f"`{name}` is not a whole number")
    return min(int(text), most)


def known(request: Request, *names: str) -> None:
    """Refuse a query name that the route does not have."""
    for name in request.query_params:
        if name not in names:
            raise Unacceptable(f"the query has no `{name}`", code="unknown_parameter")


def route(
    plane: Plane,
    method: str,
    path: str,
    answer: Callable[[Plane, Request], Awaitable[Response]],
) -> Route:
    """A route whose errors are problems."""

    async def endpoint(request: Request) -> Response:
        try:
            return await answer(plane, request)
        except Exception as error:  # noqa: BLE001 - the border: every error of a route is an answer
            if not isinstance(error, NoetlError):
                _log.error("%s %s has failed", method, path, exc_info=error)
            return answer_of(error)

    return Route(path, endpoint, methods=[method])
