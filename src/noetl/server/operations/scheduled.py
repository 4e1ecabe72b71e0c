"""Schedules as callers see them: made, looked at, paused, and fired by hand."""

from __future__ import annotations

from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.schedules import (
    Backfilled,
    Fired,
    Fires,
    Removed,
    Schedule,
    SchedulePage,
)
from noetl.clock import rfc3339
from noetl.edge.errors import Conflict, NotFound, Unacceptable
from noetl.edge.moments import moment_of
from noetl.errors import NoetlError
from noetl.ids import parse
from noetl.server.access.caller import free_pool, must
from noetl.server.ingest.wanted import pool_of
from noetl.server.operations.firing import SCOPE, still_running, supersede, wanted_of
from noetl.server.operations.schedules import MOST_SCHEDULES
from noetl.server.operations.timetable import row_of
from noetl.server.ticks import fires_at, next_run_at, ticks
from noetl.server.ticks import moment_of as parsed
from noetl.store.views import carried_over

if TYPE_CHECKING:
    from noetl.api.schedules import Backfill, ScheduleBody
    from noetl.edge.cursor import Cursors
    from noetl.server.access.caller import Caller
    from noetl.server.ingest.programs import Programs
    from noetl.server.ingest.wanted import Wanted
    from noetl.server.metrics import ServerMetrics
    from noetl.server.operations.schedules import Timetables
    from noetl.server.parts import ServerParts
    from noetl.server.runs.control import Controls
    from noetl.server.runs.execute import Runs
    from noetl.store.base import ScheduleListing, ScheduleRow

MOST_BACKFILLED: Final = 1_000
MOST_NEXT: Final = 100


