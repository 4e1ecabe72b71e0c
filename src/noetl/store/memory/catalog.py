"""Documents by path and version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from noetl.store.versions import must_be_newest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.store.base import CatalogEntry, CatalogListing
    from noetl.store.memory.tables import CatalogTables, Tables

Place = tuple[str, str]
"""A tenant and a path."""


class MemoryCatalog:
    """Every version of every document."""

    def __init__(self, tables: Tables) -> None:
        self._table = tables.catalog

    async def add(
        self, entry: CatalogEntry, *, activate: bool = True, if_version: int | None = None
    ) -> CatalogEntry:
        """Keep a document under the next version; equal to the newest one, that one is answered."""
        table, place = self._table, (entry.tenant_id, entry.path)
        kept = versions_at(table, place)
        newest = kept[-1] if kept else None
        must_be_newest(entry.path, newest.version if newest else 0, if_version)
        if newest is not None and _is_same(newest, entry):
            return newest
        made = msgspec.structs.replace(entry, version=len(table.paths.get(place, ())) + 1)
        table.paths.setdefault(place, []).append(made.catalog_id)
        table.rows[made.catalog_id] = made
        if activate:
            activate_row(table, place, made.catalog_id)
        return made

    async def get(self, catalog_id: str) -> CatalogEntry | None:
        """One version by its id, of whichever tenant, one that was removed included."""
        return self._table.rows.get(catalog_id)

    async def resolve(
        self, tenant_id: str, path: str, version: int | None = None
    ) -> CatalogEntry | None:
        """A version of a path that is not archived; without a number, the one the path means."""
        place = (tenant_id, path)
        if version is None:
            found = self._table.active.get(place)
            return None if found is None else self._table.rows[found]
        kept = (row for row in versions_at(self._table, place) if row.archived_at is None)
        return next((row for row in kept if row.version == version), None)

    async def listed(self, tenant_id: str, listing: CatalogListing) -> list[CatalogEntry]:
        """A page of documents by path, then newest version first."""
        found = [
            row
            for place in sorted(self._table.paths)
            if place[0] == tenant_id
            for row in self._of_path(place, listing)
            if _is_wanted(row, listing)
        ]
        after = listing.after
        if after is not None:
            found = [row for row in found if (row.path, -row.version) > (after[0], -after[1])]
        page = found[: listing.limit]
        if listing.with_content:
            return page
        return [msgspec.structs.replace(row, content="") for row in page]

    def _of_path(self, place: Place, listing: CatalogListing) -> Iterator[CatalogEntry]:
        kept = versions_at(self._table, place)[::-1]
        shown = [row for row in kept if listing.include_archived or row.archived_at is None]
        if listing.all_versions:
            yield from shown
        elif (active := self._table.active.get(place)) is not None:
            yield self._table.rows[active]
        elif listing.include_archived:
            yield from [row for row in shown if row.archived_at is not None][:1]


def versions_at(table: CatalogTables, place: Place) -> list[CatalogEntry]:
    """The versions of a path that were not removed, oldest first."""
    rows = (table.rows[name] for name in table.paths.get(place, ()))
    return [row for row in rows if row.removed_at is None]


def activate_row(table: CatalogTables, place: Place, catalog_id: str) -> None:
    """Make a version the newest meaning of its path."""
    before = (table.activations.get(name, 0) for name in table.paths[place])
    table.activations[catalog_id] = max(before) + 1
    settle(table, place)


def settle(table: CatalogTables, place: Place) -> None:
    """A path means the version that was last made its meaning, of those that are not put away."""
    fit = [
        row.catalog_id
        for row in versions_at(table, place)
        if row.archived_at is None and row.catalog_id in table.activations
    ]
    table.active.pop(place, None)
    if fit:
        table.active[place] = max(fit, key=table.activations.__getitem__)


def _is_same(newest: CatalogEntry, entry: CatalogEntry) -> bool:
    """Whether nothing is to be added; what was archived is added anew."""
    return newest.digest == entry.digest and newest.archived_at is None


def _is_wanted(row: CatalogEntry, listing: CatalogListing) -> bool:
    meta = row.meta
    words = (row.path, meta.get("name"), meta.get("description"), *meta.get("tags", ()))
    asked = (listing.q or "").lower()
    return (
        (listing.kind is None or row.kind == listing.kind)
        and row.path.startswith(listing.path_prefix or "")
        and (listing.tests is None or meta.get("tests") == listing.tests)
        and any(asked in str(word).lower() for word in words if word)
    )
