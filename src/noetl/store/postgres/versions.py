"""What became of the versions of documents; each change of a path waits for the one before."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from noetl.store.postgres.catalog import LARGEST_VERSION, LOCK
from noetl.store.postgres.documents import stored
from noetl.store.postgres.values import moment, told
from noetl.store.versions import Removed, VersionRow

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import asyncpg

    from noetl.store.postgres.database import Database
    from noetl.store.postgres.pool import Connection

_PAGE: Final = """
select catalog_id, version, kind, digest, message, created_by, created_at, archived_at, active,
    (select count(*) from noetl.execution as run
        where run.catalog_id = kept.catalog_id) as execution_count
from noetl.catalog as kept
where tenant_id = $1 and path = $2 and removed_at is null and ($3::int is null or version < $3)
order by version desc limit $4"""
_PROMOTE: Final = """
update noetl.catalog set activation = 1 + (
    select coalesce(max(activation), 0) from noetl.catalog where tenant_id = $1 and path = $2)
where tenant_id = $1 and path = $2 and version = $3 and archived_at is null
    and removed_at is null"""
_ARCHIVE: Final = """
update noetl.catalog set archived_at = $4
where tenant_id = $1 and path = $2 and ($3::int is null or version = $3)
    and archived_at is null and removed_at is null
returning version"""
_RESTORE: Final = """
update noetl.catalog set archived_at = null
where tenant_id = $1 and path = $2 and ($3::int is null or version = $3)
    and archived_at is not null and removed_at is null
returning version"""
_REMOVE: Final = """
update noetl.catalog as kept set removed_at = $4
where tenant_id = $1 and path = $2 and ($3::int is null or version = $3) and removed_at is null
    and not exists (select from noetl.execution as run where run.catalog_id = kept.catalog_id)
returning version"""
# What was removed yesterday has no run that has just begun; the last number is never given again.
_FORGET: Final = """
delete from noetl.catalog as kept
where tenant_id = $1 and path = $2 and removed_at < $3::timestamptz - interval '1 day'
    and version < (
        select max(version) from noetl.catalog where tenant_id = $1 and path = $2)
    and not exists (select from noetl.execution as run where run.catalog_id = kept.catalog_id)"""
_RETIRE: Final = """
update noetl.catalog set active = false where tenant_id = $1 and path = $2 and active"""
_SETTLE: Final = """
update noetl.catalog set active = true where catalog_id = (
    select catalog_id from noetl.catalog
    where tenant_id = $1 and path = $2 and activation is not null
        and archived_at is null and removed_at is null
    order by activation desc limit 1)"""


class PostgresVersions:
    """The versions of documents."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, tenant_id: str, path: str, limit: int = 50, before: int | None = None
    ) -> list[VersionRow]:
        """Versions below a number, newest first, with the number of their runs."""
        last = None if before is None else min(before, LARGEST_VERSION)
        rows = await self._database.background.fetch(_PAGE, tenant_id, stored(path), last, limit)
        return [_version(row) for row in rows]

    async def promote(self, tenant_id: str, path: str, version: int) -> bool:
        """Make a version what its path means; false when it is not there or archived."""
        if not _is_number(version):
            return False
        place = (tenant_id, stored(path))
        async with self._changing(*place) as connection:
            done = await connection.execute(_PROMOTE, *place, version)
        return not done.endswith(" 0")

    async def archive(
        self, tenant_id: str, path: str, version: int | None, now: str
    ) -> tuple[int, ...]:
        """Put versions away; those that were not so before."""
        if not _is_number(version):
            return ()
        place = (tenant_id, stored(path))
        async with self._changing(*place) as connection:
            return _numbers(await connection.fetch(_ARCHIVE, *place, version, moment(now)))

    async def restore(self, tenant_id: str, path: str, version: int | None) -> tuple[int, ...]:
        """Bring versions back; those that were archived."""
        if not _is_number(version):
            return ()
        place = (tenant_id, stored(path))
        async with self._changing(*place) as connection:
            return _numbers(await connection.fetch(_RESTORE, *place, version))

    async def remove(self, tenant_id: str, path: str, version: int | None, now: str) -> Removed:
        """Remove versions that no run was made with, and archive the others."""
        if not _is_number(version):
            return Removed()
        place, at = (tenant_id, stored(path)), moment(now)
        async with self._changing(*place) as connection:
            deleted = _numbers(await connection.fetch(_REMOVE, *place, version, at))
            archived = _numbers(await connection.fetch(_ARCHIVE, *place, version, at))
            await connection.execute(_FORGET, *place, at)
        return Removed(deleted=deleted, archived=archived)

    @contextlib.asynccontextmanager
    async def _changing(self, tenant_id: str, path: str) -> AsyncIterator[Connection]:
        """Change versions of a path alone; afterwards the path means what it should."""
        place = (tenant_id, path)
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(LOCK, *place)
            yield connection
            await connection.execute(_RETIRE, *place)
            await connection.execute(_SETTLE, *place)


def _is_number(version: int | None) -> bool:
    return version is None or 1 <= version <= LARGEST_VERSION


def _numbers(rows: list[asyncpg.Record]) -> tuple[int, ...]:
    return tuple(sorted(row["version"] for row in rows))


def _version(row: asyncpg.Record) -> VersionRow:
    return VersionRow(
        catalog_id=str(row["catalog_id"]),
        version=row["version"],
        kind=row["kind"],
        digest=row["digest"].hex(),
        created_at=told(row["created_at"]) or "",
        created_by=row["created_by"] or "",
        message=row["message"] or "",
        archived_at=told(row["archived_at"]),
        active=row["active"],
        execution_count=row["execution_count"],
    )
