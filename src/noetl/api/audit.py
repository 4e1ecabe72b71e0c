"""What was done and refused, by whom, and whether what is kept of it is whole."""

from __future__ import annotations

from typing import Any

import msgspec


class AuditItem(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the audit."""

    audit_id: str
    seq: int
    """Its place in the chain of all rows."""
    at: str
    actor: str
    """The account; empty for one that nobody knows."""
    action: str
    resource: str
    outcome: str
    """`ok`, or the code of the problem."""
    source_ip: str
    details: dict[str, Any]
    tenant_id: str
    prev_hash: str
    hash: str


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of rows, newest first."""

    items: tuple[AuditItem, ...]
    next_cursor: str | None = None


class BrokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """The first row that does not fit the ones before it."""

    seq: int
    reason: str
    """`altered`, `missing` or `moved`."""
    audit_id: str | None = None
    """None when the row is gone."""


class AuditVerified(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the chain is whole."""

    valid: bool
    rows: int
    """How many rows were looked at."""
    last_seq: int
    last_hash: str
    broken: BrokenRow | None = None
