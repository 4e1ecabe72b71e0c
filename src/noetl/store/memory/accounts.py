"""Accounts of persons and of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from noetl.store.identity import AccountListing, AccountRow
    from noetl.store.memory.tables import Tables

_TWO: Final = 2


class MemoryAccounts:
    """Accounts by id."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables.identity
        self._rows = tables.identity.accounts

    async def add(self, row: AccountRow) -> bool:
        """Keep an account; false when its tenant has the subject."""
        if await self.by_subject(row.tenant_id, row.subject) is not None:
            return False
        self._rows[row.account_id] = row
        return True

    async def get(self, account_id: str) -> AccountRow | None:
        """One account."""
        return self._rows.get(account_id)

    async def by_subject(self, tenant_id: str, subject: str) -> AccountRow | None:
        """The account of that name."""
        wanted = (tenant_id, subject)
        found = (row for row in self._rows.values() if (row.tenant_id, row.subject) == wanted)
        return next(found, None)

    async def by_email(self, tenant_id: str, email: str) -> list[AccountRow]:
        """Accounts of persons with that e-mail, in any case; two are enough to tell."""
        found = [
            row
            for row in self._rows.values()
            if row.tenant_id == tenant_id
            and row.kind == "user"
            and row.email is not None
            and row.email.lower() == email.lower()
        ]
        return found[:_TWO]

    async def of_identity(self, tenant_id: str, issuer: str, subject: str) -> AccountRow | None:
        """The account that somebody has whom an issuer knows as `subject`."""
        account_id = self._tables.identities.get((tenant_id, issuer, subject))
        return None if account_id is None else self._rows[account_id]

    async def link(self, account_id: str, issuer: str, subject: str) -> None:
        """Let the account be that of an issuer's subject; one that is linked stays as it is."""
        key = (self._rows[account_id].tenant_id, issuer, subject)
        self._tables.identities.setdefault(key, account_id)

    async def listed(self, listing: AccountListing) -> list[AccountRow]:
        """A page of accounts, in the order of their ids."""
        found = [row for row in self._rows.values() if _fits(row, listing)]
        return sorted(found, key=lambda row: int(row.account_id))[: listing.limit]

    async def change(self, row: AccountRow) -> bool:
        """Write e-mail, display name, password, roles, and whether it is active."""
        known = self._rows.get(row.account_id)
        if known is None:
            return False
        self._rows[row.account_id] = msgspec.structs.replace(
            known,
            email=row.email,
            display_name=row.display_name,
            password_hash=row.password_hash,
            roles=row.roles,
            active=row.active,
        )
        return True

    async def remove(self, account_id: str) -> bool:
        """Forget an account with its tokens, sessions and identities; false when it is unknown."""
        if self._rows.pop(account_id, None) is None:
            return False
        tables = self._tables
        for rows in (tables.tokens, tables.sessions):
            for sha256 in [key for key, row in rows.items() if row.account_id == account_id]:
                del rows[sha256]
        for key in [key for key, owner in tables.identities.items() if owner == account_id]:
            del tables.identities[key]
        return True

    async def holders(self, tenant_id: str, role: str) -> int:
        """How many accounts of a tenant have a role, those that are not active included."""
        return sum(row.tenant_id == tenant_id and role in row.roles for row in self._rows.values())

    async def admins(self, tenant_id: str) -> list[str]:
        """Active accounts of a tenant with the role `admin`; two are enough to tell."""
        found = [
            row.account_id
            for row in self._rows.values()
            if row.tenant_id == tenant_id and row.active and "admin" in row.roles
        ]
        return found[:_TWO]


def _fits(row: AccountRow, listing: AccountListing) -> bool:
    names = (row.subject, row.email or "", row.display_name or "")
    return (
        row.tenant_id == listing.tenant_id
        and (listing.after is None or int(row.account_id) > int(listing.after))
        and (listing.q is None or any(listing.q.lower() in name.lower() for name in names))
        and listing.kind in {None, row.kind}
        and listing.active in {None, row.active}
        and (listing.role is None or listing.role in row.roles)
    )
