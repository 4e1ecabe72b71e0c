"""Streams of events: the answer that does not end before its run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from starlette.responses import StreamingResponse

from noetl.ids import parse
from noetl.server.access import caller_of
from noetl.server.errors import Unacceptable
from noetl.server.routes.exchange import known, route

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send

    from noetl.server.plane import Plane
    from noetl.server.stream import Stream, Streams

_HEADERS: Final = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}


def routes(plane: Plane) -> list[Route]:
    """Every route of this file."""
    path = "/api/executions/{execution_id}/events/stream"
    return [route(plane, "GET", path, _stream, "execution:read")]


async def _stream(plane: Plane, request: Request) -> Response:
    known(request, "since_event_id", "fields")
    execution_id = parse(request.path_params["execution_id"])
    await plane.details.row(execution_id)
    fields = request.query_params.get("fields", "lean")
    if fields not in {"lean", "full"}:
        raise Unacceptable("`fields` is neither `lean` nor `full`")
    since = request.headers.get("last-event-id") or request.query_params.get("since_event_id")
    after = 0 if since is None else await plane.history.seq_of(execution_id, parse(since))
    reader = plane.streams.open(
        execution_id, after, caller_of(request).account, is_lean=fields == "lean"
    )
    return EventStream(plane.streams, reader)


class EventStream(StreamingResponse):
    """Sends what a reader gives, and cuts off whoever does not take it."""

    def __init__(self, streams: Streams, reader: Stream) -> None:
        super().__init__(reader.frames(), media_type="text/event-stream", headers=_HEADERS)
        self._streams = streams
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the stream ends, the client leaves, or falls too far behind."""
        sending = asyncio.ensure_future(super().__call__(scope, receive, send))
        dropping = asyncio.ensure_future(self._reader.dropped.wait())
        try:
            await asyncio.wait({sending, dropping}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await sending
        finally:
            for task in (sending, dropping):
                task.cancel()
            await asyncio.gather(sending, dropping, return_exceptions=True)
            self._streams.close(self._reader)
