"""Reading requests and writing answers, the same way in every process that is asked."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from noetl.api.commands import Claim, Claimer, Heartbeat, HeldOne, Release
from noetl.api.events import LogBatch, Reports
from noetl.api.models import decoder_of
from noetl.api.subscriptions import PutDeadLetter
from noetl.edge.bodies import CODINGS, Unpacking, must_be_plain, not_json
from noetl.edge.door import BODY, REQUEST_S
from noetl.edge.errors import BadMediaType, TooLarge, Unacceptable
from noetl.edge.moments import moment_of
from noetl.edge.problems import REQUEST_ID, header

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from starlette.requests import Request

T = TypeVar("T")

MOST_BYTES: Final = 2 * 1024 * 1024
IDLE_BODY_S: Final = 10.0
JSON: Final = "application/json"
TIME_LIMIT: Final = "noetl.limit"

# The reports of workers come from our own encoder, are the most of all bodies, and carry what user
# code returned: any text, however deep. So does a dead letter, and nobody else would keep that.
_HOT: Final[frozenset[type]] = frozenset(
    {Claim, Claimer, Heartbeat, HeldOne, LogBatch, PutDeadLetter, Release, Reports}
)
_OF_IDS: Final = re.compile(r"_ids?(/[^/]*)?\Z")
_STEP: Final = re.compile(r"\.([^.\[]+)|\[([^\]]*)\]")
_encode: Final = msgspec.json.Encoder().encode


class Asked(Protocol):
    """A name that may stand in a query."""

    @property
    def name(self) -> str:
        """How it is written."""

    @property
    def is_repeated(self) -> bool:
        """Whether it may stand there more than once."""


async def body_of(request: Request, most: int = MOST_BYTES) -> bytes:
    """The whole body."""
    whole: bytes | None = request.scope.get(BODY)
    if whole is not None and header(request, b"content-encoding") is None:
        if len(whole) > most:
            raise TooLarge(f"the body has more than {most} bytes")
        return whole
    parts = [part async for part in parts_of(request, most)]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def length_of(request: Request) -> int | None:
    """How many bytes the body has, as its sender says; none: nothing is said."""
    told = header(request, b"content-length") or ""
    return int(told) if told.isascii() and told.isdigit() else None


async def parts_of(
    request: Request, most: int = MOST_BYTES, *, is_long: bool = False
) -> AsyncIterator[bytes]:
    """The body as it comes, counted; a packed one is counted as it expands.

    A long one may take any time as long as it comes; what follows has a request's time again.
    """
    limit: asyncio.Timeout | None = request.scope.get(TIME_LIMIT)
    deadline = limit.when() if limit is not None and not is_long else None
    packing = _packing(request, most)
    if packing is None and (length_of(request) or 0) > most:
        raise TooLarge(f"the body has more than {most} bytes")
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


def must_be_declared(request: Request, query: Iterable[Asked]) -> None:
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


def json(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer."""
    return Response(_encode(value), status_code=status, media_type=JSON, headers=headers)


def request_id_of(request: Request) -> str:
    """The name of a request: the caller's own, or one that was made for it."""
    found: str = request.scope[REQUEST_ID]
    return found
