"""Server-sent events: one task per client, one write for all that waits."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from noetl.edge.declared import EVENTS
from noetl.edge.door import ABORT
from noetl.gateway import frames

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from noetl.clock import Clock
    from noetl.gateway.hub import Hub
    from noetl.gateway.hub.stream import Ending, Stream

RETRY_MS: Final = (1000, 3000)
"""When a client comes back that lost its stream; each at another time."""
NAMED: Final = "named"
UNNAMED: Final = "message"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def named(frame: bytes, event_id: str) -> bytes:
    """A message under its own name."""
    return frames.sse(frame, event_id, frames.kind_of(frame))


def unnamed(frame: bytes, event_id: str) -> bytes:
    """A message for those who look at its method."""
    return frames.sse(frame, event_id)


WIRES: Final = {NAMED: named, UNNAMED: unnamed}


def opening(init: dict[str, object], kind: str) -> bytes:
    """The first bytes of a stream."""
    body = frames.line(frames.answer(1, init))
    retry = b"retry: %d\n\n" % random.randint(*RETRY_MS)  # noqa: S311 - spreads load, hides nothing
    if kind == UNNAMED:
        return retry + frames.sse(body)
    return retry + frames.sse(body, name=frames.INIT) + frames.sse(body, name="message")


class EventStream(Response):
    """Sends what a stream has until it ends or its client leaves."""

    def __init__(self, hub: Hub, clock: Clock, stream: Stream, first: bytes, kind: str) -> None:
        super().__init__(media_type=EVENTS, headers=_HEADERS)
        del self.headers["content-length"]
        self._hub = hub
        self._clock = clock
        self._stream = stream
        self._first = first
        self._wire = WIRES[kind]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send; whoever hears callers cancels this when one has left."""
        del receive
        stream, task = self._stream, asyncio.current_task()
        stream.abort = scope.get(ABORT) or (task.cancel if task is not None else None)
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            await self._write(send, self._first)
            while chunks := await stream.next():
                await self._write(send, b"".join(chunks))
            await self._write(send, self._last(stream.ending), is_last=True)
        except asyncio.CancelledError:
            if not stream.is_cut or scope.get(ABORT) is not None or task is None:
                raise
            task.uncancel()  # it was ours: the reader took nothing any more
        finally:
            await self._hub.close(stream)

    async def _write(self, send: Send, data: bytes, *, is_last: bool = False) -> None:
        self._stream.writing_since = self._clock.monotonic()
        await send({"type": "http.response.body", "body": data, "more_body": not is_last})
        self._stream.writing_since = None

    def _last(self, ending: Ending | None) -> bytes:
        """What a client is told that was not told why the stream ends."""
        if ending is None or ending.frame is not None:
            return b"retry: %d\n\n" % ending.retry_ms if ending and ending.retry_ms else b""
        return self._wire(frames.closing(frames.ERROR, ending.reason), "")
