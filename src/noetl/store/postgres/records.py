"""All sealed records of a database, for the rotation of the key that wraps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.postgres.documents import shown, stored
from noetl.store.postgres.values import id_of
from noetl.store.secrets import SealedRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noetl.store.postgres.database import Database
    from noetl.store.secrets import SecretTable

_PAGE: Final[Mapping[SecretTable, str]] = {
    "credential": """
select id::text as key, data_encrypted from noetl.credential
where id > $1 order by id limit $2""",
    "keychain": """
select cache_key as key, data_encrypted from noetl.keychain
where data_encrypted is not null and cache_key collate "C" > $1
order by cache_key collate "C" limit $2""",
    "execution_secret": """
select execution_id || '/' || name as key, data_encrypted from noetl.execution_secret
where (execution_id, name collate "C") > ($1, $2)
order by execution_id, name collate "C" limit $3""",
}
_SWAP: Final[Mapping[SecretTable, str]] = {
    "credential": """
update noetl.credential t set data_encrypted = given.after
from unnest($1::text[], $2::text[], $3::text[]) as given(key, before, after)
where t.id = given.key::bigint and t.data_encrypted = given.before returning given.key""",
    "keychain": """
update noetl.keychain t set data_encrypted = given.after
from unnest($1::text[], $2::text[], $3::text[]) as given(key, before, after)
where t.cache_key = given.key and t.data_encrypted = given.before returning given.key""",
    "execution_secret": """
update noetl.execution_secret t set data_encrypted = given.after
from unnest($1::text[], $2::text[], $3::text[]) as given(key, before, after)
where t.execution_id = split_part(given.key, '/', 1)::bigint
    and t.name = substr(given.key, strpos(given.key, '/') + 1)
    and t.data_encrypted = given.before returning given.key""",
}


class PostgresRecords:
    """Records by table, each under its key."""

    def __init__(self, database: Database) -> None:
        self._database = database.background

    async def page(
        self, table: SecretTable, *, after: str | None = None, limit: int = 100
    ) -> list[SealedRecord]:
        """Records in a fixed order, those behind a key."""
        rows = await self._database.fetch(_PAGE[table], *_behind(table, after), limit)
        return [SealedRecord(key=shown(row["key"]), record=row["data_encrypted"]) for row in rows]

    async def swap(
        self, table: SecretTable, changes: Sequence[tuple[SealedRecord, str]]
    ) -> list[str]:
        """Replace records by others, where they are still the same."""
        rows = await self._database.fetch(
            _SWAP[table],
            [stored(before.key) for before, _ in changes],
            [before.record for before, _ in changes],
            [record for _, record in changes],
        )
        return [shown(row["key"]) for row in rows]


def _behind(table: SecretTable, after: str | None) -> tuple[int | str | None, ...]:
    """A key as its columns hold it; one before all others when there is none."""
    if table == "keychain":
        return (stored(after or ""),)
    number, _, name = (after or "0/").partition("/")
    return (id_of(number),) if table == "credential" else (id_of(number), stored(name))
