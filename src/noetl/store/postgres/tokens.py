"""Bearers by the digest of their token, each of an account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.identity import TokenRow, narrowed
from noetl.store.postgres.values import id_of, moment, told

if TYPE_CHECKING:
    import asyncpg

    from noetl.store.postgres.database import Database

_FIND: Final = "select * from noetl.token_held where sha256 = $1 and active"
_GET: Final = "select * from noetl.token_held where token_id = $1"
_LISTED: Final = """
select * from noetl.token_held
where account_id = $1 and token_id > coalesce($2::bigint, 0)
    and ($3::boolean or revoked_at is null)
order by token_id limit $4"""
_IS_KNOWN: Final = "select true from noetl.token where sha256 = $1"
_PUT: Final = """
with owner as (
    insert into noetl.account (account_id, tenant_id, kind, subject, active, roles, created_at)
    values ($1, $2, 'service', $3, true, $4, coalesce($11, now()))
    on conflict (tenant_id, subject) do update
    set roles = array(
        select distinct role collate "C" from unnest(account.roles || excluded.roles) as role
        order by 1
    )
    returning account_id
)
insert into noetl.token
    (token_id, account_id, sha256, name, scopes, pool, expires_at, revoked_at, created_at)
select $1, account_id, $5, $6, $10, $7, $8, $9, coalesce($11, now()) from owner
on conflict (sha256) do nothing"""
_LOCK: Final = "select true from noetl.account where account_id = $1 for update"
_ADD: Final = """
insert into noetl.token (token_id, account_id, sha256, name, scopes, pool, expires_at, created_at)
values ($1, $2, $3, $4, $5, $6, $7, $8)"""
_RENEW: Final = """
update noetl.token set sha256 = $2, created_at = $3, expires_at = $4, last_used_at = null
where token_id = $1 and revoked_at is null returning true"""
_COUNT: Final = """
select count(*) from noetl.token
where account_id = $1 and revoked_at is null and (expires_at is null or expires_at > $2)"""
_REVOKE: Final = """
update noetl.token set revoked_at = coalesce(revoked_at, $2) where token_id = $1 returning true"""
_TOUCH: Final = """
update noetl.token set last_used_at = $2
where token_id = $1 and (last_used_at is null or last_used_at + interval '1 minute' <= $2)"""


class PostgresTokens:
    """Tokens by digest."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, sha256: str) -> TokenRow | None:
        """Who holds a token of this digest, revoked or expired ones included."""
        row = await self._database.fetchrow(_FIND, bytes.fromhex(sha256))
        return None if row is None else _row(row)

    async def get(self, token_id: str) -> TokenRow | None:
        """One token, whether or not its account is active."""
        row = await self._database.fetchrow(_GET, id_of(token_id))
        return None if row is None else _row(row)

    async def put(self, row: TokenRow) -> None:
        """Keep a token and the account of its name; the same digest again changes nothing."""
        digest = bytes.fromhex(row.sha256)
        if await self._database.fetchval(_IS_KNOWN, digest):
            return
        await self._database.execute(
            _PUT,
            id_of(row.token_id),
            row.tenant_id,
            row.account,
            sorted(row.roles),
            digest,
            row.name,
            row.pool,
            moment(row.expires_at),
            moment(row.revoked_at),
            list(row.scopes or row.roles),
            moment(row.created_at),
        )

    async def add(self, row: TokenRow, most: int, now: str) -> bool:
        """Keep a token of the account `account_id`; false when that has `most` live ones."""
        owner = id_of(row.account_id)
        async with self._database.connection() as connection, connection.transaction():
            if not await connection.fetchval(_LOCK, owner):
                return False
            if await connection.fetchval(_COUNT, owner, moment(now)) >= most:
                return False
            await connection.execute(
                _ADD,
                id_of(row.token_id),
                owner,
                bytes.fromhex(row.sha256),
                row.name,
                list(row.scopes),
                row.pool,
                moment(row.expires_at),
                moment(row.created_at),
            )
        return True

    async def renew(
        self, token_id: str, sha256: str, *, created_at: str, expires_at: str | None
    ) -> bool:
        """Give a token another text; false when it is not known or was revoked."""
        digest, times = bytes.fromhex(sha256), (moment(created_at), moment(expires_at))
        return bool(await self._database.fetchval(_RENEW, id_of(token_id), digest, *times))

    async def listed(
        self,
        account_id: str,
        *,
        limit: int = 50,
        after: str | None = None,
        with_revoked: bool = False,
    ) -> list[TokenRow]:
        """A page of the tokens of an account, in the order of their ids."""
        wanted = (id_of(account_id), id_of(after), with_revoked, limit)
        return [_row(row) for row in await self._database.background.fetch(_LISTED, *wanted)]

    async def count(self, account_id: str, now: str) -> int:
        """How many tokens of an account are neither revoked nor expired."""
        return int(await self._database.fetchval(_COUNT, id_of(account_id), moment(now)))

    async def revoke(self, token_id: str, now: str) -> bool:
        """End a token; false when it is not known."""
        return bool(await self._database.fetchval(_REVOKE, id_of(token_id), moment(now)))

    async def touch(self, token_id: str, now: str) -> None:
        """Note that a token was used; written at most once a minute."""
        await self._database.background.execute(_TOUCH, id_of(token_id), moment(now))


def _row(row: asyncpg.Record) -> TokenRow:
    scopes = tuple(row["scopes"])
    return TokenRow(
        token_id=str(row["token_id"]),
        sha256=row["sha256"].hex(),
        account=row["subject"],
        account_id=str(row["account_id"]),
        kind=row["kind"],
        roles=narrowed(row["roles"], scopes),
        name=row["name"] or "",
        scopes=scopes,
        pool=row["pool"],
        tenant_id=row["tenant_id"],
        created_at=told(row["created_at"]) or "",
        expires_at=told(row["expires_at"]),
        last_used_at=told(row["last_used_at"]),
        revoked_at=told(row["revoked_at"]),
    )
