"""The read model of runs, their keys and their families."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from noetl.store.memory.listing import matcher
from noetl.store.ranked import age

if TYPE_CHECKING:
    from noetl.store.base import Change, ExecutionRow, Listing
    from noetl.store.memory.tables import ExecutionTables, Tables


class MemoryExecutions:
    """The read model."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def get(self, execution_id: str) -> ExecutionRow | None:
        """One run."""
        return self._tables.executions.rows.get(execution_id)

    async def listed(self, listing: Listing) -> list[ExecutionRow]:
        """A page of runs, in the order of their ids."""
        table = self._tables.executions
        order = table.by_age
        after = None if listing.after is None else age(listing.after)
        if listing.is_ascending:
            found = islice(order, 0 if after is None else bisect_right(order, after), None)
        else:
            end = len(order) if after is None else bisect_left(order, after)
            found = islice(reversed(order), len(order) - end, None)
        fits = matcher(listing)
        rows = (row for _, name in found if fits(row := table.rows[name]))
        return list(islice(rows, listing.offset, listing.offset + listing.limit))

    async def counted(self) -> dict[str, int]:
        """How many runs that have not ended there are, by status."""
        rows = self._tables.executions.rows.values()
        return dict(Counter(row.status for row in rows if row.completed_at is None))

    async def running(self, tenant_id: str) -> int:
        """How many runs of a tenant have not ended."""
        rows = self._tables.executions.rows.values()
        return sum(row.completed_at is None and row.tenant_id == tenant_id for row in rows)

    async def children(self, execution_id: str) -> list[ExecutionRow]:
        """The runs that this one asked for."""
        table = self._tables.executions
        return [table.rows[child] for child in table.children.get(execution_id, ())]

    async def started_as(self, scope: str, key: str, now: str) -> tuple[str, str] | None:
        """The run that a dedup key has started within its window, and the digest of its wish."""
        return holder_of(self._tables, scope, key, now)

    async def holders(self, concurrency_key: str) -> list[ExecutionRow]:
        """Runs of a concurrency key that have not ended, oldest first."""
        table = self._tables.executions
        found = sorted(table.holders.get(concurrency_key, ()), key=age)
        return [table.rows[execution_id] for execution_id in found]


def holder_of(tables: Tables, scope: str, key: str, now: str) -> tuple[str, str] | None:
    """The run of a dedup key whose window is still open, and the digest of its wish."""
    held = tables.executions.dedup.get((scope, key))
    return (held[0], held[2]) if held is not None and now < held[1] else None


def keys_of(change: Change) -> list[tuple[str, str, str]]:
    """The keys under which a run begins: scope, key, and the end of the window."""
    return [key for key in (change.dedup, change.replay) if key is not None]


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
    for key in keys_of(change):
        _remember(table, row, key, change.dedup_digest)


def _hold(table: ExecutionTables, row: ExecutionRow, key: str) -> None:
    if row.completed_at is None:
        table.holders.setdefault(key, {})[row.execution_id] = None
        return
    held = table.holders.get(key, {})
    held.pop(row.execution_id, None)
    if not held:
        table.holders.pop(key, None)


def _remember(
    table: ExecutionTables, row: ExecutionRow, dedup: tuple[str, str, str], digest: str
) -> None:
    scope, key, until = dedup
    while (oldest := table.windows.first()) is not None and oldest[0] <= (row.updated_at,):
        table.windows.drop(oldest[1])
        del table.dedup[oldest[1]]
    table.dedup[scope, key] = (row.execution_id, until, digest)
    table.windows.put((scope, key), until)
