"""Those who share a platform."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.store.identity import TenantRow

if TYPE_CHECKING:
    from noetl.store.memory.tables import Tables


class MemoryTenants:
    """Tenants by id."""

    def __init__(self, tables: Tables) -> None:
        self._rows = tables.identity.tenants
        self._rows["default"] = TenantRow(tenant_id="default", name="default")

    async def add(self, row: TenantRow) -> bool:
        """Keep a tenant; false when its id is taken."""
        return self._rows.setdefault(row.tenant_id, row) is row

    async def get(self, tenant_id: str) -> TenantRow | None:
        """One tenant."""
        return self._rows.get(tenant_id)

    async def listed(self, limit: int = 50, after: str | None = None) -> list[TenantRow]:
        """A page of tenants, by id."""
        found = sorted(name for name in self._rows if after is None or name > after)
        return [self._rows[name] for name in found[:limit]]
