"""One who follows lists: rows as they change, each at most four times a second.

What a row was in between is not told: the newest one replaces those that wait. Every event carries
a mark of the moment as its id; who comes back with it is told the runs that have changed since, or
`reset` when they are too many, or too long ago, to be told one by one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.errors import NoetlError
from noetl.server.reading.stream import PING, PING_S, RETRY
from noetl.server.reading.told import moment_at, of_run
from noetl.server.signals import sleep_until
from noetl.store.memory.listing import matcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from noetl.engine.events import Recorded
    from noetl.server.access.caller import Caller
    from noetl.server.reading.feed import Feed
    from noetl.server.reading.told import Told
    from noetl.store.base import ExecutionRow, Listing

ROW_S: Final = 0.25
"""A row is told at most once in this time."""
MOST_WAITING: Final = 2_000
"""Rows that a reader may be behind, about 1 MiB; then it is cut off."""
MOST_KNOWN: Final = 20_000
RESUMED: Final = timedelta(minutes=5)
"""Who was away for longer reads its lists again."""
_PERMISSIONS: Final = {"catalog": "catalog:read", "subscriptions": "subscription:read"}

Name = tuple[str, str]


class Listener:
    """One stream."""

    execution_id = ""
    """It is told of many runs."""

    def __init__(
        self,
        feed: Feed,
        caller: Caller,
        topics: Sequence[str],
        listing: Listing,
        since: str | None = None,
    ) -> None:
        self.account = caller.account
        self.tenant_id = caller.tenant_id
        self.topics = frozenset(topics)
        self.dropped = asyncio.Event()
        self._feed = feed
        self._caller = caller
        self._since = since
        self._fits = matcher(listing)
        # What a run may leave by moving on: its status, its error.
        lasting = msgspec.structs.replace(listing, status=(), has_error=None, q=None)
        self._stays = matcher(lasting)
        self._shown: OrderedDict[str, str] = OrderedDict()
        self._known: dict[Name, bytes] = {}
        self._whole: set[str] = set()
        """Topics of which everything was seen once, so that a new row is news."""
        self._waiting: dict[Name, Told] = {}
        self._sent_at: dict[Name, float] = {}
        self._must_reset = False
        self._is_over = False
        self._wake = asyncio.Event()

    def hear(self, events: Sequence[Recorded]) -> None:
        """Nothing: the feed tells."""

    def end(self) -> None:
        """Stop, as soon as what is being sent was sent."""
        self._is_over = True
        self._wake.set()

    def reset(self) -> None:
        """More has changed than is told: the reader is to read its lists again."""
        self._must_reset = True
        self._wake.set()

    def knows_all(self, topic: str) -> None:
        """Every row of a topic was offered once."""
        self._whole.add(topic)

    def offer(self, told: Told) -> None:
        """A row has changed; it is queued if this reader wants it and may have it."""
        if told.topic not in self.topics:
            return
        if told.row is not None:
            if not self._wants(told.row):
                return
        elif not self._is_news(told):
            return
        self._waiting[told.topic, told.key] = told
        self._wake.set()
        if len(self._waiting) > MOST_WAITING:
            self._waiting.clear()
            self._is_over = True
            self.dropped.set()

    def _wants(self, row: ExecutionRow) -> bool:
        """Whether a run is in the list; one that leaves it is told once more, as it is now."""
        if not self._stays(row):
            return False
        before = self._shown.pop(row.execution_id, None)
        self._shown[row.execution_id] = row.status
        if len(self._shown) > MOST_KNOWN:
            self._shown.popitem(last=False)
        return self._fits(row) or before != row.status

    def _is_news(self, told: Told) -> bool:
        if told.tenant_id not in {None, self.tenant_id}:
            return False
        permission = _PERMISSIONS.get(told.topic)
        if permission is not None and not self._caller.may(permission, told.path):
            return False
        name, data = (told.topic, told.key), told.data()
        before = self._known.get(name)
        if before is None and len(self._known) >= MOST_KNOWN:
            return False
        self._known[name] = data
        # The catalog is known to who has listed it; pools and the system are few, and told at once.
        is_first_look = told.topic == "catalog" and told.topic not in self._whole
        return before != data and not is_first_look

    # ------------------------------------------------------------------------ sending

    async def frames(self) -> AsyncIterator[bytes]:
        """The stream, until the reader or the server goes."""
        clock = self._feed.clock
        yield RETRY
        told_at = clock.monotonic()
        try:
            await self._resume()
            while not self._is_over:
                self._wake.clear()
                part = self._part()
                if part:
                    yield part
                    told_at = clock.monotonic()
                    continue
                if clock.monotonic() - told_at >= PING_S:
                    yield PING
                    told_at = clock.monotonic()
                await sleep_until(self._wake, self._rest(told_at + PING_S))
                if self._waiting:
                    await self._company()
        except NoetlError as fault:
            if not fault.retryable:
                raise

    async def _resume(self) -> None:
        """Queue what has changed since the reader was here."""
        if self._since is None or "executions" not in self.topics:
            return
        moment = moment_at(self._since)
        is_recent = self._feed.clock.now() - moment <= RESUMED
        rows = await self._feed.rows_since(moment) if is_recent else None
        if rows is None:
            self.reset()
            return
        for row in rows:
            self.offer(of_run(row))

    def _part(self) -> bytes:
        """What may be sent now."""
        now = self._feed.clock.monotonic()
        frames: list[bytes] = []
        if self._must_reset:
            self._must_reset = False
            frames.append(self._frame("reset", b"{}"))
        for name in [name for name in self._waiting if self._due_at(name) <= now]:
            told = self._waiting.pop(name)
            self._sent_at[name] = now
            frames.append(self._frame(told.topic, told.data()))
        for name in [name for name, at in self._sent_at.items() if at + ROW_S <= now]:
            del self._sent_at[name]
        return b"".join(frames)

    def _due_at(self, name: Name) -> float:
        return self._sent_at.get(name, -ROW_S) + ROW_S

    def _rest(self, latest: float) -> float:
        due = min((self._due_at(name) for name in self._waiting), default=latest)
        return min(due, latest) - self._feed.clock.monotonic()

    async def _company(self) -> None:
        """Let a row that was told a moment ago wait for its time."""
        rest = min(self._due_at(name) for name in self._waiting) - self._feed.clock.monotonic()
        if rest > 0:
            await asyncio.sleep(rest)

    def _frame(self, event: str, data: bytes) -> bytes:
        mark = self._feed.ids.new().encode()
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (mark, event.encode(), data)
