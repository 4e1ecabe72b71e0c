"""The time tables of playbooks: registering a document replaces those of its path."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.server.ticks import next_run_at
from noetl.store.base import ScheduleListing, ScheduleRow
from noetl.store.errors import TooMany

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.clock import Clock
    from noetl.dsl.playbook.document import Trigger
    from noetl.ids import Ids
    from noetl.store.base import Schedules


MOST_SCHEDULES: Final = 10_000
"""Of one tenant."""


class Timetables:
    """Keeps the schedules of documents."""

    def __init__(self, schedules: Schedules, clock: Clock, ids: Ids) -> None:
        self._schedules = schedules
        self._clock = clock
        self._ids = ids
        self.changed = asyncio.Event()
        """A schedule was written that may be due before the next look."""

    async def replace(
        self, tenant_id: str, path: str, triggers: Sequence[Trigger], created_by: str = ""
    ) -> None:
        """Make the triggers of a playbook the schedules of its path."""
        whose = {"tenant_id": tenant_id, "created_by": created_by}
        rows = [
            msgspec.structs.replace(self._row(path, number, trigger), **whose)
            for number, trigger in enumerate(triggers, 1)
        ]
        if rows:
            await self._must_fit(tenant_id, path, len(rows))
        await self._schedules.replace(path, rows, tenant_id)
        if rows:
            self.changed.set()

    async def _must_fit(self, tenant_id: str, path: str, count: int) -> None:
        """Refuse triggers of a tenant who has as many schedules as he may."""
        own = await self._schedules.listed(ScheduleListing(tenant_id=tenant_id, path=path))
        replaced = sum(row.origin == "trigger" for row in own)
        if await self._schedules.counted(tenant_id) - replaced + count > MOST_SCHEDULES:
            raise TooMany(f"a tenant has {MOST_SCHEDULES} schedules at most")

    def _row(self, path: str, number: int, trigger: Trigger) -> ScheduleRow:
        policy: dict[str, Any] = {
            "name": trigger.name,
            "overlap": trigger.overlap,
            "catchup": trigger.catchup,
            "jitter_s": trigger.jitter_s,
            "start_at": trigger.start_at,
            "end_at": trigger.end_at,
            "pool": trigger.pool,
        }
        row = ScheduleRow(
            schedule_id=self._ids.new(),
            # Names are unique in an installation, triggers only within their playbook.
            name=f"{path}:{trigger.name or number}",
            path=path,
            cron=trigger.cron,
            interval_s=None if trigger.interval is None else round(trigger.interval),
            timezone=trigger.timezone,
            payload=dict(trigger.input),
            policy={key: value for key, value in policy.items() if value},
            enabled=trigger.enabled,
        )
        return msgspec.structs.replace(row, next_run_at=next_run_at(row, self._clock.now()))
