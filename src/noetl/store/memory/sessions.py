"""Those who have signed in, by the digest of their token."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.store.identity import EndedSession

if TYPE_CHECKING:
    from noetl.store.identity import SessionRow
    from noetl.store.memory.tables import Tables

_A_MINUTE: Final = timedelta(minutes=1)


class MemorySessions:
    """Sessions by digest."""

    def __init__(self, tables: Tables) -> None:
        self._rows = tables.identity.sessions
        self._accounts = tables.identity.accounts

    async def put(self, row: SessionRow) -> None:
        """Keep a session of the account `account_id`."""
        self._rows[row.sha256] = row

    async def find(self, sha256: str) -> SessionRow | None:
        """The session of this digest, or that had it before; revoked or expired ones included."""
        row = self._rows.get(sha256) or self._before(sha256)
        if row is None or not self._accounts[row.account_id].active:
            return None
        return self._told(row)

    async def get(self, session_id: str) -> SessionRow | None:
        """One session, whether or not its account is active."""
        row = self._of(session_id)
        return None if row is None else self._told(row)

    async def listed(self, account_id: str, now: str) -> list[SessionRow]:
        """Sessions of an account that have not ended, oldest first."""
        found = (row for row in self._rows.values() if row.account_id == account_id)
        live = [self._told(row) for row in found if _is_live(row, now)]
        return sorted(live, key=lambda row: int(row.session_id))

    async def touch(self, session_id: str, idle_until: str) -> None:
        """Note that a session is used: never beyond its end, written at most once a minute."""
        row = self._of(session_id)
        if row is None:
            return
        ahead = datetime.fromisoformat(idle_until) - datetime.fromisoformat(row.idle_until)
        if ahead >= _A_MINUTE:
            self._write(row, idle_until=min(idle_until, row.expires_at))

    async def refresh(self, row: SessionRow) -> bool:
        """Write the digests and moments of a session that has `previous_sha256` for its digest."""
        before = self._rows.get(row.previous_sha256 or "")
        if before is None or before.session_id != row.session_id or before.revoked_at is not None:
            return False
        del self._rows[before.sha256]
        self._rows[row.sha256] = row
        return True

    async def revoke(self, session_id: str, now: str) -> bool:
        """End a session; false when it is not known."""
        row = self._of(session_id)
        if row is not None and row.revoked_at is None:
            self._write(row, revoked_at=now)
        return row is not None

    async def revoke_all(self, account_id: str, now: str) -> list[EndedSession]:
        """End all sessions of an account; those that had not ended by then."""
        live = await self.listed(account_id, now)
        for row in live:
            await self.revoke(row.session_id, now)
        return [EndedSession.of(row) for row in live]

    async def forget(self, account_id: str, before: str) -> int:
        """Drop sessions of an account that would have ended before; how many there were."""
        old = [
            sha256
            for sha256, row in self._rows.items()
            if row.account_id == account_id and row.expires_at < before
        ]
        for sha256 in old:
            del self._rows[sha256]
        return len(old)

    def _of(self, session_id: str) -> SessionRow | None:
        found = (row for row in self._rows.values() if row.session_id == session_id)
        return next(found, None)

    def _before(self, sha256: str) -> SessionRow | None:
        found = (row for row in self._rows.values() if row.previous_sha256 == sha256)
        return next(found, None)

    def _write(self, row: SessionRow, **changed: str) -> None:
        self._rows[row.sha256] = msgspec.structs.replace(row, **changed)

    def _told(self, row: SessionRow) -> SessionRow:
        account = self._accounts[row.account_id]
        return msgspec.structs.replace(
            row,
            account=account.subject,
            kind=account.kind,
            roles=account.roles,
            tenant_id=account.tenant_id,
            email=account.email,
            display_name=account.display_name,
        )


def _is_live(row: SessionRow, now: str) -> bool:
    return row.revoked_at is None and min(row.expires_at, row.idle_until) > now
