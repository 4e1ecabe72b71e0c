"""Processes that made themselves known, and the machine numbers that they mint ids with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.ids import MACHINES
from noetl.store.base import RuntimeRow
from noetl.store.errors import NoMachine
from noetl.store.postgres.documents import stored, value_of, written
from noetl.store.postgres.values import id_of, moment, told
from noetl.store.wellformed import must_be_free

if TYPE_CHECKING:
    import asyncpg

    from noetl.store.postgres.database import Database

_LOCK: Final = "select pg_advisory_xact_lock(hashtextextended('noetl:runtime:machines', 0))"
_KNOWN: Final = "select * from noetl.runtime where kind = $1 and name = $2"
_MACHINE: Final = """
select number
from generate_series(0, $5::int - 1) as number
left join noetl.runtime as held
    on held.machine_id = number and (held.kind, held.name) <> ($1::text, $2::text)
group by number
having count(*) filter (where held.heartbeat >= $3) = 0
order by number <> coalesce($4::int, -1), max(held.heartbeat) nulls first, number
limit 1"""
"""The number of before, else one that nobody ever had, else the one that was silent longest."""
_JOIN: Final = """
insert into noetl.runtime (runtime_id, kind, name, pool, status, uri, hostname, capacity,
    free_slots, labels, capabilities, runtime, machine_id, heartbeat, created_at, updated_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
    $13, $14, $15, $14)
on conflict (kind, name) do update set pool = excluded.pool, status = excluded.status,
    uri = excluded.uri, hostname = excluded.hostname, capacity = excluded.capacity,
    free_slots = excluded.free_slots, labels = excluded.labels,
    capabilities = excluded.capabilities, runtime = excluded.runtime,
    machine_id = excluded.machine_id, heartbeat = excluded.heartbeat,
    updated_at = excluded.updated_at"""
_BEAT: Final = """
update noetl.runtime
set heartbeat = $3, updated_at = $3, free_slots = coalesce($4::int, free_slots)
where kind = $1 and name = $2 and ($5::text is null or pool = $5) returning true"""
_MARK: Final = """
update noetl.runtime set status = $3 where kind = $1 and name = $2 returning true"""
_LEAVE: Final = """
delete from noetl.runtime
where kind = $1 and name = $2 and ($3::text is null or pool = $3) returning true"""
_LISTED: Final = """
select * from noetl.runtime
where ($1::text is null or kind = $1) and ($2::text is null or pool = $2)
order by kind collate "C", name collate "C" """
_FORGET: Final = """
with gone as (delete from noetl.runtime where heartbeat < $1 returning 1)
select count(*) from gone"""


class PostgresRuntimes:
    """Processes by kind and name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def join(
        self, row: RuntimeRow, *, silent_since: str, is_bound: bool = False
    ) -> RuntimeRow:
        """Keep a process under its kind and name, with a machine number of its own."""
        who = (row.kind, row.name)
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_LOCK)
            known = await connection.fetchrow(_KNOWN, *who)
            before = None if known is None else _row(known)
            if is_bound:
                must_be_free(before, row, silent_since)
            machine = await connection.fetchval(
                _MACHINE,
                *who,
                moment(silent_since),
                None if before is None else before.machine_id,
                MACHINES,
            )
            if machine is None:
                raise NoMachine(f"all {MACHINES} machine numbers are in use")
            kept = msgspec.structs.replace(
                row,
                machine_id=machine,
                runtime_id=row.runtime_id if before is None else before.runtime_id,
                created_at=row.created_at if before is None else before.created_at,
            )
            await connection.execute(_JOIN, *_values(kept))
        return kept

    async def beat(
        self,
        kind: str,
        name: str,
        now: str,
        free_slots: int | None = None,
        *,
        pool: str | None = None,
    ) -> bool:
        """Note that a process was heard of; false when it is not known, or not in the pool."""
        who = (stored(kind), stored(name))
        within = None if pool is None else stored(pool)
        return bool(await self._database.fetchval(_BEAT, *who, moment(now), free_slots, within))

    async def mark(self, kind: str, name: str, status: str) -> bool:
        """Give a process a status; false when it is not known."""
        return bool(await self._database.fetchval(_MARK, stored(kind), stored(name), status))

    async def leave(self, kind: str, name: str, *, pool: str | None = None) -> bool:
        """Forget a process; false when it is not known, or not in the pool."""
        within = None if pool is None else stored(pool)
        return bool(await self._database.fetchval(_LEAVE, stored(kind), stored(name), within))

    async def listed(self, kind: str | None = None, pool: str | None = None) -> list[RuntimeRow]:
        """Known processes, by name."""
        wanted = (None if word is None else stored(word) for word in (kind, pool))
        return [_row(row) for row in await self._database.background.fetch(_LISTED, *wanted)]

    async def forget(self, before: str) -> int:
        """Forget those that were last heard of before; how many there were."""
        return int(await self._database.background.fetchval(_FORGET, moment(before)))


def _values(row: RuntimeRow) -> tuple[object, ...]:
    return (
        id_of(row.runtime_id),
        row.kind,
        row.name,
        row.pool,
        row.status,
        row.uri,
        row.hostname,
        row.capacity,
        row.free_slots,
        written(row.labels),
        written(row.capabilities),
        written(row.runtime),
        row.machine_id,
        moment(row.heartbeat),
        moment(row.created_at),
    )


def _row(row: asyncpg.Record) -> RuntimeRow:
    return RuntimeRow(
        runtime_id=str(row["runtime_id"]),
        name=row["name"],
        kind=row["kind"],
        pool=row["pool"],
        status=row["status"],
        uri=row["uri"],
        hostname=row["hostname"],
        capacity=row["capacity"],
        free_slots=row["free_slots"],
        labels=value_of(row["labels"]),
        capabilities=value_of(row["capabilities"]),
        runtime=value_of(row["runtime"]),
        machine_id=row["machine_id"],
        heartbeat=told(row["heartbeat"]) or "",
        created_at=told(row["created_at"]) or "",
    )
