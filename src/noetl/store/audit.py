"""The audit as a store keeps it: a chain of rows, each of which tells the hash of the one before.

A row that is changed, left out or moved does not fit the rows around it any more.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

START: Final = "00" * 32
"""What stands in the place of the hash before the first row."""
_encode: Final = msgspec.json.Encoder(order="sorted").encode


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done, or refused."""

    audit_id: str
    at: str
    actor: str
    """The account; empty for one that nobody knows."""
    action: str
    resource: str = ""
    outcome: str = "ok"
    """`ok`, or the code of the problem."""
    source_ip: str = ""
    details: dict[str, Any] = {}
    tenant_id: str = "default"


class AuditRow(AuditEntry, frozen=True, kw_only=True):
    """An entry at its place in the chain."""

    seq: int
    prev_hash: str
    hash: str


class AuditListing(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows a reader wants; every filter that is set must hold."""

    tenant_id: str
    limit: int = 50
    before: int | None = None
    """Rows whose `seq` is smaller."""
    actor: str | None = None
    action: str | None = None
    """Exact; ending in `*`, a prefix. So is `resource`."""
    resource: str | None = None
    outcome: str | None = None
    since: str | None = None
    until: str | None = None


class Audit(Protocol):
    """Rows that are added and never changed."""

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        """Add entries to the end of the chain, in their order; an id that is there is left out."""

    async def listed(self, listing: AuditListing) -> list[AuditRow]:
        """A page of rows, newest first."""

    async def read(self, after: int = 0, limit: int = 1000) -> list[AuditRow]:
        """Rows in the order of the chain, of whichever tenant."""

    async def head(self) -> tuple[int, str]:
        """Where the chain ends: `seq` and hash of the row that was added last."""


def linked(entry: AuditEntry, seq: int, prev_hash: str) -> AuditRow:
    """The row of an entry behind the row of that hash."""
    fields: dict[str, Any] = {name: getattr(entry, name) for name in AuditEntry.__struct_fields__}
    return AuditRow(**fields, seq=seq, prev_hash=prev_hash, hash=hash_of(entry, seq, prev_hash))


def hash_of(entry: AuditEntry, seq: int, prev_hash: str) -> str:
    """The hash that a row has when nothing of it was changed."""
    told = {name: getattr(entry, name) for name in AuditEntry.__struct_fields__}
    return sha256(bytes.fromhex(prev_hash) + _encode(told | {"seq": seq})).hexdigest()


def chained(entries: Iterable[AuditEntry], seq: int, prev_hash: str) -> list[AuditRow]:
    """The rows of entries behind a row."""
    rows: list[AuditRow] = []
    for entry in entries:
        seq += 1
        rows.append(linked(entry, seq, prev_hash))
        prev_hash = rows[-1].hash
    return rows
