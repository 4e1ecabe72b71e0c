"""Time tables by which playbooks are started."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.base import ScheduleRow
from noetl.store.postgres.documents import stored, value_of, written
from noetl.store.postgres.values import id_of, moment, text_of, told
from noetl.store.views import carried_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from noetl.store.postgres.database import Database

_LOCK: Final = "select pg_advisory_xact_lock(hashtextextended('noetl:schedule:' || $1, 0))"
_TRIGGERS: Final = """
select * from noetl.schedule where path = $1 and origin = 'trigger' for update"""
_DROP: Final = "delete from noetl.schedule where schedule_id = any($1::bigint[])"
_ADD: Final = """
insert into noetl.schedule (schedule_id, tenant_id, name, path, cron, interval_seconds, timezone,
    payload, policy, enabled, next_run_at, last_run_at, last_execution_id, last_status, origin)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14,
    $15)"""
_LISTED: Final = """
select * from noetl.schedule where $1::text is null or path = $1
order by path collate "C", name collate "C" """
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

    async def replace(self, path: str, rows: Sequence[ScheduleRow]) -> None:
        """Make these the triggers of a path; one of the same name and times keeps its place."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_LOCK, path)
            found = [_row(row) for row in await connection.fetch(_TRIGGERS, path)]
            before = {row.name: row for row in found}
            await connection.execute(_DROP, [id_of(row.schedule_id) for row in found])
            kept = [_values(carried_over(before.get(row.name), row)) for row in rows]
            await connection.executemany(_ADD, kept)

    async def listed(self, path: str | None = None) -> list[ScheduleRow]:
        """Time tables, by name."""
        wanted = None if path is None else stored(path)
        return [_row(row) for row in await self._database.background.fetch(_LISTED, wanted)]

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
    )


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
    )
