"""Documents by path and version; the version that was made so last is what a path means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.store.base import CatalogEntry
from noetl.store.postgres.documents import stored, value_of, written
from noetl.store.postgres.values import id_of, moment, told
from noetl.store.versions import must_be_newest

if TYPE_CHECKING:
    import asyncpg

    from noetl.store.base import CatalogListing
    from noetl.store.postgres.database import Database

LARGEST_VERSION: Final = (1 << 31) - 1
LOCK: Final = "select pg_advisory_xact_lock(hashtextextended('noetl:catalog:' || $1 || $2, 0))"
_LAST_CHARACTER: Final = "\x7f"
"""Above all that a path is made of."""
_NEWEST: Final = """
select * from noetl.catalog
where tenant_id = $1 and path = $2 and removed_at is null
order by version desc limit 1"""
_RETIRE: Final = """
update noetl.catalog set active = false where tenant_id = $1 and path = $2 and active"""
_ADD: Final = """
insert into noetl.catalog (catalog_id, tenant_id, path, kind, content, digest, meta, message,
    created_by, created_at, archived_at, active, version, activation)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12,
    coalesce(max(version), 0) + 1,
    case when $12 then coalesce(max(activation), 0) + 1 end
from noetl.catalog where tenant_id = $2 and path = $3
returning version"""
_GET: Final = "select * from noetl.catalog where catalog_id = $1"
_ACTIVE: Final = """
select * from noetl.catalog where tenant_id = $1 and path = $2 and active"""
_VERSION: Final = """
select * from noetl.catalog
where tenant_id = $1 and path = $2 and version = $3 and archived_at is null
    and removed_at is null"""
_COLUMNS: Final = """
catalog_id, tenant_id, path, version, kind, case when $1 then content else '' end as content,
digest, meta, message, created_by, created_at, archived_at, removed_at"""
_OF_TENANT: Final = """
tenant_id = $2 and removed_at is null and path collate "C" >= $3 and path collate "C" < $4"""
_WANTED: Final = """
($5::text is null or kind = $5)
    and ($6::text is null or meta ->> 'tests' = $6)
    and ($7 = '' or strpos(lower(path), $7) > 0
        or strpos(lower(meta ->> 'name'), $7) > 0
        or strpos(lower(meta ->> 'description'), $7) > 0
        or exists (select from jsonb_array_elements_text(meta -> 'tags') as tag
            where strpos(lower(tag), $7) > 0))
    and ($8::text is null or path <> $8 or version < $9)
order by path collate "C", version desc limit $10"""
_LATEST: Final = f"""
select {_COLUMNS} from noetl.catalog where {_OF_TENANT} and active and {_WANTED}"""  # noqa: S608 - fixed parts
_LATEST_OR_ARCHIVED: Final = f"""
select {_COLUMNS} from (
    select distinct on (path collate "C") * from noetl.catalog
    where {_OF_TENANT} and (active or archived_at is not null)
    order by path collate "C", active desc, version desc
) as shown where {_WANTED}"""  # noqa: S608 - fixed parts
_ALL: Final = f"""
select {_COLUMNS} from noetl.catalog
where {_OF_TENANT} and archived_at is null and {_WANTED}"""  # noqa: S608 - fixed parts
_ALL_OR_ARCHIVED: Final = f"""
select {_COLUMNS} from noetl.catalog where {_OF_TENANT} and {_WANTED}"""  # noqa: S608 - fixed parts
_LISTED: Final = {
    (False, False): _LATEST,
    (False, True): _LATEST_OR_ARCHIVED,
    (True, False): _ALL,
    (True, True): _ALL_OR_ARCHIVED,
}


class PostgresCatalog:
    """Every version of every document."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(
        self, entry: CatalogEntry, *, activate: bool = True, if_version: int | None = None
    ) -> CatalogEntry:
        """Keep a document under the next version; equal to the newest one, that one is answered."""
        place = (entry.tenant_id, entry.path)
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(LOCK, *place)
            row = await connection.fetchrow(_NEWEST, *place)
            newest = None if row is None else _entry(row)
            must_be_newest(entry.path, newest.version if newest else 0, if_version)
            if newest is not None and _is_same(newest, entry):
                return newest
            if activate:
                await connection.execute(_RETIRE, *place)
            version = await connection.fetchval(_ADD, *_values(entry), activate)
        return msgspec.structs.replace(entry, version=version)

    async def get(self, catalog_id: str) -> CatalogEntry | None:
        """One version by its id, of whichever tenant, one that was removed included."""
        row = await self._database.fetchrow(_GET, id_of(catalog_id))
        return None if row is None else _entry(row)

    async def resolve(
        self, tenant_id: str, path: str, version: int | None = None
    ) -> CatalogEntry | None:
        """A version of a path that is not archived; without a number, the one the path means."""
        place = (tenant_id, stored(path))
        if version is None:
            row = await self._database.fetchrow(_ACTIVE, *place)
        elif 1 <= version <= LARGEST_VERSION:
            row = await self._database.fetchrow(_VERSION, *place, version)
        else:
            row = None
        return None if row is None else _entry(row)

    async def listed(self, tenant_id: str, listing: CatalogListing) -> list[CatalogEntry]:
        """A page of documents by path, then newest version first."""
        path, version = listing.after or (None, None)
        prefix = stored(listing.path_prefix or "")
        rows = await self._database.background.fetch(
            _LISTED[listing.all_versions, listing.include_archived],
            listing.with_content,
            tenant_id,
            max(prefix, stored(path or "")),
            prefix + _LAST_CHARACTER,
            None if listing.kind is None else stored(listing.kind),
            None if listing.tests is None else stored(listing.tests),
            stored((listing.q or "").lower()),
            None if path is None else stored(path),
            version if listing.all_versions else None,
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
        entry.kind,
        entry.content,
        bytes.fromhex(entry.digest),
        written(entry.meta),
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
        removed_at=told(row["removed_at"]),
    )
