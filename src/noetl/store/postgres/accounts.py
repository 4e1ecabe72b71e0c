"""Accounts of persons and of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.identity import AccountRow
from noetl.store.postgres.documents import stored
from noetl.store.postgres.values import id_of, moment, told

if TYPE_CHECKING:
    import asyncpg

    from noetl.store.identity import AccountListing
    from noetl.store.postgres.database import Database

_ADD: Final = """
insert into noetl.account (account_id, tenant_id, kind, subject, email, display_name,
    password_hash, active, roles, created_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce($10, now()))
on conflict (tenant_id, subject) do nothing returning true"""
_GET: Final = "select * from noetl.account where account_id = $1"
_BY_SUBJECT: Final = "select * from noetl.account where tenant_id = $1 and subject = $2"
_BY_EMAIL: Final = """
select * from noetl.account
where tenant_id = $1 and email is not null and lower(email) = lower($2) and kind = 'user'
order by account_id limit 2"""
_OF_IDENTITY: Final = """
select account.* from noetl.identity join noetl.account using (account_id)
where identity.tenant_id = $1 and identity.issuer = $2 and identity.subject = $3"""
_LINK: Final = """
insert into noetl.identity (tenant_id, issuer, subject, account_id)
select tenant_id, $2, $3, account_id from noetl.account where account_id = $1
on conflict (tenant_id, issuer, subject) do nothing"""
_LISTED: Final = """
select * from noetl.account
where tenant_id = $1 and account_id > coalesce($2::bigint, 0)
    and ($3::text is null or strpos(lower(subject), lower($3)) > 0
        or strpos(lower(coalesce(email, '')), lower($3)) > 0
        or strpos(lower(coalesce(display_name, '')), lower($3)) > 0)
    and ($4::text is null or kind = $4)
    and ($5::boolean is null or active = $5)
    and ($6::text is null or $6 = any(roles))
order by account_id limit $7"""
_CHANGE: Final = """
update noetl.account
set email = $2, display_name = $3, password_hash = $4, roles = $5, active = $6
where account_id = $1 returning true"""
_REMOVE: Final = "delete from noetl.account where account_id = $1 returning true"
_HOLDERS: Final = """
select count(*) from noetl.account where tenant_id = $1 and $2 = any(roles)"""
_ADMINS: Final = """
select account_id from noetl.account where tenant_id = $1 and active and 'admin' = any(roles)
order by account_id limit 2"""


class PostgresAccounts:
    """Accounts by id."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, row: AccountRow) -> bool:
        """Keep an account; false when its tenant has the subject."""
        return bool(
            await self._database.fetchval(
                _ADD,
                id_of(row.account_id),
                row.tenant_id,
                row.kind,
                row.subject,
                row.email,
                row.display_name,
                row.password_hash,
                row.active,
                list(row.roles),
                moment(row.created_at),
            )
        )

    async def get(self, account_id: str) -> AccountRow | None:
        """One account."""
        return _row(await self._database.fetchrow(_GET, id_of(account_id)))

    async def by_subject(self, tenant_id: str, subject: str) -> AccountRow | None:
        """The account of that name."""
        wanted = (stored(tenant_id), stored(subject))
        return _row(await self._database.fetchrow(_BY_SUBJECT, *wanted))

    async def by_email(self, tenant_id: str, email: str) -> list[AccountRow]:
        """Accounts of persons with that e-mail, in any case; two are enough to tell."""
        wanted = (stored(tenant_id), stored(email))
        return _rows(await self._database.fetch(_BY_EMAIL, *wanted))

    async def of_identity(self, tenant_id: str, issuer: str, subject: str) -> AccountRow | None:
        """The account that somebody has whom an issuer knows as `subject`."""
        wanted = (stored(tenant_id), stored(issuer), stored(subject))
        return _row(await self._database.fetchrow(_OF_IDENTITY, *wanted))

    async def link(self, account_id: str, issuer: str, subject: str) -> None:
        """Let the account be that of an issuer's subject; one that is linked stays as it is."""
        await self._database.execute(_LINK, id_of(account_id), stored(issuer), stored(subject))

    async def listed(self, listing: AccountListing) -> list[AccountRow]:
        """A page of accounts, in the order of their ids."""
        return _rows(
            await self._database.background.fetch(
                _LISTED,
                listing.tenant_id,
                id_of(listing.after),
                None if listing.q is None else stored(listing.q),
                listing.kind,
                listing.active,
                None if listing.role is None else stored(listing.role),
                listing.limit,
            )
        )

    async def change(self, row: AccountRow) -> bool:
        """Write e-mail, display name, password, roles, and whether it is active."""
        return bool(
            await self._database.fetchval(
                _CHANGE,
                id_of(row.account_id),
                row.email,
                row.display_name,
                row.password_hash,
                list(row.roles),
                row.active,
            )
        )

    async def remove(self, account_id: str) -> bool:
        """Forget an account with its tokens, sessions and identities; false when it is unknown."""
        return bool(await self._database.fetchval(_REMOVE, id_of(account_id)))

    async def holders(self, tenant_id: str, role: str) -> int:
        """How many accounts of a tenant have a role, those that are not active included."""
        return int(await self._database.fetchval(_HOLDERS, tenant_id, stored(role)))

    async def admins(self, tenant_id: str) -> list[str]:
        """Active accounts of a tenant with the role `admin`; two are enough to tell."""
        rows = await self._database.fetch(_ADMINS, tenant_id)
        return [str(row["account_id"]) for row in rows]


def _rows(rows: list[asyncpg.Record]) -> list[AccountRow]:
    return [row for row in map(_row, rows) if row is not None]


def _row(row: asyncpg.Record | None) -> AccountRow | None:
    if row is None:
        return None
    return AccountRow(
        account_id=str(row["account_id"]),
        subject=row["subject"],
        kind=row["kind"],
        tenant_id=row["tenant_id"],
        email=row["email"],
        display_name=row["display_name"],
        password_hash=row["password_hash"],
        active=row["active"],
        roles=tuple(row["roles"]),
        created_at=told(row["created_at"]) or "",
    )
