"""Variables of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.postgres.documents import shown, shown_or_none, stored, value_of, written
from noetl.store.postgres.values import id_of, moment, told
from noetl.store.variables import VariableRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from noetl.store.postgres.database import Database

# Two writers to one run wait for each other, so that the limit holds for both together.
_LOCK: Final = "select pg_advisory_xact_lock(hashtextextended('noetl:variables:' || $1::text, 0))"
_PASSED: Final = "delete from noetl.transient where execution_id = $1 and expires_at <= $2"
_OTHERS: Final = """
select count(*) from noetl.transient where execution_id = $1 and not var_name = any($2::text[])"""
_PUT: Final = """
insert into noetl.transient (execution_id, var_name, var_type, var_value, source_step, created_at,
    expires_at)
select $1, given.* from unnest($2::text[], $3::text[], $4::json[], $5::text[],
    $6::timestamptz[], $7::timestamptz[]) given
on conflict (execution_id, var_name) do update set var_type = excluded.var_type,
    var_value = excluded.var_value, source_step = excluded.source_step,
    expires_at = excluded.expires_at"""
_GET: Final = """
update noetl.transient set accessed_at = $3, access_count = access_count + 1
where execution_id = $1 and var_name = $2 and (expires_at is null or expires_at > $3)
returning *"""
_LISTED: Final = """
select * from noetl.transient
where execution_id = $1 and var_name collate "C" > $3
    and (expires_at is null or expires_at > $2)
order by var_name collate "C" limit $4"""
_DELETE: Final = """
with gone as (
    delete from noetl.transient where execution_id = $1 and var_name = $2 returning expires_at)
select count(*) from gone where expires_at is null or expires_at > $3"""
_CLEAR: Final = """
with gone as (delete from noetl.transient where execution_id = $1 returning 1)
select count(*) from gone"""


class PostgresVariables:
    """Variables by run and name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(
        self, execution_id: str, rows: Sequence[VariableRow], *, now: str, most: int
    ) -> bool:
        """Keep variables, all of them or none."""
        run = id_of(execution_id)
        newest = {row.var_name: row for row in rows}
        names = [stored(name) for name in newest]
        async with self._database.connection() as held, held.transaction():
            await held.execute(_LOCK, execution_id)
            await held.execute(_PASSED, run, moment(now))
            if await held.fetchval(_OTHERS, run, names) + len(names) > most:
                return False
            await held.execute(_PUT, run, names, *_columns(list(newest.values()), now))
        return True

    async def get(self, execution_id: str, var_name: str, *, now: str) -> VariableRow | None:
        """One variable; the read is counted."""
        asked = (id_of(execution_id), stored(var_name), moment(now))
        row = await self._database.fetchrow(_GET, *asked)
        return None if row is None else _variable(row)

    async def listed(
        self, execution_id: str, *, now: str, after: str = "", limit: int = 100
    ) -> list[VariableRow]:
        """Variables of a run by name."""
        asked = (id_of(execution_id), moment(now), stored(after), limit)
        return [_variable(row) for row in await self._database.background.fetch(_LISTED, *asked)]

    async def delete(self, execution_id: str, var_name: str, *, now: str) -> bool:
        """Forget a variable; false when it is not there."""
        asked = (id_of(execution_id), stored(var_name), moment(now))
        return bool(await self._database.fetchval(_DELETE, *asked))

    async def clear(self, execution_id: str) -> int:
        """Forget all variables of a run."""
        return int(await self._database.fetchval(_CLEAR, id_of(execution_id)))


def _columns(rows: list[VariableRow], now: str) -> tuple[list[object], ...]:
    return (
        [row.var_type for row in rows],
        [written(row.var_value) for row in rows],
        [None if row.source_step is None else stored(row.source_step) for row in rows],
        [moment(now)] * len(rows),
        [moment(row.expires_at) for row in rows],
    )


def _variable(row: asyncpg.Record) -> VariableRow:
    return VariableRow(
        execution_id=str(row["execution_id"]),
        var_name=shown(row["var_name"]),
        var_type=row["var_type"],
        var_value=value_of(row["var_value"]),
        source_step=shown_or_none(row["source_step"]),
        created_at=told(row["created_at"]) or "",
        accessed_at=told(row["accessed_at"]),
        access_count=row["access_count"],
        expires_at=told(row["expires_at"]),
    )
