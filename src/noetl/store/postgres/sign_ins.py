"""Attempts with passwords, counted for all servers together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.postgres.documents import stored
from noetl.store.postgres.values import moment, told

if TYPE_CHECKING:
    from noetl.store.postgres.database import Database

_ATTEMPT: Final = """
insert into noetl.sign_in as known (name, attempts, locked_until, updated_at)
values ($1, array[$2::timestamptz], case when $4::int <= 1 then $5::timestamptz end,
    case when $4::int <= 1 then $5::timestamptz else $2 end)
on conflict (name) do update
set (attempts, locked_until, updated_at) = (
    select recent || $2, case when cardinality(recent) + 1 >= $4::int then $5 end,
        case when cardinality(recent) + 1 >= $4::int then $5 else $2 end
    from (select array(
        select at from unnest(known.attempts) as at where at > $3::timestamptz order by at
    )) as kept (recent)
)
where known.locked_until is null or known.locked_until <= $2
returning true"""
_LOCKED: Final = "select locked_until from noetl.sign_in where name = $1 and locked_until > $2"
_FORGIVE: Final = "delete from noetl.sign_in where name = $1"
_FORGET: Final = """
with gone as (delete from noetl.sign_in where updated_at < $1 returning 1)
select count(*) from gone"""


class PostgresSignIns:
    """Attempts by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def attempt(
        self, name: str, now: str, *, since: str, most: int, until: str
    ) -> str | None:
        """Count an attempt before it is checked; until when the name is locked, if it is."""
        key, moments = stored(name), (moment(now), moment(since))
        if await self._database.fetchval(_ATTEMPT, key, *moments, most, moment(until)):
            return None
        return told(await self._database.fetchval(_LOCKED, key, moment(now)))

    async def forgive(self, name: str) -> None:
        """Forget the attempts of a name: it was right."""
        await self._database.execute(_FORGIVE, stored(name))

    async def forget(self, before: str) -> int:
        """Drop names whose last attempt and lock lie before; how many there were."""
        return int(await self._database.background.fetchval(_FORGET, moment(before)))
