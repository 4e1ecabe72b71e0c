"""The time tables of playbooks: registering a document replaces those of its path."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.server.ticks import next_run_at
from noetl.store.base import ScheduleRow

if TYPE_CHECKING:
    from noetl.clock import Clock
    from noetl.dsl.playbook import Playbook
    from noetl.dsl.playbook.document import Trigger
    from noetl.ids import Ids
    from noetl.store.base import Schedules


class Timetables:
    """Keeps the schedules of documents."""

    def __init__(self, schedules: Schedules, clock: Clock, ids: Ids) -> None:
        self._schedules = schedules
        self._clock = clock
        self._ids = ids
        self.changed = asyncio.Event()
        """A schedule was written that may be due before the next look."""

    async def replace(self, playbook: Playbook) -> None:
        """Make the triggers of a playbook the schedules of its path."""
        rows = [
            self._row(playbook.path, number, trigger)
            for number, trigger in enumerate(playbook.triggers, 1)
        ]
        await self._schedules.replace(playbook.path, rows)
        if rows:
            self.changed.set()

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
