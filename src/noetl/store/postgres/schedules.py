"""Time tables by which playbooks are started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import asyncpg

from noetl.store.base import ScheduleListing, ScheduleRow
from noetl.store.errors import NameTaken, TooMany
from noetl.store.postgres.documents import stored, value_of, written
from noetl.store.postgres.values import id_of, moment, text_of, told
from noetl.store.views import carried_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.postgres.database import Database

_LOCK: Final = "select pg_advisory_xact_lock(hashtextextended('noetl:schedule:' || $1, 0))"
_LOCK_TENANT: Final = """
select pg_advisory_xact_lock(hashtextextended('noetl:schedules:' || $1, 0))"""
_TRIGGERS: Final = """
select * from noetl.schedule
where path = $1 and origin = 'trigger' and tenant_id = $2 for update"""
_DROP: Final = "delete from noetl.schedule where schedule_id = any($1::bigint[])"
_ADD: Final = """
insert into noetl.schedule (schedule_id, tenant_id, name, path, cron, interval_seconds, timezone,
    payload, policy, enabled, next_run_at, last_run_at, last_execution_id, last_status, origin,
    created_by)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)"""
_CHANGE: Final = """
update noetl.schedule set name = $2, path = $3, cron = $4, interval_seconds = $5, timezone = $6,
    payload = $7, policy = $8, enabled = $9, next_run_at = $10, updated_at = now()
where schedule_id = $1 returning true"""
_REMOVE: Final = "delete from noetl.schedule where schedule_id = $1 returning true"
_GET: Final = "select * from noetl.schedule where schedule_id = $1"
_COUNTED: Final = "select count(*) from noetl.schedule where tenant_id = $1"
_LISTED: Final = """
select * from noetl.schedule
where ($1::text is null or path = $1) and ($2::text is null or tenant_id = $2)
    and ($3::boolean is null or enabled = $3) and ($4::text is null or name > $4 collate "C")
order by name collate "C", tenant_id collate "C" limit $5"""
_DUE: Final = """
select * from noetl.schedule where enabled and next_run_at <= $1
order by next_run_at, schedule_id limit $2"""
_NEXT: Final = "select min(next_run_at) from noetl.schedule where enabled"
_FIRED: Final = """
update noetl.schedule
set next_run_at = $3, last_run_at = $4, last_execution_id = $5, last_status = $6
where schedule_id = $1 and next_run_at is not distinct from $2 returning true"""


class PostgresSchedules:
    """Time tables by id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def replace(
        self, path: str, rows: Sequence[ScheduleRow], tenant_id: str = "default"
    ) -> None:
        """Make these the triggers of a path; one of the same name and times keeps its place."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_LOCK, path)
            found = [_row(row) for row in await connection.fetch(_TRIGGERS, path, tenant_id)]
            before = {row.name: row for row in found}
            await connection.execute(_DROP, [id_of(row.schedule_id) for row in found])
            kept = [_values(carried_over(before.get(row.name), row)) for row in rows]
            await connection.executemany(_ADD, kept)

    async def add(self, row: ScheduleRow, *, most: int) -> None:
        """Keep a new one."""
        try:
            async with self._database.connection() as connection, connection.transaction():
                await connection.execute(_LOCK_TENANT, row.tenant_id)
                if await connection.fetchval(_COUNTED, row.tenant_id) >= most:
                    raise TooMany(f"the tenant has {most} schedules")
                await connection.execute(_ADD, *_values(row))
        except asyncpg.UniqueViolationError:
            raise _taken(row) from None

    async def get(self, schedule_id: str) -> ScheduleRow | None:
        """One time table."""
        row = await self._database.fetchrow(_GET, id_of(schedule_id))
        return None if row is None else _row(row)

    async def change(self, row: ScheduleRow) -> bool:
        """Write one anew, all but what its last run was; false when it is gone."""
        try:
            return bool(
                await self._database.fetchval(
                    _CHANGE,
                    id_of(row.schedule_id),
                    row.name,
                    row.path,
                    row.cron,
                    row.interval_s,
                    row.timezone,
                    written(row.payload),
                    written(row.policy),
                    row.enabled,
                    moment(row.next_run_at),
                )
            )
        except asyncpg.UniqueViolationError:
            raise _taken(row) from None

    async def remove(self, schedule_id: str) -> bool:
        """Forget one; false when it is gone."""
        return bool(await self._database.fetchval(_REMOVE, id_of(schedule_id)))

    async def counted(self, tenant_id: str) -> int:
        """How many a tenant has."""
        return int(await self._database.background.fetchval(_COUNTED, stored(tenant_id)))

    async def listed(self, listing: ScheduleListing | None = None) -> list[ScheduleRow]:
        """Time tables, by name."""
        asked = listing or ScheduleListing()
        texts = (
            None if word is None else stored(word)
            for word in (asked.path, asked.tenant_id, asked.after)
        )
        path, tenant, after = texts
        rows = await self._database.background.fetch(
            _LISTED, path, tenant, asked.enabled, after, asked.limit
        )
        return [_row(row) for row in rows]

    async def due(self, now: str, limit: int = 100) -> list[ScheduleRow]:
        """Enabled ones whose time has come, oldest first."""
        rows = await self._database.background.fetch(_DUE, moment(now), limit)
        return [_row(row) for row in rows]

    async def next_due(self) -> str | None:
        """When the next one is due."""
        return told(await self._database.background.fetchval(_NEXT))

    async def fired(self, before: ScheduleRow, after: ScheduleRow) -> bool:
        """Move one on; false when it was moved by somebody else."""
        return bool(
            await self._database.fetchval(
                _FIRED,
                id_of(before.schedule_id),
                moment(before.next_run_at),
                moment(after.next_run_at),
                moment(after.last_run_at),
                id_of(after.last_execution_id),
                after.last_status,
            )
        )


def _values(row: ScheduleRow) -> tuple[object, ...]:
    return (
        id_of(row.schedule_id),
        row.tenant_id,
        row.name,
        row.path,
        row.cron,
        row.interval_s,
        row.timezone,
        written(row.payload),
        written(row.policy),
        row.enabled,
        moment(row.next_run_at),
        moment(row.last_run_at),
        id_of(row.last_execution_id),
        row.last_status,
        row.origin,
        row.created_by,
    )


def _taken(row: ScheduleRow) -> NameTaken:
    return NameTaken(f"there is a schedule `{row.name}`", hint="choose another name")


def _row(row: asyncpg.Record) -> ScheduleRow:
    return ScheduleRow(
        schedule_id=str(row["schedule_id"]),
        name=row["name"],
        path=row["path"],
        cron=row["cron"],
        interval_s=row["interval_seconds"],
        timezone=row["timezone"],
        payload=value_of(row["payload"]),
        policy=value_of(row["policy"]),
        enabled=row["enabled"],
        next_run_at=told(row["next_run_at"]),
        last_run_at=told(row["last_run_at"]),
        last_execution_id=text_of(row["last_execution_id"]),
        last_status=row["last_status"] or "",
        origin=row["origin"],
        tenant_id=row["tenant_id"],
        created_by=row["created_by"],
    )
