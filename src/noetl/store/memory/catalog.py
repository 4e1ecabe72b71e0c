"""Documents by path and version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from noetl.store.base import CatalogEntry, CatalogListing
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

    async def listed(self, listing: CatalogListing) -> list[CatalogEntry]:
        """A page of documents by path, then newest version first."""
        found = []
        for path in sorted(self._table.paths):
            if not _is_wanted(path, listing):
                continue
            versions = [
                entry
                for entry in reversed(self._table.paths[path])
                if (listing.kind is None or entry.kind == listing.kind)
                and (listing.include_archived or entry.archived_at is None)
            ]
            found += versions if listing.all_versions else versions[:1]
        after = listing.after
        if after is not None:
            found = [row for row in found if (row.path, -row.version) > (after[0], -after[1])]
        return found[: listing.limit]


def _is_wanted(path: str, listing: CatalogListing) -> bool:
    return path.startswith(listing.path_prefix or "") and (listing.q or "") in path
