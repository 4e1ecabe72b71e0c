"""Documents by path and version; the newest one that was added is what a path means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.store.base import CatalogEntry
from noetl.store.postgres.documents import stored, value_of, written
from noetl.store.postgres.values import id_of, moment, told

if TYPE_CHECKING:
    import asyncpg

    from noetl.store.base import CatalogListing
    from noetl.store.postgres.database import Database

_TENANT: Final = "default"
_LARGEST_VERSION: Final = (1 << 31) - 1
_LOCK: Final = "select pg_advisory_xact_lock(hashtextextended('noetl:catalog:' || $1 || $2, 0))"
_NEWEST: Final = """
select * from noetl.catalog where tenant_id = $1 and path = $2 order by version desc limit 1"""
_RETIRE: Final = """
update noetl.catalog set active = false where tenant_id = $1 and path = $2 and active"""
_ADD: Final = """
insert into noetl.catalog (catalog_id, tenant_id, path, version, kind, content, digest, meta,
    active, message, created_by, created_at, archived_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"""
_GET: Final = "select * from noetl.catalog where catalog_id = $1"
_ACTIVE: Final = """
select * from noetl.catalog
where tenant_id = $1 and path = $2 and active and archived_at is null"""
_VERSION: Final = """
select * from noetl.catalog
where tenant_id = $1 and path = $2 and version = $3 and archived_at is null"""
_VERSIONS: Final = """
select * from noetl.catalog where tenant_id = $1 and path = $2 order by version desc"""
_LISTED: Final = """
select * from (
    select *, row_number() over (partition by path order by version desc) as place
    from noetl.catalog
    where tenant_id = $1
        and ($2::text is null or kind = $2)
        and starts_with(path, $3)
        and strpos(path, $4) > 0
        and ($5::boolean or archived_at is null)
        and ($7::text is null or path collate "C" >= $7)
) as wanted
where ($6::boolean or place = 1)
    and ($7::text is null or path <> $7 or version < $8)
order by path collate "C", version desc
limit $9"""


class PostgresCatalog:
    """Every version of every document."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, entry: CatalogEntry) -> CatalogEntry:
        """Keep a document under the next version; equal to the newest one, that one is answered."""
        place = (entry.tenant_id, entry.path)
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_LOCK, *place)
            row = await connection.fetchrow(_NEWEST, *place)
            newest = None if row is None else _entry(row)
            if newest is not None and _is_same(newest, entry):
                return newest
            kept = msgspec.structs.replace(entry, version=newest.version + 1 if newest else 1)
            await connection.execute(_RETIRE, *place)
            await connection.execute(_ADD, *_values(kept))
        return kept

    async def get(self, catalog_id: str) -> CatalogEntry | None:
        """One version by its id."""
        row = await self._database.fetchrow(_GET, id_of(catalog_id))
        return None if row is None else _entry(row)

    async def resolve(self, path: str, version: int | None = None) -> CatalogEntry | None:
        """A version of a path; the newest when none is named."""
        if version is None:
            row = await self._database.fetchrow(_ACTIVE, _TENANT, stored(path))
        elif 1 <= version <= _LARGEST_VERSION:
            row = await self._database.fetchrow(_VERSION, _TENANT, stored(path), version)
        else:
            row = None
        return None if row is None else _entry(row)

    async def versions(self, path: str) -> list[CatalogEntry]:
        """All versions of a path, newest first."""
        return [_entry(row) for row in await self._database.fetch(_VERSIONS, _TENANT, stored(path))]

    async def listed(self, listing: CatalogListing) -> list[CatalogEntry]:
        """A page of documents by path, then newest version first."""
        path, version = listing.after or (None, None)
        rows = await self._database.background.fetch(
            _LISTED,
            _TENANT,
            None if listing.kind is None else stored(listing.kind),
            stored(listing.path_prefix or ""),
            stored(listing.q or ""),
            listing.include_archived,
            listing.all_versions,
            None if path is None else stored(path),
            version,
            listing.limit,
        )
        return [_entry(row) for row in rows]


def _is_same(newest: CatalogEntry, entry: CatalogEntry) -> bool:
    """Whether nothing is to be added; what was archived is added anew."""
    return newest.digest == entry.digest and newest.archived_at is None


def _values(entry: CatalogEntry) -> tuple[object, ...]:
    return (
        id_of(entry.catalog_id),
        entry.tenant_id,
        entry.path,
        entry.version,
        entry.kind,
        entry.content,
        bytes.fromhex(entry.digest),
        written(entry.meta),
        entry.archived_at is None,
        entry.message,
        entry.created_by,
        moment(entry.created_at),
        moment(entry.archived_at),
    )


def _entry(row: asyncpg.Record) -> CatalogEntry:
    return CatalogEntry(
        catalog_id=str(row["catalog_id"]),
        path=row["path"],
        version=row["version"],
        kind=row["kind"],
        content=row["content"],
        digest=row["digest"].hex(),
        created_at=told(row["created_at"]) or "",
        message=row["message"] or "",
        created_by=row["created_by"] or "",
        tenant_id=row["tenant_id"],
        meta=value_of(row["meta"]) or {},
        archived_at=told(row["archived_at"]),
    )
