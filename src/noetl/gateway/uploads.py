"""The bodies of calls that are passed on: counted while they come, read when they name a run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import ClientDisconnect

from noetl.edge.door import BODY
from noetl.edge.errors import RequestTimeout, TooLarge, Unacceptable
from noetl.edge.problems import header
from noetl.edge.reading import IDLE_BODY_S, TIME_LIMIT, body_of, length_of
from noetl.gateway.shards import id_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from noetl.gateway.paths import Target


async def body_of_call(
    request: Request, target: Target
) -> tuple[bytes | AsyncIterator[bytes], int | None, bool]:
    """The body as a whole when it is here or must be read; its size; whether it was unpacked."""
    if target.has_events:
        is_packed = header(request, b"content-encoding") is not None
        return await body_of(request, target.most_bytes), None, is_packed
    whole: bytes | None = request.scope.get(BODY)
    if whole is not None:
        return whole, None, False
    size = length_of(request)
    if size is not None and size > target.most_bytes:
        raise TooLarge(f"the body has more than {target.most_bytes} bytes")
    if size == 0 or (size is None and header(request, b"transfer-encoding") is None):
        return b"", None, False
    limit: asyncio.Timeout | None = request.scope.get(TIME_LIMIT)
    if limit is not None:
        limit.reschedule(None)  # each part has a time of its own, and the server has its
    return _counted(request, target.most_bytes), size, False


async def _counted(request: Request, most: int) -> AsyncIterator[bytes]:
    """The body as it comes, as long as it is not too large or too slow."""
    size, is_coming = 0, True
    while is_coming:
        try:
            async with asyncio.timeout(IDLE_BODY_S):
                message = await request.receive()
        except TimeoutError:
            raise RequestTimeout("the body came too slowly", hint="send it at once") from None
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        is_coming = message.get("more_body", False)
        part = message.get("body", b"")
        size += len(part)
        if size > most:
            raise TooLarge(f"the body has more than {most} bytes")
        if part:
            yield part


class _Event(msgspec.Struct):
    execution_id: str | int | None = None


class _Events(msgspec.Struct):
    execution_id: str | int | None = None
    events: list[_Event] = []


_events: Final = msgspec.json.Decoder(_Events)


def run_of(request: Request, target: Target, body: bytes | AsyncIterator[bytes]) -> str | None:
    """The run that the body names, else the one that a header does."""
    found = run_of_events(body) if target.has_events and isinstance(body, bytes) else None
    return found or id_of((header(request, b"x-execution-id") or "").strip())


def run_of_events(body: bytes) -> str | None:
    """The run of events; one that cannot be read is for the server to refuse."""
    try:
        told = _events.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    given = (told.execution_id, *(event.execution_id for event in told.events))
    found = {id_of(one) for one in given if one is not None}
    if len(found) > 1:
        raise Unacceptable(
            "the events are of several runs",
            hint="send the events of one run at a time",
            errors=({"pointer": "/events", "code": "validation_failed"},),
        )
    return next(iter(found), None)
