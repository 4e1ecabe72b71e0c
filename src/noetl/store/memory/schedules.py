"""Time tables by which playbooks are started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from noetl.store.views import carried_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.base import ScheduleRow
    from noetl.store.memory.tables import Tables


class MemorySchedules:
    """Time tables by id."""

    def __init__(self, tables: Tables) -> None:
        self._rows = tables.schedules

    async def replace(self, path: str, rows: Sequence[ScheduleRow]) -> None:
        """Make these the triggers of a path; one of the same name and times keeps its place."""
        before = {
            row.name: row
            for row in self._rows.values()
            if row.path == path and row.origin == "trigger"
        }
        for row in before.values():
            del self._rows[row.schedule_id]
        for row in rows:
            kept = carried_over(before.get(row.name), row)
            self._rows[kept.schedule_id] = kept

    async def listed(self, path: str | None = None) -> list[ScheduleRow]:
        """Time tables, by name."""
        found = (row for row in self._rows.values() if path is None or row.path == path)
        return sorted(found, key=lambda row: (row.path, row.name))

    async def due(self, now: str, limit: int = 100) -> list[ScheduleRow]:
        """Enabled ones whose time has come, oldest first."""
        found = [
            (row.next_run_at, row.schedule_id, row)
            for row in self._rows.values()
            if row.enabled and row.next_run_at is not None and row.next_run_at <= now
        ]
        return [row for _, _, row in sorted(found, key=lambda item: item[:2])[:limit]]

    async def next_due(self) -> str | None:
        """When the next one is due."""
        times = (row.next_run_at for row in self._rows.values() if row.enabled)
        return min((time for time in times if time is not None), default=None)

    async def fired(self, before: ScheduleRow, after: ScheduleRow) -> bool:
        """Move one on; false when it was moved by somebody else."""
        row = self._rows.get(before.schedule_id)
        if row is None or row.next_run_at != before.next_run_at:
            return False
        self._rows[before.schedule_id] = msgspec.structs.replace(
            row,
            next_run_at=after.next_run_at,
            last_run_at=after.last_run_at,
            last_execution_id=after.last_execution_id,
            last_status=after.last_status,
        )
        return True
