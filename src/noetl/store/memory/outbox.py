"""Messages that follow from commits, oldest first, until they are delivered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING

from noetl.clock import rfc3339
from noetl.store.base import Backlog, Taken
from noetl.store.waits import LOCK, MOST_ATTEMPTS, PUBLICATION, delay_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noetl.store.base import Change, Outgoing
    from noetl.store.memory.tables import Tables


@dataclass(slots=True)
class _Try:
    """How far the publication of a message is."""

    attempts: int = 0
    available_at: str = ""
    locked_at: str | None = None
    is_over: bool = False


class MemoryOutbox:
    """Undelivered messages."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._tries: dict[str, _Try] = {}

    async def waiting(
        self, limit: int = 1000, *, before: str | None = None, kinds: Sequence[str] = ()
    ) -> list[Outgoing]:
        """Undelivered messages, oldest first; with `before`, those committed earlier than that."""
        found = (
            outgoing
            for outgoing, committed_at in self._tables.outbox.values()
            if (before is None or committed_at < before) and (not kinds or outgoing.kind in kinds)
        )
        return list(islice(found, limit))

    async def delivered(self, ids: Sequence[str]) -> None:
        """Forget messages."""
        forget(self._tables, ids)

    async def take(self, limit: int, now: str, *, committed_before: str) -> list[Taken]:
        """Take publications for a while, so that nobody else gets them."""
        taken = []
        for outgoing in islice(self._due(now, committed_before), limit):
            own = self._tries.setdefault(outgoing.outgoing_id, _Try())
            own.attempts += 1
            own.locked_at = now
            taken.append(Taken(outgoing=outgoing, attempts=own.attempts))
        return taken

    def _due(self, now: str, committed_before: str) -> list[Outgoing]:
        stale = _later(now, -LOCK)
        found = []
        for outgoing, committed_at in self._tables.outbox.values():
            own = self._tries.get(outgoing.outgoing_id)
            if outgoing.kind != PUBLICATION or (own is not None and own.is_over):
                continue
            if own is None or not own.attempts:
                is_due = committed_at <= committed_before
            elif own.locked_at is not None:
                is_due = own.locked_at < stale
            else:
                is_due = own.available_at <= now
            if is_due:
                found.append(outgoing)
        return found

    async def published(self, ids: Sequence[str], now: str) -> int:
        """Note that taken messages were published; how many of them were taken."""
        del now  # who reads a memory has no use for what was published
        held = [name for name in dict.fromkeys(ids) if self._held(name) is not None]
        forget(self._tables, held)
        for name in held:
            del self._tries[name]
        return len(held)

    async def failed(
        self, outgoing_id: str, error: str, now: str, *, most_delay_s: int
    ) -> float | None:
        """Give a taken message back until later; in how many seconds."""
        del error  # a memory has nobody who would look it up
        own = self._held(outgoing_id)
        if own is None:
            return None
        delay = delay_of(own.attempts, most_delay_s)
        own.locked_at, own.available_at = None, _later(now, timedelta(seconds=delay))
        own.is_over = own.attempts >= MOST_ATTEMPTS
        return delay

    def _held(self, outgoing_id: str) -> _Try | None:
        own = self._tries.get(outgoing_id)
        if own is None or own.locked_at is None or outgoing_id not in self._tables.outbox:
            return None
        return own

    async def backlog(self, now: str, *, committed_before: str) -> Backlog:
        """How much waits."""
        oldest = next(iter(self._tables.outbox.values()), None)
        return Backlog(
            due=len(self._due(now, committed_before)),
            oldest_at=None if oldest is None else oldest[1],
        )


def _later(moment: str, by: timedelta) -> str:
    return rfc3339(datetime.fromisoformat(moment) + by)


def forget(tables: Tables, ids: Iterable[str]) -> None:
    """Forget messages that were delivered."""
    for outgoing_id in ids:
        tables.outbox.pop(outgoing_id, None)


def write(tables: Tables, change: Change) -> None:
    """Keep the messages of a change."""
    for outgoing in change.outgoing:
        kept = (outgoing, change.execution.updated_at)
        tables.outbox.setdefault(outgoing.outgoing_id, kept)
