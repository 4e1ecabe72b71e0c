"""Bearers by the digest of their token, each of an account."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.base import TokenRow
from noetl.store.postgres.values import id_of, moment, told

if TYPE_CHECKING:
    from noetl.store.postgres.database import Database

_FIND: Final = """
select token_id, sha256, name, scopes, pool, expires_at, revoked_at, subject, tenant_id
from noetl.token join noetl.account using (account_id)
where sha256 = $1 and account.active"""
_PUT: Final = """
with owner as (
    insert into noetl.account (account_id, tenant_id, kind, subject, active, roles)
    values ($1, $2, 'service', $3, true, $4)
    on conflict (tenant_id, subject) do update
    set roles = array(select distinct unnest(account.roles || excluded.roles) order by 1)
    returning account_id
)
insert into noetl.token (token_id, account_id, sha256, name, scopes, pool, expires_at, revoked_at)
select $1, account_id, $5, $6, $4, $7, $8, $9 from owner
on conflict (sha256) do nothing"""
_REVOKE: Final = """
update noetl.token set revoked_at = coalesce(revoked_at, $2) where token_id = $1 returning true"""


class PostgresTokens:
    """Tokens by digest.

    An account has all roles that its tokens were given; a token has its own of them (`scopes`).
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, sha256: str) -> TokenRow | None:
        """Who holds a token of this digest, revoked or expired ones included."""
        row = await self._database.fetchrow(_FIND, bytes.fromhex(sha256))
        if row is None:
            return None
        return TokenRow(
            token_id=str(row["token_id"]),
            sha256=sha256,
            account=row["subject"],
            roles=tuple(row["scopes"]),
            name=row["name"] or "",
            pool=row["pool"],
            tenant_id=row["tenant_id"],
            expires_at=told(row["expires_at"]),
            revoked_at=told(row["revoked_at"]),
        )

    async def put(self, row: TokenRow) -> None:
        """Keep a token and its account; the same digest again changes nothing."""
        digest = bytes.fromhex(row.sha256)
        if await self._database.fetchrow(_FIND, digest) is not None:
            return
        await self._database.execute(
            _PUT,
            id_of(row.token_id),
            row.tenant_id,
            row.account,
            list(row.roles),
            digest,
            row.name,
            row.pool,
            moment(row.expires_at),
            moment(row.revoked_at),
        )

    async def revoke(self, token_id: str, now: str) -> bool:
        """End a token; false when it is not known."""
        return bool(await self._database.fetchval(_REVOKE, id_of(token_id), moment(now)))
