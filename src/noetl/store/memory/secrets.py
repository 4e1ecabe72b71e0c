"""Sealed secrets: credentials, values of the keychain, secret inputs of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from noetl.store.memory.tables import Tables
    from noetl.store.secrets import CredentialListing, CredentialRow, KeychainRow

replace = msgspec.structs.replace


class MemoryCredentials:
    """Credentials of tenants."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables.secrets

    async def put(self, row: CredentialRow) -> CredentialRow | None:
        """Keep a credential under its id; none when its name is that of another id."""
        place = (row.tenant_id, row.name)
        if self._tables.names.get(place, row.id) != row.id:
            return None
        before = self._tables.credentials.get(row.id)
        made = row if before is None else replace(row, created_at=before.created_at)
        self._tables.names[place] = row.id
        self._tables.credentials[row.id] = made
        return made

    async def get(self, tenant_id: str, name: str) -> CredentialRow | None:
        """The credential of a name."""
        return self._tables.credentials.get(self._tables.names.get((tenant_id, name), ""))

    async def by_id(self, tenant_id: str, credential_id: str) -> CredentialRow | None:
        """The credential of an id."""
        found = self._tables.credentials.get(credential_id)
        return found if found is not None and found.tenant_id == tenant_id else None

    async def listed(self, tenant_id: str, listing: CredentialListing) -> list[CredentialRow]:
        """Credentials by name; their records are left out."""
        part = (listing.q or "").lower()
        found = [
            replace(row, data_encrypted="")
            for row in self._tables.credentials.values()
            if row.tenant_id == tenant_id
            and listing.type in {None, row.type}
            and (listing.after is None or row.name > listing.after)
            and (part in row.name.lower() or part in row.description.lower())
        ]
        return sorted(found, key=lambda row: row.name)[: listing.limit]

    async def delete(self, tenant_id: str, credential_id: str) -> bool:
        """Forget a credential; false when it is not there."""
        found = await self.by_id(tenant_id, credential_id)
        if found is None:
            return False
        del self._tables.credentials[credential_id]
        del self._tables.names[tenant_id, found.name]
        return True


class MemoryKeychain:
    """Kept values of keychain entries."""

    def __init__(self, tables: Tables) -> None:
        self._rows = tables.secrets.keychain

    async def put(self, row: KeychainRow) -> KeychainRow:
        """Keep a value under its key; one that is known keeps its id and its counts."""
        before = self._rows.get(row.cache_key)
        if before is not None:
            row = replace(
                row,
                id=before.id,
                created_at=before.created_at,
                accessed_at=before.accessed_at,
                access_count=before.access_count,
            )
        self._rows[row.cache_key] = row
        return row

    async def get(self, cache_key: str) -> KeychainRow | None:
        """A value, also one whose time has passed; no read is counted."""
        return self._rows.get(cache_key)

    async def touch(self, reads: Mapping[str, int], now: str) -> None:
        """Count reads by key."""
        for key, count in reads.items():
            row = self._rows.get(key)
            if row is not None:
                self._rows[key] = replace(
                    row, accessed_at=now, access_count=row.access_count + count
                )

    async def listed(
        self, catalog_id: str, *, after: str = "", limit: int = 100
    ) -> list[KeychainRow]:
        """Values of one document by key; their records are left out."""
        keys = sorted(
            key for key, row in self._rows.items() if row.catalog_id == catalog_id and key > after
        )
        return [replace(self._rows[key], data_encrypted="") for key in keys[:limit]]

    async def expiring(
        self, before: str, *, after: str = "", limit: int = 100, renews: bool = False
    ) -> list[KeychainRow]:
        """Values that end before a moment and after another, the next one first."""
        found = [
            (row.expires_at, row.cache_key, row)
            for row in self._rows.values()
            if row.expires_at is not None
            and after < row.expires_at < before
            and (row.auto_renew or not renews)
        ]
        found.sort(key=lambda one: one[:2])
        return [replace(row, data_encrypted="") for _, _, row in found[:limit]]

    async def delete(self, cache_key: str) -> bool:
        """Forget a value; false when it is not there."""
        return self._rows.pop(cache_key, None) is not None


class MemoryTurns:
    """Whose turn it is to make a kept value anew."""

    def __init__(self, tables: Tables) -> None:
        self._turns = tables.secrets.turns

    async def take(self, cache_key: str, holder: str, *, now: str, until: str) -> bool:
        """Take the turn of a key until a moment; false as long as it is another's."""
        known, ends = self._turns.get(cache_key, ("", ""))
        if known != holder and ends > now:
            return False
        self._turns[cache_key] = (holder, until)
        return True

    async def leave(self, cache_key: str, holder: str) -> None:
        """Give a turn back; one that was lost meanwhile is left to its new holder."""
        if self._turns.get(cache_key, ("", ""))[0] == holder:
            del self._turns[cache_key]


class MemoryExecutionSecrets:
    """Sealed values of secret inputs."""

    def __init__(self, tables: Tables) -> None:
        self._inputs = tables.secrets.inputs

    async def put(self, execution_id: str, records: Mapping[str, str]) -> None:
        """Keep records under their names."""
        if records:
            self._inputs.setdefault(execution_id, {}).update(records)

    async def get(self, execution_id: str) -> dict[str, str]:
        """Every record of a run by its name."""
        return dict(self._inputs.get(execution_id, {}))
