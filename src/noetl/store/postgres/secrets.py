"""Sealed secrets: credentials, values of the keychain, secret inputs of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import asyncpg

from noetl.store.postgres.documents import document, shown, stored, value_of, written
from noetl.store.postgres.values import id_of, moment, text_of, told
from noetl.store.secrets import CredentialRow, KeychainRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.store.postgres.database import Database
    from noetl.store.secrets import CredentialListing

_PUT: Final = """
insert into noetl.credential (id, tenant_id, name, type, data_encrypted, meta, tags, description,
    region, created_at, updated_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
on conflict (id) do update set name = excluded.name, type = excluded.type,
    data_encrypted = excluded.data_encrypted, meta = excluded.meta, tags = excluded.tags,
    description = excluded.description, region = excluded.region, updated_at = excluded.updated_at
returning *"""
_GET: Final = "select * from noetl.credential where tenant_id = $1 and name = $2"
_BY_ID: Final = "select * from noetl.credential where tenant_id = $1 and id = $2"
_LISTED: Final = """
select id, tenant_id, name, type, '' as data_encrypted, meta, tags, description, region,
    created_at, updated_at
from noetl.credential
where tenant_id = $1 and ($2::text is null or type = $2)
    and ($3::text is null or name collate "C" > $3)
    and ($4::text is null or strpos(lower(name), lower($4)) > 0
        or strpos(lower(description), lower($4)) > 0)
order by name collate "C" limit $5"""
_DELETE: Final = """
delete from noetl.credential where tenant_id = $1 and id = $2 returning true"""

_PUT_VALUE: Final = """
insert into noetl.keychain (id, cache_key, keychain_name, catalog_id, credential_type, cache_type,
    scope_type, execution_id, data_encrypted, expires_at, auto_renew, renew_config, created_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
on conflict (cache_key) do update set keychain_name = excluded.keychain_name,
    catalog_id = excluded.catalog_id, credential_type = excluded.credential_type,
    cache_type = excluded.cache_type, scope_type = excluded.scope_type,
    execution_id = excluded.execution_id, data_encrypted = excluded.data_encrypted,
    expires_at = excluded.expires_at, auto_renew = excluded.auto_renew,
    renew_config = excluded.renew_config
returning *"""
_GET_VALUE: Final = "select * from noetl.keychain where cache_key = $1"
_TOUCH: Final = """
update noetl.keychain t set accessed_at = $3, access_count = access_count + given.count
from unnest($1::text[], $2::int[]) as given(cache_key, count) where t.cache_key = given.cache_key"""
_WITHOUT_RECORD: Final = """
select id, cache_key, keychain_name, catalog_id, credential_type, cache_type, scope_type,
    execution_id, '' as data_encrypted, expires_at, auto_renew, renew_config, created_at,
    accessed_at, access_count
from noetl.keychain"""
_VALUES: Final = f"""{_WITHOUT_RECORD}
where catalog_id = $1 and cache_key collate "C" > $2 order by cache_key collate "C" limit $3"""
_EXPIRING: Final = f"""{_WITHOUT_RECORD}
where expires_at < $1 and (auto_renew or not $3)
    and ($4::timestamptz is null or expires_at > $4)
order by expires_at, cache_key limit $2"""
_DELETE_VALUE: Final = "delete from noetl.keychain where cache_key = $1 returning true"

_TAKE: Final = """
insert into noetl.keychain_turn as t (cache_key, holder, until) values ($1, $2, $4)
on conflict (cache_key) do update set holder = excluded.holder, until = excluded.until
    where t.holder = excluded.holder or t.until <= $3
returning true"""
_LEAVE: Final = "delete from noetl.keychain_turn where cache_key = $1 and holder = $2"

_PUT_INPUTS: Final = """
insert into noetl.execution_secret (execution_id, name, data_encrypted)
select $1, given.* from unnest($2::text[], $3::text[]) given
on conflict (execution_id, name) do update set data_encrypted = excluded.data_encrypted"""
_INPUTS: Final = "select name, data_encrypted from noetl.execution_secret where execution_id = $1"


class PostgresCredentials:
    """Credentials of tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, row: CredentialRow) -> CredentialRow | None:
        """Keep a credential under its id; none when its name is that of another id."""
        try:
            kept = await self._database.fetchrow(
                _PUT,
                id_of(row.id),
                stored(row.tenant_id),
                stored(row.name),
                stored(row.type),
                row.data_encrypted,
                written(row.meta),
                [stored(tag) for tag in row.tags],
                stored(row.description),
                stored(row.region),
                moment(row.created_at),
                moment(row.updated_at),
            )
        except asyncpg.UniqueViolationError:
            return None
        return None if kept is None else _credential(kept)

    async def get(self, tenant_id: str, name: str) -> CredentialRow | None:
        """The credential of a name."""
        row = await self._database.fetchrow(_GET, stored(tenant_id), stored(name))
        return None if row is None else _credential(row)

    async def by_id(self, tenant_id: str, credential_id: str) -> CredentialRow | None:
        """The credential of an id."""
        row = await self._database.fetchrow(_BY_ID, stored(tenant_id), id_of(credential_id))
        return None if row is None else _credential(row)

    async def listed(self, tenant_id: str, listing: CredentialListing) -> list[CredentialRow]:
        """Credentials by name; their records are left out."""
        rows = await self._database.background.fetch(
            _LISTED,
            stored(tenant_id),
            None if listing.type is None else stored(listing.type),
            None if listing.after is None else stored(listing.after),
            None if listing.q is None else stored(listing.q),
            listing.limit,
        )
        return [_credential(row) for row in rows]

    async def delete(self, tenant_id: str, credential_id: str) -> bool:
        """Forget a credential; false when it is not there."""
        asked = (stored(tenant_id), id_of(credential_id))
        return await self._database.fetchval(_DELETE, *asked) is not None


class PostgresKeychain:
    """Kept values of keychain entries."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, row: KeychainRow) -> KeychainRow:
        """Keep a value under its key; one that is known keeps its id and its counts."""
        kept = await self._database.fetchrow(
            _PUT_VALUE,
            id_of(row.id),
            stored(row.cache_key),
            stored(row.keychain_name),
            id_of(row.catalog_id),
            stored(row.credential_type),
            row.cache_type,
            row.scope_type,
            id_of(row.execution_id),
            row.data_encrypted,
            moment(row.expires_at),
            row.auto_renew,
            document(row.renew_config),
            moment(row.created_at),
        )
        if kept is None:
            raise AssertionError("an upsert answers its row")
        return _value(kept)

    async def get(self, cache_key: str) -> KeychainRow | None:
        """A value, also one whose time has passed; no read is counted."""
        row = await self._database.fetchrow(_GET_VALUE, stored(cache_key))
        return None if row is None else _value(row)

    async def touch(self, reads: Mapping[str, int], now: str) -> None:
        """Count reads by key, in one order, so that two writers do not wait for each other."""
        keys = sorted(reads)
        await self._database.background.execute(
            _TOUCH, [stored(key) for key in keys], [reads[key] for key in keys], moment(now)
        )

    async def listed(
        self, catalog_id: str, *, after: str = "", limit: int = 100
    ) -> list[KeychainRow]:
        """Values of one document by key; their records are left out."""
        asked = (id_of(catalog_id), stored(after), limit)
        return [_value(row) for row in await self._database.background.fetch(_VALUES, *asked)]

    async def expiring(
        self, before: str, *, after: str = "", limit: int = 100, renews: bool = False
    ) -> list[KeychainRow]:
        """Values that end before a moment and after another, the next one first."""
        asked = (moment(before), limit, renews, moment(after or None))
        return [_value(row) for row in await self._database.background.fetch(_EXPIRING, *asked)]

    async def delete(self, cache_key: str) -> bool:
        """Forget a value; false when it is not there."""
        return await self._database.fetchval(_DELETE_VALUE, stored(cache_key)) is not None


class PostgresTurns:
    """Whose turn it is to make a kept value anew."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, cache_key: str, holder: str, *, now: str, until: str) -> bool:
        """Take the turn of a key until a moment; false as long as it is another's."""
        asked = (stored(cache_key), holder, moment(now), moment(until))
        return await self._database.fetchval(_TAKE, *asked) is not None

    async def leave(self, cache_key: str, holder: str) -> None:
        """Give a turn back; one that was lost meanwhile is left to its new holder."""
        await self._database.execute(_LEAVE, stored(cache_key), holder)


class PostgresExecutionSecrets:
    """Sealed values of secret inputs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, execution_id: str, records: Mapping[str, str]) -> None:
        """Keep records under their names."""
        if records:
            names = [stored(name) for name in records]
            asked = (id_of(execution_id), names, list(records.values()))
            await self._database.execute(_PUT_INPUTS, *asked)

    async def get(self, execution_id: str) -> dict[str, str]:
        """Every record of a run by its name."""
        rows = await self._database.fetch(_INPUTS, id_of(execution_id))
        return {shown(row["name"]): row["data_encrypted"] for row in rows}


def _credential(row: asyncpg.Record) -> CredentialRow:
    return CredentialRow(
        id=str(row["id"]),
        tenant_id=shown(row["tenant_id"]),
        name=shown(row["name"]),
        type=shown(row["type"]),
        data_encrypted=row["data_encrypted"],
        meta=value_of(row["meta"]) or {},
        tags=tuple(shown(tag) for tag in row["tags"] or ()),
        description=shown(row["description"] or ""),
        region=shown(row["region"] or ""),
        created_at=told(row["created_at"]) or "",
        updated_at=told(row["updated_at"]) or "",
    )


def _value(row: asyncpg.Record) -> KeychainRow:
    return KeychainRow(
        id=str(row["id"]),
        cache_key=shown(row["cache_key"]),
        keychain_name=shown(row["keychain_name"] or ""),
        catalog_id=text_of(row["catalog_id"]) or "",
        credential_type=shown(row["credential_type"] or ""),
        cache_type=row["cache_type"] or "",
        scope_type=row["scope_type"] or "",
        execution_id=text_of(row["execution_id"]),
        data_encrypted=row["data_encrypted"] or "",
        expires_at=told(row["expires_at"]),
        auto_renew=row["auto_renew"],
        renew_config=value_of(row["renew_config"]),
        created_at=told(row["created_at"]) or "",
        accessed_at=told(row["accessed_at"]),
        access_count=row["access_count"],
    )
