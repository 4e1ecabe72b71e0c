"""Those who share a platform."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.identity import TenantRow
from noetl.store.postgres.documents import stored, value_of, written
from noetl.store.postgres.values import moment, told

if TYPE_CHECKING:
    import asyncpg

    from noetl.store.postgres.database import Database

_ADD: Final = """
insert into noetl.tenant (tenant_id, name, created_at, limits)
values ($1, $2, coalesce($3, now()), $4)
on conflict (tenant_id) do nothing returning true"""
_GET: Final = "select * from noetl.tenant where tenant_id = $1"
_LISTED: Final = """
select * from noetl.tenant where $1::text is null or tenant_id collate "C" > $1
order by tenant_id collate "C" limit $2"""


class PostgresTenants:
    """Tenants by id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, row: TenantRow) -> bool:
        """Keep a tenant; false when its id is taken."""
        values = (stored(row.tenant_id), stored(row.name), moment(row.created_at))
        return bool(await self._database.fetchval(_ADD, *values, written(row.limits)))

    async def get(self, tenant_id: str) -> TenantRow | None:
        """One tenant."""
        row = await self._database.fetchrow(_GET, stored(tenant_id))
        return None if row is None else _row(row)

    async def listed(self, limit: int = 50, after: str | None = None) -> list[TenantRow]:
        """A page of tenants, by id."""
        return [_row(row) for row in await self._database.background.fetch(_LISTED, after, limit)]


def _row(row: asyncpg.Record) -> TenantRow:
    return TenantRow(
        tenant_id=row["tenant_id"],
        name=row["name"],
        created_at=told(row["created_at"]) or "",
        limits=value_of(row["limits"]),
    )
