"""Timers in the order in which they fall due; those of a paused run wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.store.memory.executions import is_paused

if TYPE_CHECKING:
    from noetl.store.base import Change, TimerRow
    from noetl.store.memory.tables import Tables


class MemoryTimers:
    """Timers that are to fire."""

    def __init__(self, tables: Tables) -> None:
        self._table = tables.timers

    async def due(self, now: str, limit: int = 1000) -> list[TimerRow]:
        """Timers whose time has come, oldest first."""
        table = self._table
        # A rank is (due_at,); every rank of `now` itself lies below (now, "").
        found = table.order.keys(limit, (now, ""))
        return [table.rows[execution_id][timer_key] for execution_id, timer_key in found]

    async def next_due(self) -> str | None:
        """When the next timer is due."""
        first = self._table.order.first()
        return None if first is None else str(first[0][0])


def write(tables: Tables, change: Change) -> None:
    """Keep the timers of a change; those of a run that has ended go."""
    table, execution_id = tables.timers, change.execution_id
    rows = table.rows.setdefault(execution_id, {})
    has_ended = change.execution.completed_at is not None
    for timer_key in list(rows) if has_ended else change.timers_gone:
        rows.pop(timer_key, None)
        table.order.drop((execution_id, timer_key))
    if not has_ended:
        waits = is_paused(tables, execution_id)
        for timer in change.timers:
            rows[timer.timer_key] = timer
            if not waits:
                table.order.put((execution_id, timer.timer_key), timer.due_at)
    if not rows:
        del table.rows[execution_id]


def turned(tables: Tables, execution_id: str) -> None:
    """A run was paused or resumed: its timers wait, or count again."""
    waits = is_paused(tables, execution_id)
    for timer in tables.timers.rows.get(execution_id, {}).values():
        if waits:
            tables.timers.order.drop((execution_id, timer.timer_key))
        else:
            tables.timers.order.put((execution_id, timer.timer_key), timer.due_at)
