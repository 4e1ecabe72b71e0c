"""Starts playbooks by the clock: one run per tick, whichever and however many servers fire it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.executions import Control
from noetl.clock import rfc3339
from noetl.errors import NoetlError
from noetl.server import ticks
from noetl.server.moments import seconds_until
from noetl.server.signals import sleep_until
from noetl.server.wanted import Wanted

if TYPE_CHECKING:
    from datetime import datetime

    from noetl.server.plane import Plane
    from noetl.store.base import ScheduleRow

LOOK_S: Final = 1.0
MOST_SLEEP_S: Final = 30.0
SCOPE: Final = "schedule"
_WINDOW_S: Final = 86_400
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
        _log.error("schedule %s cannot be read: %s", row.name, fault)
        chosen, next_at = [], None
        after = msgspec.structs.replace(row, last_status="invalid")
    for tick in chosen:
        after = await _start(plane, after, tick)
    after = msgspec.structs.replace(after, next_run_at=next_at)
    await plane.parts.store.schedules.fired(row, after)


async def _start(plane: Plane, row: ScheduleRow, tick: datetime) -> ScheduleRow:
    """The run of one tick, unless the one before forbids it; the row as it is then."""
    overlap = row.policy.get("overlap", "skip")
    if overlap in {"skip", "cancel_previous"} and row.last_execution_id is not None:
        previous = await plane.parts.store.executions.get(row.last_execution_id)
        if previous is not None and previous.completed_at is None:
            if overlap == "skip":
                plane.metrics.schedule_fires.inc("skipped")
                return msgspec.structs.replace(row, last_status="skipped")
            await _cancel(plane, previous.execution_id)
    now = rfc3339(plane.parts.clock.now())
    try:
        started = await plane.runs.start(_wanted(row, rfc3339(tick), now))
    except NoetlError as refusal:
        if refusal.retryable:
            raise
        plane.metrics.schedule_fires.inc("error")
        plane.metrics.execute_outcomes.inc(SCOPE, "error")
        _log.warning("schedule %s cannot start %s: %s", row.name, row.path, refusal.message)
        return msgspec.structs.replace(row, last_run_at=now, last_status=refusal.code)
    plane.metrics.schedule_fires.inc(started.status)
    plane.metrics.execute_outcomes.inc(SCOPE, started.status)
    return msgspec.structs.replace(
        row, last_run_at=now, last_execution_id=started.execution_id, last_status="started"
    )


async def _cancel(plane: Plane, execution_id: str) -> None:
    try:
        await plane.controls.cancel(execution_id, Control(reason="superseded"), "schedule")
    except NoetlError as refusal:
        if refusal.code != "already_terminal":
            raise


def _wanted(row: ScheduleRow, due_at: str, fired_at: str) -> Wanted:
    policy: dict[str, Any] = row.policy
    name = policy.get("name") or row.name
    return Wanted(
        path=row.path,
        version=policy.get("version"),
        payload=row.payload,
        added={"schedule": {"name": name, "due_at": due_at, "fired_at": fired_at}},
        pool=policy.get("pool"),
        priority=int(policy.get("priority", 5)),
        dedup=(SCOPE, f"schedule:{row.schedule_id}:{due_at}", _WINDOW_S),
        queue=f"schedule:{row.schedule_id}" if policy.get("overlap") == "queue" else None,
        trigger={
            "kind": "schedule",
            "name": name,
            "schedule_id": row.schedule_id,
            "due_at": due_at,
        },
    )
