"""Lines of a run as its steps write them, until it has ended and nothing more comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.edge.errors import Unacceptable
from noetl.edge.moments import moment_of
from noetl.errors import NoetlError
from noetl.ids import parse
from noetl.server.reading.elsewhere import POLL_S
from noetl.server.reading.stream import PING, PING_S, RETRY, last
from noetl.server.signals import sleep_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from noetl.engine.events import Recorded
    from noetl.server.reading.listing import LinesQuery
    from noetl.server.reading.stream import Streams
    from noetl.store.base import Line

GRACE_S: Final = 2.0
"""Lines travel apart from events: the last ones may come after the end of their run."""
_PAGE: Final = 500
_PARTS: Final = 4
_encode: Final = msgspec.json.Encoder().encode

Place = tuple[str, str, int, int]


class Tail:
    """One stream of lines."""

    def __init__(
        self,
        streams: Streams,
        execution_id: str,
        account: str,
        query: LinesQuery,
        after: Place | None,
    ) -> None:
        self.execution_id = execution_id
        self.account = account
        self.dropped = asyncio.Event()
        self._streams = streams
        self._query = query
        self._after = after
        self._is_over = False
        self._wake = asyncio.Event()

    def hear(self, events: Sequence[Recorded]) -> None:  # noqa: ARG002 - as every stream is told
        """Lines were written, or a commit may have ended the run."""
        self._wake.set()

    def end(self) -> None:
        """Stop, as soon as what is being sent was sent."""
        self._is_over = True
        self._wake.set()

    async def frames(self) -> AsyncIterator[bytes]:
        """The stream, until the run has ended or the reader must go."""
        clock = self._streams.clock
        yield RETRY
        told_at = clock.monotonic()
        ended_at: float | None = None
        try:
            while not self._is_over:
                status = await self._status_at_end()
                page = await self._page()
                now = clock.monotonic()
                found = [line_frame(line) for line in page if self._query.fits(line)]
                if found:
                    yield b"".join(found)
                    told_at = now
                if page:
                    continue
                ended_at = now if status is not None and ended_at is None else ended_at
                if status is not None and ended_at is not None and now - ended_at >= GRACE_S:
                    yield last(self.execution_id, status)
                    return
                if now - told_at >= PING_S:
                    yield PING
                    told_at = now
                await sleep_until(self._wake, POLL_S)
        except NoetlError as fault:
            if not fault.retryable:
                raise

    async def _status_at_end(self) -> str | None:
        row = await self._streams.store.executions.get(self.execution_id)
        return None if row is None or row.completed_at is None else row.status

    async def _page(self) -> list[Line]:
        page = await self._streams.store.output.read(
            self.execution_id, step=self._query.step, after=self._after, limit=_PAGE
        )
        if page:
            line = page[-1]
            self._after = (line.ts, line.command_id, line.attempt, line.n)
        return page


def line_frame(line: Line) -> bytes:
    """A line as an event of the stream; its id is its place."""
    place = f"{line.ts}|{line.command_id}|{line.attempt}|{line.n}"
    return b"id: %b\nevent: log\ndata: %b\n\n" % (place.encode(), _encode(line))


def place_of(text: str) -> Place:
    """The place that the id of a line names."""
    parts = text.split("|")
    if len(parts) != _PARTS or not all(part.isascii() and part.isdigit() for part in parts[2:]):
        raise Unacceptable("`Last-Event-ID` is not the place of a line")
    return moment_of(parts[0], "last-event-id"), parse(parts[1]), int(parts[2]), int(parts[3])
