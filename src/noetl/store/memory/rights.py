"""Roles that were made here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.identity import RoleRow
    from noetl.store.memory.tables import Tables


class MemoryRights:
    """Roles by tenant and name."""

    def __init__(self, tables: Tables) -> None:
        self._rows = tables.identity.roles

    async def put(self, row: RoleRow) -> None:
        """Keep a role under its name; one that is there is replaced."""
        self._rows[row.tenant_id, row.name] = row

    async def get(self, tenant_id: str, name: str) -> RoleRow | None:
        """One role."""
        return self._rows.get((tenant_id, name))

    async def listed(self, tenant_id: str) -> list[RoleRow]:
        """All roles of a tenant, by name."""
        found = (row for row in self._rows.values() if row.tenant_id == tenant_id)
        return sorted(found, key=lambda row: row.name)

    async def of(self, tenant_id: str, names: Sequence[str]) -> list[RoleRow]:
        """Those of these roles that were made here, by name."""
        keys = ((tenant_id, name) for name in sorted(set(names)))
        return [self._rows[key] for key in keys if key in self._rows]

    async def remove(self, tenant_id: str, name: str) -> bool:
        """Forget a role; false when it is not known."""
        return self._rows.pop((tenant_id, name), None) is not None
