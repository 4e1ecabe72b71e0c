"""The read model of runs, their keys and their families."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING

from noetl.store.memory.ranked import age

if TYPE_CHECKING:
    from noetl.store.base import Change, ExecutionRow
    from noetl.store.memory.tables import ExecutionTables, Tables


class MemoryExecutions:
    """The read model."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def get(self, execution_id: str) -> ExecutionRow | None:
        """One run."""
        return self._tables.executions.rows.get(execution_id)

    async def listed(self, *, limit: int = 50, before: str | None = None) -> list[ExecutionRow]:
        """The newest runs."""
        table = self._tables.executions
        end = len(table.by_age) if before is None else bisect_left(table.by_age, age(before))
        page = table.by_age[max(end - limit, 0) : end]
        return [table.rows[execution_id] for _, execution_id in reversed(page)]

    async def children(self, execution_id: str) -> list[ExecutionRow]:
        """The runs that this one asked for."""
        table = self._tables.executions
        return [table.rows[child] for child in table.children.get(execution_id, ())]

    async def started_as(self, scope: str, key: str, now: str) -> str | None:
        """The run that a dedup key has started within its window."""
        return holder_of(self._tables, scope, key, now)

    async def holders(self, concurrency_key: str) -> list[ExecutionRow]:
        """Runs of a concurrency key that have not ended, oldest first."""
        table = self._tables.executions
        found = sorted(table.holders.get(concurrency_key, ()), key=age)
        return [table.rows[execution_id] for execution_id in found]


def holder_of(tables: Tables, scope: str, key: str, now: str) -> str | None:
    """The run of a dedup key whose window is still open."""
    held = tables.executions.dedup.get((scope, key))
    return held[0] if held is not None and now < held[1] else None


def is_paused(tables: Tables, execution_id: str) -> bool:
    """Whether commands and timers of a run wait."""
    row = tables.executions.rows.get(execution_id)
    return row is not None and row.status == "PAUSED"


def write(tables: Tables, change: Change) -> None:
    """Keep the row of a change, and the key under which its run was started."""
    table, row = tables.executions, change.execution
    before = table.rows.get(row.execution_id)
    table.rows[row.execution_id] = row
    if before is None:
        insort(table.by_age, age(row.execution_id))
        if row.parent_execution_id is not None:
            table.children[row.parent_execution_id].append(row.execution_id)
    if row.concurrency_key is not None:
        _hold(table, row, row.concurrency_key)
    if change.dedup is not None:
        _remember(table, row, change.dedup)


def _hold(table: ExecutionTables, row: ExecutionRow, key: str) -> None:
    if row.completed_at is None:
        table.holders.setdefault(key, {})[row.execution_id] = None
        return
    held = table.holders.get(key, {})
    held.pop(row.execution_id, None)
    if not held:
        table.holders.pop(key, None)


def _remember(table: ExecutionTables, row: ExecutionRow, dedup: tuple[str, str, str]) -> None:
    scope, key, until = dedup
    while (oldest := table.windows.first()) is not None and oldest[0] <= (row.updated_at,):
        table.windows.drop(oldest[1])
        del table.dedup[oldest[1]]
    table.dedup[scope, key] = (row.execution_id, until)
    table.windows.put((scope, key), until)
