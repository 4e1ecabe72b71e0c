"""Documents by path and version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from noetl.store.base import CatalogEntry
    from noetl.store.memory.tables import Tables


class MemoryCatalog:
    """Every version of every document."""

    def __init__(self, tables: Tables) -> None:
        self._table = tables.catalog

    async def add(self, entry: CatalogEntry) -> CatalogEntry:
        """Keep a document under the next version; equal to the newest one, that one is answered."""
        versions = self._table.paths.setdefault(entry.path, [])
        if versions and versions[-1].digest == entry.digest:
            return versions[-1]
        kept = msgspec.structs.replace(entry, version=len(versions) + 1)
        versions.append(kept)
        self._table.rows[kept.catalog_id] = kept
        return kept

    async def get(self, catalog_id: str) -> CatalogEntry | None:
        """One version by its id."""
        return self._table.rows.get(catalog_id)

    async def resolve(self, path: str, version: int | None = None) -> CatalogEntry | None:
        """A version of a path; the newest when none is named."""
        versions = self._table.paths.get(path, [])
        number = len(versions) if version is None else version
        return versions[number - 1] if 1 <= number <= len(versions) else None

    async def versions(self, path: str) -> list[CatalogEntry]:
        """All versions of a path, newest first."""
        return self._table.paths.get(path, [])[::-1]
