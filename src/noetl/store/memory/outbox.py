"""Messages that follow from commits, oldest first, until they are delivered."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.base import Change, Outgoing
    from noetl.store.memory.tables import Tables


class MemoryOutbox:
    """Undelivered messages."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def waiting(self, limit: int = 1000) -> list[Outgoing]:
        """Undelivered messages, oldest first."""
        return list(islice(self._tables.outbox.values(), limit))

    async def delivered(self, ids: Sequence[str]) -> None:
        """Forget messages."""
        for outgoing_id in ids:
            self._tables.outbox.pop(outgoing_id, None)


def write(tables: Tables, change: Change) -> None:
    """Keep the messages of a change."""
    for outgoing in change.outgoing:
        tables.outbox.setdefault(outgoing.outgoing_id, outgoing)
