"""The audit as readers see it: pages of rows, and whether the chain is whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.audit import AuditItem, AuditPage, AuditVerified, BrokenRow
from noetl.store.audit import START, hash_of

if TYPE_CHECKING:
    from noetl.edge.cursor import Cursors
    from noetl.server.auditing.audit import Audits
    from noetl.store.audit import Audit, AuditListing, AuditRow

_PAGE: Final = 1_000


class Chain:
    """Reads the audit."""

    def __init__(self, store: Audit, audits: Audits, cursors: Cursors) -> None:
        self._store = store
        self._audits = audits
        self._cursors = cursors

    async def page(self, listing: AuditListing, cursor: str | None = None) -> AuditPage:
        """A page of rows, newest first."""
        await self._audits.settle()
        filters = {"of": "audit", **msgspec.to_builtins(listing)}
        del filters["limit"], filters["before"]
        changed: dict[str, int] = {"limit": listing.limit + 1}
        if cursor is not None:
            changed["before"] = int(self._cursors.decode(cursor, filters))
        rows = await self._store.listed(msgspec.structs.replace(listing, **changed))
        page = rows[: listing.limit]
        has_more = len(rows) > listing.limit
        return AuditPage(
            items=tuple(map(_item, page)),
            next_cursor=self._cursors.encode(filters, page[-1].seq) if has_more else None,
        )

    async def verify(self) -> AuditVerified:
        """Whether every row is as it was written, and none is gone; the first that is not."""
        last_seq, last_hash = await self._store.head()
        seq, prev_hash, broken = 0, START, None
        while broken is None and seq < last_seq:
            rows = await self._store.read(seq, min(_PAGE, last_seq - seq))
            for row in rows:
                broken = _fault(row, seq + 1, prev_hash)
                if broken is not None:
                    break
                seq, prev_hash = row.seq, row.hash
            if not rows:
                broken = BrokenRow(seq=seq + 1, reason="missing")
        if broken is None and prev_hash != last_hash:
            broken = BrokenRow(seq=seq, reason="altered")
        return AuditVerified(
            valid=broken is None, rows=seq, last_seq=last_seq, last_hash=last_hash, broken=broken
        )


def _fault(row: AuditRow, seq: int, prev_hash: str) -> BrokenRow | None:
    if row.seq != seq:
        return BrokenRow(seq=seq, reason="missing")
    if row.prev_hash != prev_hash:
        return BrokenRow(seq=seq, audit_id=row.audit_id, reason="moved")
    if row.hash != hash_of(row, seq, prev_hash):
        return BrokenRow(seq=seq, audit_id=row.audit_id, reason="altered")
    return None


def _item(row: AuditRow) -> AuditItem:
    return AuditItem(**{name: getattr(row, name) for name in AuditItem.__struct_fields__})
