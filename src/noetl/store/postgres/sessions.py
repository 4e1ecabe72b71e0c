"""Those who have signed in, by the digest of their token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.identity import EndedSession, SessionRow
from noetl.store.postgres.documents import value_of, written
from noetl.store.postgres.values import id_of, moment, told

if TYPE_CHECKING:
    import asyncpg

    from noetl.store.postgres.database import Database

_PUT: Final = """
insert into noetl.session
    (session_id, sha256, account_id, created_at, expires_at, idle_until, client, revoked_at)
values ($1, $2, $3, $4, $5, $6, $7, $8)"""
_FIND: Final = """
select * from noetl.session_held where sha256 = $1 and active
union all
select * from noetl.session_held where previous_sha256 = $1 and active
limit 1"""
_GET: Final = "select * from noetl.session_held where session_id = $1"
_LISTED: Final = """
select * from noetl.session_held
where account_id = $1 and revoked_at is null and expires_at > $2 and idle_until > $2
order by session_id"""
_TOUCH: Final = """
update noetl.session set idle_until = least($2, expires_at)
where session_id = $1 and idle_until + interval '1 minute' <= $2"""
_REFRESH: Final = """
update noetl.session
set sha256 = $2, previous_sha256 = sha256, refreshed_at = $4, expires_at = $5, idle_until = $6
where session_id = $1 and sha256 = $3 and revoked_at is null
returning true"""
_REVOKE: Final = """
update noetl.session set revoked_at = coalesce(revoked_at, $2) where session_id = $1
returning true"""
_REVOKE_ALL: Final = """
with ended as (
    update noetl.session set revoked_at = $2
    where account_id = $1 and revoked_at is null and expires_at > $2 and idle_until > $2
    returning session_id, sha256, previous_sha256
)
select * from ended order by session_id"""
_FORGET: Final = """
with gone as (
    delete from noetl.session where account_id = $1 and expires_at < $2 returning 1
)
select count(*) from gone"""


class PostgresSessions:
    """Sessions by digest."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, row: SessionRow) -> None:
        """Keep a session of the account `account_id`."""
        await self._database.execute(
            _PUT,
            id_of(row.session_id),
            bytes.fromhex(row.sha256),
            id_of(row.account_id),
            moment(row.created_at),
            moment(row.expires_at),
            moment(row.idle_until),
            written(row.client),
            moment(row.revoked_at),
        )

    async def find(self, sha256: str) -> SessionRow | None:
        """The session of this digest, or that had it before; revoked or expired ones included."""
        row = await self._database.fetchrow(_FIND, bytes.fromhex(sha256))
        return None if row is None else _row(row)

    async def get(self, session_id: str) -> SessionRow | None:
        """One session, whether or not its account is active."""
        row = await self._database.fetchrow(_GET, id_of(session_id))
        return None if row is None else _row(row)

    async def listed(self, account_id: str, now: str) -> list[SessionRow]:
        """Sessions of an account that have not ended, oldest first."""
        rows = await self._database.background.fetch(_LISTED, id_of(account_id), moment(now))
        return [_row(row) for row in rows]

    async def touch(self, session_id: str, idle_until: str) -> None:
        """Note that a session is used: never beyond its end, written at most once a minute."""
        await self._database.execute(_TOUCH, id_of(session_id), moment(idle_until))

    async def refresh(self, row: SessionRow) -> bool:
        """Write the digests and moments of a session that has `previous_sha256` for its digest."""
        is_done = await self._database.fetchval(
            _REFRESH,
            id_of(row.session_id),
            bytes.fromhex(row.sha256),
            bytes.fromhex(row.previous_sha256 or ""),
            moment(row.refreshed_at),
            moment(row.expires_at),
            moment(row.idle_until),
        )
        return bool(is_done)

    async def revoke(self, session_id: str, now: str) -> bool:
        """End a session; false when it is not known."""
        return bool(await self._database.fetchval(_REVOKE, id_of(session_id), moment(now)))

    async def revoke_all(self, account_id: str, now: str) -> list[EndedSession]:
        """End all sessions of an account; those that had not ended by then."""
        rows = await self._database.fetch(_REVOKE_ALL, id_of(account_id), moment(now))
        return [_ended(row) for row in rows]

    async def forget(self, account_id: str, before: str) -> int:
        """Drop sessions of an account that would have ended before; how many there were."""
        return int(await self._database.fetchval(_FORGET, id_of(account_id), moment(before)))


def _ended(row: asyncpg.Record) -> EndedSession:
    digests = (row["sha256"], row["previous_sha256"])
    return EndedSession(
        session_id=str(row["session_id"]), digests=tuple(one.hex() for one in digests if one)
    )


def _row(row: asyncpg.Record) -> SessionRow:
    before = row["previous_sha256"]
    return SessionRow(
        session_id=str(row["session_id"]),
        sha256=row["sha256"].hex(),
        account_id=str(row["account_id"]),
        created_at=told(row["created_at"]) or "",
        expires_at=told(row["expires_at"]) or "",
        idle_until=told(row["idle_until"]) or "",
        client=value_of(row["client"]) or {},
        revoked_at=told(row["revoked_at"]),
        refreshed_at=told(row["refreshed_at"]),
        previous_sha256=None if before is None else before.hex(),
        account=row["subject"],
        kind=row["kind"],
        roles=tuple(row["roles"]),
        tenant_id=row["tenant_id"],
        email=row["email"],
        display_name=row["display_name"],
    )