class Scheduled:
    """What callers do with schedules."""

    def __init__(  # noqa: PLR0913 - the parts it is made from
        self,
        parts: ServerParts,
        runs: Runs,
        programs: Programs,
        controls: Controls,
        *,
        timetables: Timetables,
        cursors: Cursors,
        metrics: ServerMetrics,
    ) -> None:
        self._schedules = parts.store.schedules
        self._executions = parts.store.executions
        self._clock = parts.clock
        self._ids = parts.ids
        self._runs = runs
        self._programs = programs
        self._controls = controls
        self._changed = timetables.changed
        self._cursors = cursors
        self._metrics = metrics

    # ------------------------------------------------------------------------ reading

    async def page(
        self, caller: Caller, listing: ScheduleListing, cursor: str | None = None
    ) -> SchedulePage:
        """A page of the schedules that a caller may see, by name."""
        filters = {"of": "schedules", "path": listing.path, "enabled": listing.enabled}
        limit = listing.limit
        after = None if cursor is None else str(self._cursors.decode(cursor, filters))
        rows = await self._schedules.listed(
            msgspec.structs.replace(
                listing, tenant_id=caller.tenant_id, limit=limit + 1, after=after
            )
        )
        page = rows[:limit]
        has_more = len(rows) > limit
        return SchedulePage(
            items=tuple(told(row) for row in page if caller.may("schedule:read", row.path)),
            next_cursor=self._cursors.encode(filters, page[-1].name) if has_more else None,
        )

    async def get(self, caller: Caller, schedule_id: str) -> Schedule:
        """One schedule."""
        return told(await self._found(caller, schedule_id, "schedule:read"))

    async def next(self, caller: Caller, schedule_id: str, count: int) -> Fires:
        """When a schedule fires next; a paused one, if it went on now."""
        row = await self._found(caller, schedule_id, "schedule:read")
        coming = islice(ticks(row, self._clock.now()), count)
        return Fires(
            schedule_id=row.schedule_id,
            items=tuple(rfc3339(fires_at(row, tick)) for tick in coming),
        )

    # ------------------------------------------------------------------------ writing

    async def add(self, caller: Caller, body: ScheduleBody) -> Schedule:
        """Make a schedule."""
        row = await self._wanted(caller, body, self._ids.new())
        await self._schedules.add(row, most=MOST_SCHEDULES)
        self._changed.set()
        return told(row)

    async def change(self, caller: Caller, schedule_id: str, body: ScheduleBody) -> Schedule:
        """Write a schedule anew; with equal times it keeps its place."""
        before = await self._found(caller, schedule_id, "schedule:write")
        _must_be_own(before)
        row = await self._wanted(caller, body, before.schedule_id)
        row = msgspec.structs.replace(carried_over(before, row), created_by=before.created_by)
        return await self._written(row)

    async def remove(self, caller: Caller, schedule_id: str) -> Removed:
        """Forget a schedule; what it has started goes on."""
        row = await self._found(caller, schedule_id, "schedule:write")
        _must_be_own(row)
        await self._schedules.remove(row.schedule_id)
        return Removed(schedule_id=row.schedule_id)

    async def turn(self, caller: Caller, schedule_id: str, *, is_on: bool) -> Schedule:
        """Pause a schedule, or let it go on from now; in the same state nothing changes."""
        row = await self._found(caller, schedule_id, "schedule:write")
        if row.enabled == is_on:
            return told(row)
        policy = {key: value for key, value in row.policy.items() if key != "paused"}
        if not is_on:
            policy["paused"] = True
        changed = msgspec.structs.replace(row, enabled=is_on, policy=policy)
        next_at = next_run_at(changed, self._clock.now()) if is_on else row.next_run_at
        return await self._written(msgspec.structs.replace(changed, next_run_at=next_at))

    async def _wanted(self, caller: Caller, body: ScheduleBody, schedule_id: str) -> ScheduleRow:
        """The row that a caller wishes for, if he may have it run."""
        row = row_of(body, schedule_id, caller, self._clock.now())
        must(caller, "schedule:write", row.path)
        must(caller, "execution:run", row.path)
        entry = await self._runs.resolve(
            caller.tenant_id, row.path, None, row.policy.get("version")
        )
        program = self._programs.of(entry)
        free_pool(caller, body.pool or pool_of(program.playbook))
        return await self._runs.inputs.scheduled(row, program)

    async def _written(self, row: ScheduleRow) -> Schedule:
        if not await self._schedules.change(row):
            raise _unknown(row.schedule_id)
        self._changed.set()
        return told(row)

    async def _found(self, caller: Caller, schedule_id: str, permission: str) -> ScheduleRow:
        row = await self._schedules.get(parse(schedule_id))
        if row is None or row.tenant_id != caller.tenant_id:
            raise _unknown(schedule_id)
        must(caller, permission, row.path)
        return row

    # ------------------------------------------------------------------------ firing by hand

    async def trigger(self, caller: Caller, schedule_id: str) -> Fired:
        """Start a run now, whether one still runs or not; its rule for the one before holds."""
        row = await self._found(caller, schedule_id, "schedule:write")
        must(caller, "execution:run", row.path)
        if row.policy.get("overlap") == "cancel_previous":
            previous = await still_running(self._executions, row)
            if previous is not None:
                await supersede(self._controls, previous)
        now = rfc3339(self._clock.now())
        started = await self._start(wanted_of(row, now, now, created_by=caller.account))
        after = msgspec.structs.replace(
            row, last_run_at=now, last_execution_id=started.execution_id, last_status="started"
        )
        # One that has fired meanwhile tells of its own run instead.
        await self._schedules.fired(row, after)
        return started

    async def backfill(self, caller: Caller, schedule_id: str, body: Backfill) -> Backfilled:
        """Start the runs of times that have passed; one that has run is not run again."""
        row = await self._found(caller, schedule_id, "schedule:write")
        must(caller, "execution:run", row.path)
        first, last = moment_of(body.from_, "from"), moment_of(body.to, "to")
        now = rfc3339(self._clock.now())
        if not 1 <= body.limit <= MOST_BACKFILLED:
            raise Unacceptable(f"`limit` is not in 1..{MOST_BACKFILLED}")
        if last < first or last > now:
            raise Unacceptable("`to` is before `from`, or yet to come", code="bad_time")
        until = parsed(last)
        passed = takewhile(lambda tick: tick <= until, ticks(row, parsed(first), is_included=True))
        chosen = list(islice(passed, body.limit + 1))
        in_turn = row.policy.get("overlap", "skip") != "allow"
        items = []
        for tick in chosen[: body.limit]:
            wanted = wanted_of(
                row, rfc3339(tick), now, created_by=caller.account, is_in_turn=in_turn
            )
            items.append(await self._tried(wanted, rfc3339(tick)))
        return Backfilled(
            schedule_id=row.schedule_id,
            items=tuple(items),
            has_more=len(chosen) > body.limit,
        )

    async def _tried(self, wanted: Wanted, due_at: str) -> Fired:
        """A start, or why there is none; what may pass fails the whole request."""
        try:
            return await self._start(wanted)
        except NoetlError as refusal:
            if refusal.retryable:
                raise
            self._metrics.execute_outcomes.inc(SCOPE, "error")
            return Fired(due_at=due_at, status="error", code=refusal.code)

    async def _start(self, wanted: Wanted) -> Fired:
        started = await self._runs.start(wanted)
        self._metrics.schedule_fires.inc(started.status)
        self._metrics.execute_outcomes.inc(SCOPE, started.status)
        return Fired(
            due_at=wanted.trigger["due_at"],
            status=started.status,
            execution_id=started.execution_id,
        )


def told(row: ScheduleRow) -> Schedule:
    """A schedule as it is shown."""
    policy: dict[str, Any] = row.policy
    return Schedule(
        schedule_id=row.schedule_id,
        name=row.name,
        path=row.path,
        version=policy.get("version"),
        cron=row.cron,
        interval_seconds=row.interval_s,
        timezone=row.timezone,
        payload=row.payload,
        enabled=row.enabled,
        start_at=policy.get("start_at"),
        end_at=policy.get("end_at"),
        jitter_s=policy.get("jitter_s", 0),
        catchup=policy.get("catchup", "latest"),
        max_catchup=policy.get("max_catchup", 100),
        overlap=policy.get("overlap", "skip"),
        pool=policy.get("pool"),
        priority=policy.get("priority"),
        next_run_at=row.next_run_at if row.enabled else None,
        last_run_at=row.last_run_at,
        last_execution_id=row.last_execution_id,
        last_status=row.last_status,
        origin=row.origin,
        created_by=row.created_by,
    )


def _must_be_own(row: ScheduleRow) -> None:
    """Refuse to change what a document says."""
    if row.origin == "trigger":
        raise Conflict(
            f"the schedule {row.name} is a trigger of {row.path}",
            code="in_use",
            hint="change `triggers` of the playbook and register it; it can be paused here",
        )


def _unknown(schedule_id: str) -> NotFound:
    return NotFound(f"there is no schedule {schedule_id[:40]}")
