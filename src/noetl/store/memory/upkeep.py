"""Old rows of a memory; it has no months, and what it holds ends with its process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.store.memory.outbox import forget
from noetl.store.ranked import age
from noetl.store.upkeep import IMPORTED, ROWS, Condition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noetl.store.base import ExecutionRow
    from noetl.store.memory.tables import Tables
    from noetl.store.upkeep import Partition, Table


class MemoryUpkeep:
    """Makes room in one memory."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def condition(self) -> Condition:
        """How the store is."""
        return Condition()

    async def ensure_partitions(self) -> int:
        """Make nothing: there are no months."""
        return 0

    async def partitions(self, before: str) -> list[Partition]:
        """Tell of none."""
        del before
        return []

    async def drop_partition(self, name: str) -> tuple[str, ...]:
        """Drop nothing."""
        del name
        return ()

    async def purge(self, table: Table, before: str, *, is_dry: bool = False) -> int:
        """Delete some rows that are older than a moment; a dry one counts them all."""
        if table == "command":
            return self._commands(before, is_dry=is_dry)
        if table == "dedup":
            return self._dedup(before, is_dry=is_dry)
        if table == "log":
            return self._lines(before, is_dry=is_dry)
        if table == "keychain":
            return self._keychain(before, is_dry=is_dry)
        return 0

    def _commands(self, before: str, *, is_dry: bool) -> int:
        runs, closed = self._tables.executions.rows, self._tables.commands.closed
        old = [
            command_id
            for command_id, stone in closed.items()
            if (run := runs.get(stone.execution_id)) is None or (run.completed_at or "~") < before
        ]
        if is_dry:
            return len(old)
        for command_id in old[:ROWS]:
            del closed[command_id]
        return len(old[:ROWS])

    def _dedup(self, before: str, *, is_dry: bool) -> int:
        table = self._tables.executions
        old = [name for name, (_, until, _) in table.dedup.items() if until < before]
        if is_dry:
            return len(old)
        for name in old[:ROWS]:
            del table.dedup[name]
            table.windows.drop(name)
        return len(old[:ROWS])

    def _lines(self, before: str, *, is_dry: bool) -> int:
        old = [
            (lines, name)
            for lines in self._tables.output.values()
            for name, line in lines.items()
            if line.ts < before
        ]
        if is_dry:
            return len(old)
        for lines, name in old[:ROWS]:
            del lines[name]
        return len(old[:ROWS])

    def _keychain(self, before: str, *, is_dry: bool) -> int:
        kept = self._tables.secrets.keychain
        old = [
            key
            for key, row in kept.items()
            if (row.expires_at or "~") < before and not row.auto_renew
        ]
        if is_dry:
            return len(old)
        for key in old[:ROWS]:
            del kept[key]
        return len(old[:ROWS])

    async def old_runs(
        self, before: str, limit: int, *, month: Partition | None = None
    ) -> list[str]:
        """Runs that ended before a moment, and whose parents did."""
        if month is not None:
            return []
        return sorted(self._old(before), key=age)[:limit]

    def _old(self, before: str) -> Iterator[str]:
        rows = self._tables.executions.rows
        for row in rows.values():
            parent = rows.get(row.parent_execution_id or "")
            if _is_over(row, before) and (parent is None or _is_over(parent, before)):
                yield row.execution_id

    async def forget_runs(self, ids: Sequence[str], *, spares_events: bool = False) -> int:
        """Delete runs and everything of theirs; how many rows there were."""
        del spares_events  # a journal is one thing, and never goes apart from its run
        return sum(map(self._forget, ids))

    def _forget(self, execution_id: str) -> int:
        tables = self._tables
        row = tables.executions.rows.pop(execution_id, None)
        if row is None:
            return 0
        tables.executions.by_age.remove(age(execution_id))
        if row.parent_execution_id is not None:
            tables.executions.children[row.parent_execution_id].remove(execution_id)
        tables.executions.children.pop(execution_id, None)
        journal = tables.journals.pop(execution_id, None)
        lines = tables.output.pop(execution_id, {})
        closed = tables.commands.closed
        stones = [name for name, stone in closed.items() if stone.execution_id == execution_id]
        for name in stones:
            del closed[name]
        tables.snapshots.pop(execution_id, None)
        keys = [name for name, (owner, _) in tables.callbacks.items() if owner == execution_id]
        for name in keys:
            del tables.callbacks[name]
        messages = [
            name for name, (out, _) in tables.outbox.items() if out.execution_id == execution_id
        ]
        forget(tables, messages)
        secrets = tables.secrets.inputs.pop(execution_id, {})
        of_log = 0 if journal is None else journal.last_seq
        rest = len(lines) + len(stones) + len(keys) + len(messages) + len(secrets)
        return 1 + of_log + rest


def _is_over(row: ExecutionRow, before: str) -> bool:
    if row.kind == IMPORTED:
        return row.updated_at < before
    return row.completed_at is not None and row.completed_at < before
