"""Events of a run as they are committed: from the log, and then straight from each commit.

A reader has a place in the log. What a commit of this server brings is queued for it when it
follows that place, and read from the store otherwise; so there is neither a gap nor a repetition,
whichever server wrote the events.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from noetl.edge.errors import Draining, RateLimited
from noetl.engine.events import TERMINAL
from noetl.errors import NoetlError
from noetl.server.reading.elsewhere import Elsewhere
from noetl.server.reading.history import PAGE, told
from noetl.server.signals import sleep_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from noetl.engine.events import Recorded
    from noetl.server.parts import ServerParts
    from noetl.server.signals import Signals

PING_S: Final = 15.0
PACE_S: Final = 0.05
"""How often a stream is written to; the end of a run is never kept back."""
RETRY: Final = b"retry: 2000\n\n"
PING: Final = b": ping\n\n"
MOST_BEHIND: Final = 1024 * 1024
MOST_FULL: Final = 64 * 1024
MOST_SHARED: Final = 256
CHUNK: Final = 64 * 1024
MOST_OF_ACCOUNT: Final = 200
MOST_STREAMS: Final = 5_000
_encode: Final = msgspec.json.Encoder().encode


class Stream(Protocol):
    """What is told of one run to one reader."""

    execution_id: str
    account: str
    dropped: asyncio.Event
    """The reader takes nothing any more, and is to be cut off."""

    def hear(self, events: Sequence[Recorded]) -> None:
        """A commit of this server."""

    def end(self) -> None:
        """Stop, as soon as what is being sent was sent."""

    def frames(self) -> AsyncIterator[bytes]:
        """What is sent, part by part."""


class Streams:
    """Every stream of this process."""

    def __init__(self, parts: ServerParts, signals: Signals) -> None:
        self.store = parts.store
        self.clock = parts.clock
        self.is_alone = parts.is_alone
        self.elsewhere = Elsewhere(parts.bus if parts.publishes else None)
        self.signals = signals
        self._of_account: dict[str, int] = {}
        self._open: dict[Stream, None] = {}
        self._frames: dict[tuple[str, int, bool], bytes] = {}
        self._is_closed = False

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._open)

    def open(self, execution_id: str, after: int, account: str, *, is_lean: bool) -> Reader:
        """A reader of a run behind a `seq`; give it back with `close`."""
        reader = Reader(self, execution_id, after, account, is_lean=is_lean)
        self.admit(reader)
        return reader

    def admit(self, reader: Stream) -> None:
        """Let a stream begin, if there is room for it; give it back with `close`."""
        account = reader.account
        if self._is_closed:
            raise Draining("the server is stopping")
        if len(self._open) >= MOST_STREAMS or self._of_account.get(account, 0) >= MOST_OF_ACCOUNT:
            raise RateLimited(
                f"{self.count} streams are open, {self._of_account.get(account, 0)} of {account}",
                hint=f"{MOST_OF_ACCOUNT} per account and {MOST_STREAMS} per server",
                retry_after=5.0,
            )
        self._open[reader] = None
        self._of_account[account] = self._of_account.get(account, 0) + 1
        self.signals.follow(reader.execution_id, reader.hear)

    def close(self, reader: Stream) -> None:
        """A reader has gone."""
        if self._open.pop(reader, self) is self:
            return
        reader.end()
        self.signals.unfollow(reader.execution_id, reader.hear)
        left = self._of_account[reader.account] - 1
        if left:
            self._of_account[reader.account] = left
        else:
            del self._of_account[reader.account]

    def drain(self) -> None:
        """End every stream; readers come back to another server and go on where they were."""
        self._is_closed = True
        for reader in self._open:
            reader.end()

    def shared(self, item: Recorded, *, is_lean: bool) -> bytes:
        """An event of a commit as it is sent; its readers share it."""
        key = (item.event_id, item.seq, is_lean)
        found = self._frames.get(key)
        if found is None:
            if len(self._frames) > MOST_SHARED:
                self._frames.clear()
            found = self._frames[key] = frame(item, is_lean=is_lean)
        return found

    def frame(self, item: Recorded, *, is_lean: bool) -> bytes:
        """An event as it is sent."""
        found = self._frames.get((item.event_id, item.seq, is_lean))
        return frame(item, is_lean=is_lean) if found is None else found


class Reader:
    """One stream."""

    def __init__(
        self, streams: Streams, execution_id: str, after: int, account: str, *, is_lean: bool
    ) -> None:
        self.execution_id = execution_id
        self.account = account
        self.dropped = asyncio.Event()
        self._streams = streams
        self._is_lean = is_lean
        self._seq = after
        """The last event that was sent or is queued."""
        self._queued: deque[Recorded] = deque()
        self._behind = 0
        self._is_reading = False
        self._must_read = True
        self._is_first = True
        self._is_over = False
        self._ended: str | None = None
        self._wake = asyncio.Event()

    def _told_elsewhere(self, seq: int | None) -> None:
        """A commit of some server: read what is not known yet."""
        if seq is None or seq > self._seq:
            self._must_read = True
            self._wake.set()

    def hear(self, events: Sequence[Recorded]) -> None:
        """A commit of this server: queue what follows, or note that the log has more."""
        for item in events:
            if item.seq <= self._seq:
                continue
            if item.seq > self._seq + 1 or self._is_reading or self._must_read:
                self._must_read = True
                break
            self._seq = item.seq
            self._queued.append(item)
            self._behind += len(self._streams.shared(item, is_lean=self._is_lean))
        if self._behind > MOST_BEHIND:
            self._queued.clear()
            self.dropped.set()
            self._is_over = True
        self._wake.set()

    def end(self) -> None:
        """Stop, as soon as what is being sent was sent."""
        self._is_over = True
        self._streams.elsewhere.leave(self.execution_id, self._told_elsewhere)
        self._wake.set()

    async def frames(self) -> AsyncIterator[bytes]:
        """The stream, until the run has ended or the reader must go."""
        clock = self._streams.clock
        yield RETRY
        told_at = clock.monotonic()
        try:
            while self._ended is None and not self._is_over:
                events = await self._next(told_at + PING_S - clock.monotonic())
                if events and not _is_last(events):
                    events += await self._company(told_at + PACE_S - clock.monotonic())
                for chunk in self._chunks(events):
                    yield chunk
                    told_at = clock.monotonic()
                if events and self._is_told():
                    return
                if clock.monotonic() - told_at >= PING_S:
                    yield PING
                    told_at = clock.monotonic()
        except NoetlError as fault:
            if not fault.retryable:
                raise
            return  # the reader comes back, and goes on where it was
        if self._ended is not None:
            yield last(self.execution_id, self._ended)

    def _is_told(self) -> bool:
        """Whether the end of the run was among what was sent."""
        return self._ended is not None

    def _chunks(self, events: list[Recorded]) -> Iterator[bytes]:
        frames: list[bytes] = []
        size = 0
        for item in events:
            frames.append(self._streams.frame(item, is_lean=self._is_lean))
            size += len(frames[-1])
            if size > CHUNK:
                yield b"".join(frames)
                frames, size = [], 0
            if isinstance(item.event, TERMINAL):
                self._ended = item.event.status
        if events and self._ended is not None:
            frames.append(last(self.execution_id, self._ended))
        if frames:
            yield b"".join(frames)

    async def _next(self, wait_s: float) -> list[Recorded]:
        """The next events; none when there are none within the time."""
        if not self._queued and not self._must_read:
            if self._streams.is_alone:
                await sleep_until(self._wake, wait_s)
            else:
                await self._wait(wait_s)
        if self._queued:
            taken, self._behind = list(self._queued), 0
            self._queued.clear()
            return taken
        return await self._read() if self._must_read else []

    async def _wait(self, wait_s: float) -> None:
        """Wait for a commit of this server, and then for those of others."""
        elsewhere, told = self._streams.elsewhere, self._told_elsewhere
        patience_s = elsewhere.patience_s(self.execution_id, told)
        if await sleep_until(self._wake, min(wait_s, patience_s)) or self._is_over:
            return
        if elsewhere.missed(self.execution_id, told):
            self._must_read = True

    async def _company(self, wait_s: float) -> list[Recorded]:
        """What commits bring until the next part may be sent, or until the run has ended.

        A person sees no more in a moment than in its fiftieth; the run pays for every part.
        """
        found: list[Recorded] = []
        until = self._streams.clock.monotonic() + wait_s
        while not (self._is_over or self._must_read or _is_last(found)):
            rest = until - self._streams.clock.monotonic()
            if rest <= 0 or not await sleep_until(self._wake, rest):
                break
            found += self._queued
            self._queued.clear()
            self._behind = 0
        return found

    async def _read(self) -> list[Recorded]:
        """A page of the log; commits that come meanwhile are found by the next one."""
        if self._is_first:
            self._is_first = False
            if recent := self._streams.signals.recent.after(self.execution_id, self._seq):
                self._must_read = False
                self._seq = recent[-1].seq
                return recent
        self._is_reading, self._must_read = True, False
        try:
            page = await self._streams.store.log.read(self.execution_id, self._seq, PAGE)
        finally:
            self._is_reading = False
        if page:
            self._seq = page[-1].seq
        if len(page) == PAGE:
            self._must_read = True
        elif not any(isinstance(item.event, TERMINAL) for item in page):
            await self._look_for_end()
        return page

    async def _look_for_end(self) -> None:
        """A run may have ended before the place where the reader began."""
        row = await self._streams.store.executions.get(self.execution_id)
        if row is None or row.completed_at is None or self._queued or self._must_read:
            return
        if row.last_seq <= self._seq:
            self._ended = row.status


def _is_last(events: list[Recorded]) -> bool:
    return bool(events) and isinstance(events[-1].event, TERMINAL)


def frame(item: Recorded, *, is_lean: bool) -> bytes:
    """An event of the log as an event of the stream; a large one says where the whole of it is."""
    data = _encode(told(item, is_lean=is_lean))
    if not is_lean and len(data) > MOST_FULL:
        more = {"is_cut": True, "reference": f"/api/events/{item.event_id}"}
        data = _encode(told(item, is_lean=True) | more)
    name = str(item.event.__struct_config__.tag)
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (item.event_id.encode(), name.encode(), data)


def last(execution_id: str, status: str) -> bytes:
    """The last word of a stream."""
    data: dict[str, Any] = {"execution_id": execution_id, "status": status}
    return b"event: end\ndata: %b\n\n" % _encode(data)
