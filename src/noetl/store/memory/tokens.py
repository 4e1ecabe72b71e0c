"""Bearers by the digest of their token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from noetl.store.base import TokenRow
    from noetl.store.memory.tables import Tables


class MemoryTokens:
    """Tokens by digest."""

    def __init__(self, tables: Tables) -> None:
        self._rows = tables.tokens

    async def find(self, sha256: str) -> TokenRow | None:
        """Who holds a token of this digest, revoked or expired ones included."""
        return self._rows.get(sha256)

    async def put(self, row: TokenRow) -> None:
        """Keep a token and its account; the same digest again changes nothing."""
        self._rows.setdefault(row.sha256, row)

    async def revoke(self, token_id: str, now: str) -> bool:
        """End a token; false when it is not known."""
        for digest, row in self._rows.items():
            if row.token_id == token_id:
                if row.revoked_at is None:
                    self._rows[digest] = msgspec.structs.replace(row, revoked_at=now)
                return True
        return False
