"""The audit: a chain that all servers of an installation write to, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.store.audit import START, AuditRow, chained
from noetl.store.postgres.documents import shown, stored, value_of, written
from noetl.store.postgres.values import id_of, moment, told

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from noetl.store.audit import AuditEntry, AuditListing
    from noetl.store.postgres.database import Database

_COLUMNS: Final = """audit_id, tenant_id, at, actor, action, resource, outcome, source_ip, details,
seq, prev_hash, hash"""
_LOCK: Final = "select pg_advisory_xact_lock(hashtextextended('noetl:audit', 0))"
_HEAD: Final = "select seq, hash from noetl.audit_head"
_HELD_HEAD: Final = f"{_HEAD} for update"
_KNOWN: Final = "select audit_id from noetl.audit where audit_id = any($1::bigint[])"
_ADD: Final = f"""
with moved as (
    update noetl.audit_head set seq = $13, hash = $14
    where seq = $15 and hash = $16
        and not exists (select from noetl.audit where audit_id = any($1::bigint[]))
    returning seq
)
insert into noetl.audit ({_COLUMNS})
select * from unnest($1::bigint[], $2::text[], $3::timestamptz[], $4::text[], $5::text[],
    $6::text[], $7::text[], $8::text[], $9::json[], $10::bigint[], $11::bytea[], $12::bytea[])
where exists (select from moved)
returning seq"""  # noqa: S608 - made of constants
_READ: Final = f"""
select {_COLUMNS} from noetl.audit where seq > $1 order by seq limit $2"""  # noqa: S608 - as above
_LISTED: Final = f"""
select {_COLUMNS} from noetl.audit
where tenant_id = $1 and seq < $2
    and ($3::text is null or actor = $3)
    and ($4::text is null or action like $4)
    and ($5::text is null or resource like $5)
    and ($6::text is null or outcome = $6)
    and ($7::timestamptz is null or at >= $7)
    and ($8::timestamptz is null or at < $8)
order by seq desc limit $9"""  # noqa: S608 - as above
_LAST: Final = (1 << 63) - 1


class PostgresAudit:
    """Rows that are added and never changed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._end: tuple[int, str] | None = None
        """The last row, as this server knows it."""

    async def append(self, entries: Sequence[AuditEntry]) -> None:
        """Add entries to the end of the chain, in their order; an id that is there is left out."""
        if self._end is not None:  # as long as nobody else has written, one statement is enough
            rows = chained(entries, *self._end)
            if await self._database.fetch(_ADD, *_added(rows, self._end)):
                self._end = _end_of(rows)
                return
        await self._append(entries)

    async def _append(self, entries: Sequence[AuditEntry]) -> None:
        """The same behind whatever others have written."""
        ids = [id_of(entry.audit_id) for entry in entries]
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_LOCK)
            end = _end(await connection.fetchrow(_HELD_HEAD))
            found = await connection.fetch(_KNOWN, ids)
            known = {row["audit_id"] for row in found}
            new = [entry for entry, name in zip(entries, ids, strict=True) if name not in known]
            if new:
                rows = chained(new, *end)
                await connection.fetch(_ADD, *_added(rows, end))
                end = _end_of(rows)
        self._end = end

    async def listed(self, listing: AuditListing) -> list[AuditRow]:
        """A page of rows, newest first."""
        rows = await self._database.background.fetch(
            _LISTED,
            stored(listing.tenant_id),
            _LAST if listing.before is None else listing.before,
            None if listing.actor is None else stored(listing.actor),
            _pattern(listing.action),
            _pattern(listing.resource),
            None if listing.outcome is None else stored(listing.outcome),
            moment(listing.since),
            moment(listing.until),
            listing.limit,
        )
        return [_row(row) for row in rows]

    async def read(self, after: int = 0, limit: int = 1000) -> list[AuditRow]:
        """Rows in the order of the chain, of whichever tenant."""
        rows = await self._database.background.fetch(_READ, after, limit)
        return [_row(row) for row in rows]

    async def head(self) -> tuple[int, str]:
        """Where the chain ends: `seq` and hash of the row that was added last."""
        return _end(await self._database.fetchrow(_HEAD))


def _end(head: Any) -> tuple[int, str]:  # noqa: ANN401 - a record
    return (0, START) if head is None else (head["seq"], head["hash"].hex())


def _end_of(rows: Sequence[AuditRow]) -> tuple[int, str]:
    return rows[-1].seq, rows[-1].hash


def _added(rows: Sequence[AuditRow], end: tuple[int, str]) -> Iterator[object]:
    """What makes these rows follow that end."""
    yield from map(list, zip(*map(_values, rows), strict=True))
    for seq, hash_ in (_end_of(rows), end):
        yield seq
        yield bytes.fromhex(hash_)


def _values(row: AuditRow) -> tuple[object, ...]:
    return (
        id_of(row.audit_id),
        stored(row.tenant_id),
        moment(row.at),
        stored(row.actor),
        stored(row.action),
        stored(row.resource),
        stored(row.outcome),
        stored(row.source_ip),
        written(row.details),
        row.seq,
        bytes.fromhex(row.prev_hash),
        bytes.fromhex(row.hash),
    )


def _row(row: Any) -> AuditRow:  # noqa: ANN401 - a record
    return AuditRow(
        audit_id=str(row["audit_id"]),
        tenant_id=shown(row["tenant_id"]),
        at=told(row["at"]) or "",
        actor=shown(row["actor"] or ""),
        action=shown(row["action"]),
        resource=shown(row["resource"] or ""),
        outcome=shown(row["outcome"] or ""),
        source_ip=shown(row["source_ip"] or ""),
        details=value_of(row["details"]) or {},
        seq=row["seq"],
        prev_hash=(row["prev_hash"] or b"").hex(),
        hash=(row["hash"] or b"").hex(),
    )


def _pattern(text: str | None) -> str | None:
    """A pattern for `like`; a `*` at the end is any rest."""
    if text is None:
        return None
    plain, rest = (text[:-1], "%") if text.endswith("*") else (text, "")
    return stored(plain).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + rest
