"""Streams of events: the answer that does not end before its run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import StreamingResponse

from noetl.edge.declared import EVENTS, Declared, Parameter
from noetl.edge.errors import Unacceptable
from noetl.errors import NoetlError
from noetl.ids import parse
from noetl.server.access.entry import caller_of
from noetl.server.access.owning import owned
from noetl.server.routes.exchange import SERVER_FAULT, route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send

    from noetl.server.plane import Plane
    from noetl.server.reading.stream import Stream, Streams

    Still = Callable[[], Awaitable[None]]

LOOK_S: Final = 2.0
"""How often it is looked whether a reader may still read, by what is at most as old: so whoever
lost the right is cut off within five seconds."""
_READ: Final = "execution:read"
_HEADERS: Final = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    path = "/api/executions/{execution_id}/events/stream"
    declared = Declared(
        about="Tells the events of a run as they are committed, as server-sent events.",
        media_type=EVENTS,
        query=(
            Parameter("since_event_id", "Behind this event; `Last-Event-ID` wins.", "id"),
            Parameter("fields", "`full`: with payloads.", words=("lean", "full")),
        ),
    )
    return [route(plane, "GET", path, _stream, _READ, declared)]


async def _stream(plane: Plane, request: Request) -> Response:
    execution_id = await owned(plane, request, _READ)
    await plane.owners.of(execution_id)
    fields = request.query_params.get("fields", "lean")
    if fields not in {"lean", "full"}:
        raise Unacceptable("`fields` is neither `lean` nor `full`")
    since = request.headers.get("last-event-id") or request.query_params.get("since_event_id")
    after = 0 if since is None else await plane.history.seq_of(execution_id, parse(since))
    reader = plane.streams.open(
        execution_id, after, caller_of(request).account, is_lean=fields == "lean"
    )
    if plane.spans is not None:
        plane.spans.opened(request.headers, execution_id, plane.spans.tracer.monotonic())
    return EventStream(plane.streams, reader, guard(plane, request, _READ, execution_id))


def guard(
    plane: Plane, request: Request, permission: str, execution_id: str | None = None
) -> Still | None:
    """Looks whether a caller may still read; none when nobody is asked who he is."""
    if plane.parts.is_open:
        return None

    async def still() -> None:
        caller = await plane.access.again(request, permission, LOOK_S)
        if execution_id is not None:
            await plane.owners.must(caller, permission, execution_id)

    return still


class EventStream(StreamingResponse):
    """Sends what a reader gives; cuts off who does not take it, or may not have it any more."""

    def __init__(self, streams: Streams, reader: Stream, still: Still | None = None) -> None:
        self._still = still
        super().__init__(reader.frames(), media_type=EVENTS, headers=_HEADERS)
        self._streams = streams
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the stream ends, the client leaves, or falls too far behind."""
        del scope
        sending = asyncio.ensure_future(self.stream_response(send))
        leaving = asyncio.ensure_future(self.listen_for_disconnect(receive))
        dropping = asyncio.ensure_future(self._reader.dropped.wait())
        tasks: set[asyncio.Future[Any]] = {sending, leaving, dropping}
        if self._still is not None:
            tasks.add(asyncio.ensure_future(_ousted(self._still)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await sending
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._streams.close(self._reader)


async def _ousted(still: Still) -> None:
    """Come back when the caller may not read any more; a store that is away ends nothing."""
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            await still()
        except NoetlError as refusal:
            if refusal.status < SERVER_FAULT and not refusal.retryable:
                return
