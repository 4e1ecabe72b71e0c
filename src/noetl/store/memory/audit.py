"""The audit of a store that ends with its process."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from noetl.store.audit import START, chained

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.audit import AuditEntry, AuditListing, AuditRow


class MemoryAudit:
    """Rows that are added and never changed."""

    def __init__(self) -> None:
        self._rows: list[AuditRow] = []
        self._known: set[str] = set()

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        """Add entries to the end of the chain, in their order; an id that is there is left out."""
        new = [entry for entry in entries if entry.audit_id not in self._known]
        self._known.update(entry.audit_id for entry in new)
        self._rows += chained(new, *await self.head())

    async def listed(self, listing: AuditListing) -> list[AuditRow]:
        """A page of rows, newest first."""
        found = (row for row in reversed(self._rows) if _fits(row, listing))
        return list(islice(found, listing.limit))

    async def read(self, after: int = 0, limit: int = 1000) -> list[AuditRow]:
        """Rows in the order of the chain, of whichever tenant."""
        return self._rows[after : after + limit]

    async def head(self) -> tuple[int, str]:
        """Where the chain ends: `seq` and hash of the row that was added last."""
        return (self._rows[-1].seq, self._rows[-1].hash) if self._rows else (0, START)


def _fits(row: AuditRow, listing: AuditListing) -> bool:
    return (
        row.tenant_id == listing.tenant_id
        and (listing.before is None or row.seq < listing.before)
        and listing.actor in {None, row.actor}
        and listing.outcome in {None, row.outcome}
        and _begins(row.action, listing.action)
        and _begins(row.resource, listing.resource)
        and (listing.since is None or row.at >= listing.since)
        and (listing.until is None or row.at < listing.until)
    )


def _begins(text: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern
