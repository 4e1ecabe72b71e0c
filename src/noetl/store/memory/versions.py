"""What became of the versions of documents."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from noetl.store.memory.catalog import activate_row, settle, versions_at
from noetl.store.versions import Removed, VersionRow

if TYPE_CHECKING:
    from noetl.store.base import CatalogEntry
    from noetl.store.memory.tables import Tables


class MemoryVersions:
    """The versions of documents."""

    def __init__(self, tables: Tables) -> None:
        self._table = tables.catalog
        self._executions = tables.executions

    async def page(
        self, tenant_id: str, path: str, limit: int = 50, before: int | None = None
    ) -> list[VersionRow]:
        """Versions below a number, newest first, with the number of their runs."""
        place = (tenant_id, path)
        kept = versions_at(self._table, place)[::-1]
        rows = [row for row in kept if before is None or row.version < before][:limit]
        runs = self._runs()
        active = self._table.active.get(place)
        return [
            VersionRow(
                catalog_id=row.catalog_id,
                version=row.version,
                kind=row.kind,
                digest=row.digest,
                created_at=row.created_at,
                created_by=row.created_by,
                message=row.message,
                archived_at=row.archived_at,
                active=row.catalog_id == active,
                execution_count=runs[row.catalog_id],
            )
            for row in rows
        ]

    async def promote(self, tenant_id: str, path: str, version: int) -> bool:
        """Make a version what its path means; false when it is not there or archived."""
        fit = [row for row in self._wanted(tenant_id, path, version) if row.archived_at is None]
        for row in fit:
            activate_row(self._table, (tenant_id, path), row.catalog_id)
        return bool(fit)

    async def archive(
        self, tenant_id: str, path: str, version: int | None, now: str
    ) -> tuple[int, ...]:
        """Put versions away; those that were not so before."""
        rows = [row for row in self._wanted(tenant_id, path, version) if row.archived_at is None]
        return self._changed(rows, archived_at=now)

    async def restore(self, tenant_id: str, path: str, version: int | None) -> tuple[int, ...]:
        """Bring versions back; those that were archived."""
        wanted = self._wanted(tenant_id, path, version)
        rows = [row for row in wanted if row.archived_at is not None]
        return self._changed(rows, archived_at=None)

    async def remove(self, tenant_id: str, path: str, version: int | None, now: str) -> Removed:
        """Remove versions that no run was made with, and archive the others."""
        runs = self._runs()
        wanted = self._wanted(tenant_id, path, version)
        unused = [row for row in wanted if not runs[row.catalog_id]]
        used = [row for row in wanted if runs[row.catalog_id] and row.archived_at is None]
        return Removed(
            deleted=self._changed(unused, removed_at=now),
            archived=self._changed(used, archived_at=now),
        )

    def _wanted(self, tenant_id: str, path: str, version: int | None) -> list[CatalogEntry]:
        kept = versions_at(self._table, (tenant_id, path))
        return [row for row in kept if version is None or row.version == version]

    def _changed(self, rows: list[CatalogEntry], **fields: str | None) -> tuple[int, ...]:
        for row in rows:
            changed = msgspec.structs.replace(row, **fields)
            self._table.rows[row.catalog_id] = changed
            settle(self._table, (row.tenant_id, row.path))
        return tuple(row.version for row in rows)

    def _runs(self) -> Counter[str]:
        return Counter(row.catalog_id for row in self._executions.rows.values())
