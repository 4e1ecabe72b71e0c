"""Time tables by which playbooks are started."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from noetl.store.base import ScheduleListing
from noetl.store.errors import NameTaken, TooMany
from noetl.store.views import carried_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.base import ScheduleRow
    from noetl.store.memory.tables import Tables


class MemorySchedules:
    """Time tables by id."""

    def __init__(self, tables: Tables) -> None:
        self._rows = tables.schedules

    async def replace(
        self, path: str, rows: Sequence[ScheduleRow], tenant_id: str = "default"
    ) -> None:
        """Make these the triggers of a path; one of the same name and times keeps its place."""
        before = {
            row.name: row
            for row in self._rows.values()
            if (row.path, row.tenant_id, row.origin) == (path, tenant_id, "trigger")
        }
        for row in before.values():
            del self._rows[row.schedule_id]
        for row in rows:
            kept = carried_over(before.get(row.name), row)
            self._rows[kept.schedule_id] = kept

    async def add(self, row: ScheduleRow, *, most: int) -> None:
        """Keep a new one."""
        self._must_be_free(row)
        if await self.counted(row.tenant_id) >= most:
            raise TooMany(f"the tenant has {most} schedules")
        self._rows[row.schedule_id] = row

    async def get(self, schedule_id: str) -> ScheduleRow | None:
        """One time table."""
        return self._rows.get(schedule_id)

    async def change(self, row: ScheduleRow) -> bool:
        """Write one anew, all but what its last run was; false when it is gone."""
        before = self._rows.get(row.schedule_id)
        if before is None:
            return False
        self._must_be_free(row)
        self._rows[row.schedule_id] = msgspec.structs.replace(
            row,
            last_run_at=before.last_run_at,
            last_execution_id=before.last_execution_id,
            last_status=before.last_status,
        )
        return True

    async def remove(self, schedule_id: str) -> bool:
        """Forget one; false when it is gone."""
        return self._rows.pop(schedule_id, None) is not None

    async def counted(self, tenant_id: str) -> int:
        """How many a tenant has."""
        return sum(row.tenant_id == tenant_id for row in self._rows.values())

    async def listed(self, listing: ScheduleListing | None = None) -> list[ScheduleRow]:
        """Time tables, by name."""
        asked = listing or ScheduleListing()
        found = (
            row
            for row in self._rows.values()
            if asked.path in {None, row.path}
            and asked.tenant_id in {None, row.tenant_id}
            and asked.enabled in {None, row.enabled}
            and (asked.after is None or row.name > asked.after)
        )
        return sorted(found, key=lambda row: (row.name, row.tenant_id))[: asked.limit]

    def _must_be_free(self, row: ScheduleRow) -> None:
        for other in self._rows.values():
            is_same = (other.tenant_id, other.name) == (row.tenant_id, row.name)
            if is_same and other.schedule_id != row.schedule_id:
                raise NameTaken(f"there is a schedule `{row.name}`", hint="choose another name")

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
