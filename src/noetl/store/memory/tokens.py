"""Bearers by the digest of their token, each of an account."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.store.identity import AccountRow, narrowed

if TYPE_CHECKING:
    from noetl.store.identity import TokenRow
    from noetl.store.memory.tables import Tables

_A_MINUTE: Final = timedelta(minutes=1)


class MemoryTokens:
    """Tokens by digest."""

    def __init__(self, tables: Tables) -> None:
        self._rows = tables.identity.tokens
        self._accounts = tables.identity.accounts

    async def find(self, sha256: str) -> TokenRow | None:
        """Who holds a token of this digest, revoked or expired ones included."""
        row = self._rows.get(sha256)
        if row is None or not self._accounts[row.account_id].active:
            return None
        return self._told(row)

    async def get(self, token_id: str) -> TokenRow | None:
        """One token, whether or not its account is active."""
        row = self._of(token_id)
        return None if row is None else self._told(row)

    async def put(self, row: TokenRow) -> None:
        """Keep a token and the account of its name; the same digest again changes nothing."""
        if row.sha256 in self._rows:
            return
        account = self._owner(row)
        lacking = (role for role in row.roles if role not in account.roles)
        roles = tuple(sorted((*account.roles, *lacking)))
        self._accounts[account.account_id] = msgspec.structs.replace(account, roles=roles)
        self._rows[row.sha256] = msgspec.structs.replace(
            row, account_id=account.account_id, scopes=row.scopes or row.roles
        )

    async def add(self, row: TokenRow, most: int, now: str) -> bool:
        """Keep a token of the account `account_id`; false when that has `most` live ones."""
        if row.account_id not in self._accounts or await self.count(row.account_id, now) >= most:
            return False
        self._rows[row.sha256] = row
        return True

    async def renew(
        self, token_id: str, sha256: str, *, created_at: str, expires_at: str | None
    ) -> bool:
        """Give a token another text; false when it is not known or was revoked."""
        row = self._of(token_id)
        if row is None or row.revoked_at is not None:
            return False
        del self._rows[row.sha256]
        self._rows[sha256] = msgspec.structs.replace(
            row, sha256=sha256, created_at=created_at, expires_at=expires_at, last_used_at=None
        )
        return True

    async def listed(
        self,
        account_id: str,
        *,
        limit: int = 50,
        after: str | None = None,
        with_revoked: bool = False,
    ) -> list[TokenRow]:
        """A page of the tokens of an account, in the order of their ids."""
        first = 0 if after is None else int(after)
        found = [
            self._told(row)
            for row in self._rows.values()
            if row.account_id == account_id
            and int(row.token_id) > first
            and (with_revoked or row.revoked_at is None)
        ]
        return sorted(found, key=lambda row: int(row.token_id))[:limit]

    async def count(self, account_id: str, now: str) -> int:
        """How many tokens of an account are neither revoked nor expired."""
        return sum(
            row.account_id == account_id
            and row.revoked_at is None
            and (row.expires_at is None or row.expires_at > now)
            for row in self._rows.values()
        )

    async def revoke(self, token_id: str, now: str) -> bool:
        """End a token; false when it is not known."""
        row = self._of(token_id)
        if row is not None and row.revoked_at is None:
            self._rows[row.sha256] = msgspec.structs.replace(row, revoked_at=now)
        return row is not None

    async def touch(self, token_id: str, now: str) -> None:
        """Note that a token was used; written at most once a minute."""
        row = self._of(token_id)
        if row is None:
            return
        last = row.last_used_at
        if last is None or datetime.fromisoformat(now) - datetime.fromisoformat(last) >= _A_MINUTE:
            self._rows[row.sha256] = msgspec.structs.replace(row, last_used_at=now)

    def _of(self, token_id: str) -> TokenRow | None:
        return next((row for row in self._rows.values() if row.token_id == token_id), None)

    def _owner(self, row: TokenRow) -> AccountRow:
        for account in self._accounts.values():
            if (account.tenant_id, account.subject) == (row.tenant_id, row.account):
                return account
        return AccountRow(
            account_id=row.token_id,
            subject=row.account,
            kind="service",
            tenant_id=row.tenant_id,
            created_at=row.created_at,
        )

    def _told(self, row: TokenRow) -> TokenRow:
        account = self._accounts[row.account_id]
        return msgspec.structs.replace(
            row,
            account=account.subject,
            kind=account.kind,
            roles=narrowed(account.roles, row.scopes),
            tenant_id=account.tenant_id,
        )
