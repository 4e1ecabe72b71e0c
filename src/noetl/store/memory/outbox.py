"""Messages that follow from commits, oldest first, until they are delivered."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noetl.store.base import Change, Outgoing
    from noetl.store.memory.tables import Tables


class MemoryOutbox:
    """Undelivered messages."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

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


def forget(tables: Tables, ids: Iterable[str]) -> None:
    """Forget messages that were delivered."""
    for outgoing_id in ids:
        tables.outbox.pop(outgoing_id, None)


def write(tables: Tables, change: Change) -> None:
    """Keep the messages of a change."""
    for outgoing in change.outgoing:
        kept = (outgoing, change.execution.updated_at)
        tables.outbox.setdefault(outgoing.outgoing_id, kept)
