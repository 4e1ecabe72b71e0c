"""Read models apart from commits: what is known, what is counted, what is written anew."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from noetl.store.upkeep import IMPORTED, Figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.base import ExecutionRow
    from noetl.store.memory.tables import Tables


class MemoryProjections:
    """The read models of one memory."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def known(self, event_ids: Sequence[str]) -> frozenset[str]:
        """Which of these events are stored."""
        journals = list(self._tables.journals.values())
        return frozenset(
            name for name in event_ids if any(journal.has(name) for journal in journals)
        )

    async def refresh(self, row: ExecutionRow) -> bool:
        """Write the read model of a run anew; false when the run has gone on meanwhile."""
        rows = self._tables.executions.rows
        before = rows.get(row.execution_id)
        if before is None or before.last_seq != row.last_seq:
            return False
        rows[row.execution_id] = row
        return True

    async def prepare(self, execution_ids: Sequence[str]) -> None:
        """Do nothing: a memory has room for every id."""

    async def imported(self, execution_id: str) -> None:
        """Do nothing: the kind of the row says it."""

    async def figures(self, tenant_id: str, since: str) -> Figures:
        """What a tenant has."""
        rows = [row for row in self._tables.executions.rows.values() if row.tenant_id == tenant_id]
        ended = (row for row in rows if row.completed_at is not None and row.started_at >= since)
        live = (row for row in rows if row.completed_at is None and row.kind != IMPORTED)
        paths = {
            entry.path
            for entry in self._tables.catalog.rows.values()
            if entry.tenant_id == tenant_id
            and entry.kind == "playbook"
            and entry.archived_at is None
        }
        return Figures(
            live=dict(Counter(row.status for row in live)),
            ended=dict(Counter(row.status for row in ended)),
            runs_estimated=len(rows),
            playbooks=len(paths),
        )
