"""Who used which secret: the rows of the audit that are about secrets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.api.credentials import SecretAuditPage, SecretUse
from noetl.store.audit import AuditListing

if TYPE_CHECKING:
    from noetl.edge.cursor import Cursors
    from noetl.server.auditing.audit import Audits
    from noetl.store.audit import Audit, AuditRow

PREFIX: Final = "secret.*"
_PAGE: Final = 1_000
_MOST_READ: Final = 100_000
"""Rows that one question looks through; the next page goes on behind them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uses:
    """Which uses are wanted; every filter that is set must hold."""

    tenant_id: str
    limit: int
    credential: str | None = None
    execution_id: str | None = None
    since: str | None = None
    until: str | None = None


class SecretAudit:
    """Reads the audit."""

    def __init__(self, store: Audit, audits: Audits, cursors: Cursors) -> None:
        self._store = store
        self._audits = audits
        self._cursors = cursors

    async def page(self, wanted: Uses, cursor: str | None) -> SecretAuditPage:
        """A page of uses, newest first."""
        await self._audits.settle()
        filters = {
            "of": "secret-audit",
            "tenant": wanted.tenant_id,
            "credential": wanted.credential,
            "execution_id": wanted.execution_id,
            "from": wanted.since,
            "to": wanted.until,
        }
        before = None if cursor is None else int(self._cursors.decode(cursor, filters))
        found: list[AuditRow] = []
        for _ in range(_MOST_READ // _PAGE):
            rows = await self._read(wanted, before)
            for row in rows:
                before = row.seq
                if wanted.execution_id in {None, row.details.get("execution_id")}:
                    found.append(row)
                if len(found) == wanted.limit:
                    break
            else:
                if len(rows) == _PAGE:
                    continue
                before = None  # there are no more
            break
        return SecretAuditPage(
            rows=tuple(map(_use, found)),
            next_cursor=None if before is None else self._cursors.encode(filters, before),
        )

    async def _read(self, wanted: Uses, before: int | None) -> list[AuditRow]:
        return await self._store.listed(
            AuditListing(
                tenant_id=wanted.tenant_id,
                limit=_PAGE,
                before=before,
                action=PREFIX,
                resource=wanted.credential,
                since=wanted.since,
                until=wanted.until,
            )
        )


def _use(row: AuditRow) -> SecretUse:
    return SecretUse(**{name: getattr(row, name) for name in SecretUse.__struct_fields__})
