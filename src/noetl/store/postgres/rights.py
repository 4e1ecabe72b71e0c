"""Roles that were made here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.store.identity import Grant, RoleRow
from noetl.store.postgres.documents import stored, value_of, written

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from noetl.store.postgres.database import Database

_PUT: Final = """
insert into noetl.role (tenant_id, name, permissions, grants) values ($1, $2, $3, $4)
on conflict (tenant_id, name) do update
set permissions = excluded.permissions, grants = excluded.grants"""
_GET: Final = "select * from noetl.role where tenant_id = $1 and name = $2"
_LISTED: Final = """select * from noetl.role where tenant_id = $1 order by name collate "C" """
_OF: Final = """
select * from noetl.role where tenant_id = $1 and name = any($2::text[])
order by name collate "C" """
_REMOVE: Final = "delete from noetl.role where tenant_id = $1 and name = $2 returning true"


class PostgresRights:
    """Roles by tenant and name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, row: RoleRow) -> None:
        """Keep a role under its name; one that is there is replaced."""
        await self._database.execute(
            _PUT, row.tenant_id, row.name, list(row.permissions), written(row.grants)
        )

    async def get(self, tenant_id: str, name: str) -> RoleRow | None:
        """One role."""
        row = await self._database.fetchrow(_GET, stored(tenant_id), stored(name))
        return None if row is None else _row(row)

    async def listed(self, tenant_id: str) -> list[RoleRow]:
        """All roles of a tenant, by name."""
        return [_row(row) for row in await self._database.background.fetch(_LISTED, tenant_id)]

    async def of(self, tenant_id: str, names: Sequence[str]) -> list[RoleRow]:
        """Those of these roles that were made here, by name."""
        rows = await self._database.fetch(_OF, tenant_id, [stored(name) for name in names])
        return [_row(row) for row in rows]

    async def remove(self, tenant_id: str, name: str) -> bool:
        """Forget a role; false when it is not known."""
        return bool(await self._database.fetchval(_REMOVE, tenant_id, stored(name)))


def _row(row: asyncpg.Record) -> RoleRow:
    return RoleRow(
        name=row["name"],
        tenant_id=row["tenant_id"],
        permissions=tuple(row["permissions"]),
        grants=msgspec.convert(value_of(row["grants"]) or (), tuple[Grant, ...]),
    )
