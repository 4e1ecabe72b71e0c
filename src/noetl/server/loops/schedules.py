"""Starts playbooks by the clock: one run per tick, whichever and however many servers fire it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.clock import rfc3339
from noetl.edge.moments import seconds_until
from noetl.errors import NoetlError
from noetl.server import ticks
from noetl.server.operations.firing import SCOPE, still_running, supersede, wanted_of
from noetl.server.signals import sleep_until

if TYPE_CHECKING:
    from datetime import datetime

    from noetl.api.executions import Started
    from noetl.server.ingest.wanted import Wanted
    from noetl.server.plane import Plane
    from noetl.store.base import ScheduleRow

LOOK_S: Final = 1.0
MOST_SLEEP_S: Final = 30.0
_log: Final = logging.getLogger(__name__)


async def run(plane: Plane) -> None:
    """Sleep until the next one is due, or until one is registered; then fire what is due."""
    schedules, clock = plane.parts.store.schedules, plane.parts.clock
    most = MOST_SLEEP_S if plane.parts.is_alone else LOOK_S
    while True:
        while rows := await schedules.due(rfc3339(clock.now())):
            await fire_all(plane, rows)
        due_at = await schedules.next_due()
        rest = most if due_at is None else min(most, seconds_until(clock, due_at))
        await sleep_until(plane.timetables.changed, rest)


async def fire_all(plane: Plane, rows: list[ScheduleRow]) -> None:
    """Fire many at once; what went wrong with one is raised when all have been tried."""
    ended = await asyncio.gather(*(fire(plane, row) for row in rows), return_exceptions=True)
    for fault in ended:
        if isinstance(fault, BaseException):
            raise fault


async def fire(plane: Plane, row: ScheduleRow) -> None:
    """Start the runs that are due, then move the time table on."""
    after = row
    try:
        chosen, next_at = ticks.due(row, plane.parts.clock.now())
    except (ValueError, KeyError, OSError) as fault:  # a row that nobody can read: never again
        _log.error("a schedule cannot be read", extra={**_told(row), "reason": str(fault)})
        chosen, next_at = [], None
        after = msgspec.structs.replace(row, last_status="invalid")
    for tick in chosen:
        after = await _start(plane, after, tick)
    after = msgspec.structs.replace(after, next_run_at=next_at)
    await plane.parts.store.schedules.fired(row, after)


async def _start(plane: Plane, row: ScheduleRow, tick: datetime) -> ScheduleRow:
    """The run of one tick, unless the one before forbids it; the row as it is then."""
    overlap = row.policy.get("overlap", "skip")
    if overlap in {"skip", "cancel_previous"}:
        previous = await still_running(plane.parts.store.executions, row)
        if previous is not None and overlap == "skip":
            plane.metrics.schedule_fires.inc("skipped")
            return msgspec.structs.replace(row, last_status="skipped")
        if previous is not None:
            await supersede(plane.controls, previous)
    now = rfc3339(plane.parts.clock.now())
    try:
        started = await _fired(plane, row, wanted_of(row, rfc3339(tick), now))
    except NoetlError as refusal:
        if refusal.retryable:
            raise
        plane.metrics.schedule_fires.inc("error")
        plane.metrics.execute_outcomes.inc(SCOPE, "error")
        more = {"code": refusal.code, "reason": refusal.message}
        _log.warning("a schedule cannot start its run", extra={**_told(row), **more})
        return msgspec.structs.replace(row, last_run_at=now, last_status=refusal.code)
    plane.metrics.schedule_fires.inc(started.status)
    plane.metrics.execute_outcomes.inc(SCOPE, started.status)
    return msgspec.structs.replace(
        row, last_run_at=now, last_execution_id=started.execution_id, last_status="started"
    )


async def _fired(plane: Plane, row: ScheduleRow, wanted: Wanted) -> Started:
    if plane.spans is None:
        return await plane.runs.start(wanted)
    about = {"schedule_id": row.schedule_id, "path": row.path}
    with plane.spans.tracer.during("schedule.fire", None, about) as wanted.trace:
        return await plane.runs.start(wanted)


def _told(row: ScheduleRow) -> dict[str, str]:
    return {"schedule_id": row.schedule_id, "schedule": row.name, "path": row.path}
