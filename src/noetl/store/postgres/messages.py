"""What became of messages: dead letters, deliveries; and the documents their processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.clock import rfc3339
from noetl.store.postgres.documents import shown, shown_or_none, stored, value_of, written
from noetl.store.postgres.values import id_of, moment, text_of
from noetl.store.subscriptions import NOT_TOLD, CircuitRow, DeliveryRow, LetterRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from noetl.store.postgres.database import Database
    from noetl.store.subscriptions import DeliveryListing

_LETTER: Final = """
select ref, message_id, reason, attempts, at, result_ref from noetl.dead_letter
where subscription_id = $1"""
_LETTERS: Final = f"""{_LETTER}
    and ($2::timestamptz is null or (at, ref collate "C") > ($2, $3::text collate "C"))
order by at, ref collate "C" limit $4"""
_COUNTED: Final = """
select count(*) from noetl.dead_letter
where subscription_id = $1 and (result_ref is not null or not $2)"""
_WANTED: Final = """
select s.subscription_id from noetl.subscription s
where json_array_length(s.summary -> 'requests') > 0 and exists (
    select from noetl.dead_letter d
    where d.subscription_id = s.subscription_id and d.result_ref is not null)
order by s.subscription_id"""
_DELIVERY: Final = {
    "delivery_id": "bigint", "at": "timestamptz", "outcome": "text", "reason": "text",
    "status": "int", "message_id": "text", "execution_id": "bigint",
    "duration_ms": "double precision", "bytes": "bigint", "directives": "jsonb",
    "body_ref": "text", "replay_of": "bigint",
}  # fmt: skip
_COLUMNS: Final = ", ".join(_DELIVERY)
_TYPED: Final = ", ".join(f"{name} {kind}" for name, kind in _DELIVERY.items())
_TOLD: Final = ", ".join(
    "coalesce(d.execution_id, excluded.execution_id)"
    if name == "execution_id"
    else f"excluded.{name}"
    for name in _DELIVERY
)
_ADD: Final = f"""
insert into noetl.delivery as d (subscription_id, {_COLUMNS})
select $1, t.* from json_to_recordset($2::json) as t({_TYPED})
on conflict (subscription_id, delivery_id) do update
set ({_COLUMNS}) = (select {_TOLD} from (select excluded.*) as t)
where d.reason = '{NOT_TOLD}'"""  # noqa: S608 - made of constants
_DELIVERIES: Final = f"""
select {_COLUMNS} from noetl.delivery where subscription_id = $1
    and ($2::timestamptz is null or (at, delivery_id) < ($2, $3::bigint))
    and ($4::text is null or outcome = $4) and ($5::text is null or reason = $5)
    and ($6::text is null or message_id = $6)
    and ($7::timestamptz is null or at >= $7) and ($8::timestamptz is null or at < $8)
order by at desc, delivery_id desc limit $9"""  # noqa: S608 - as above
_OLDEST: Final = _DELIVERIES.replace(
    "order by at desc, delivery_id desc", "and replay_of is null order by at, delivery_id"
)
_ONE: Final = f"""
select {_COLUMNS} from noetl.delivery
where subscription_id = $1 and delivery_id = $2"""  # noqa: S608 - as above
_RAN: Final = """
insert into noetl.delivery as d
    (subscription_id, delivery_id, at, outcome, reason, message_id, execution_id)
select $1, t.* from unnest(
    $2::bigint[], $3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::bigint[]) as t
on conflict (subscription_id, delivery_id) do update
set execution_id = excluded.execution_id where d.execution_id is null"""
_CIRCUIT: Final = """
select path, state::text as state, revision from noetl.circuit where tenant_id = $1 and path = $2"""
_FIRST: Final = """
insert into noetl.circuit (tenant_id, path, state, revision) values ($1, $2, $3::jsonb, 1)
on conflict do nothing returning revision"""
_NEXT: Final = """
update noetl.circuit set state = $3::jsonb, revision = revision + 1
where tenant_id = $1 and path = $2 and revision = $4 returning revision"""
_REMOVE: Final = """
delete from noetl.circuit
where tenant_id = $1 and path = $2 and ($3::bigint is null or revision = $3) returning true"""


class PostgresLetters:
    """Dead letters; appends write them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, subscription_id: str, after: tuple[str, str] | None, limit: int
    ) -> list[LetterRow]:
        """A page, oldest first."""
        at, ref = after or (None, None)
        rows = await self._database.background.fetch(
            _LETTERS, id_of(subscription_id), moment(at), ref and stored(ref), limit
        )
        return [_letter(row) for row in rows]

    async def get(self, subscription_id: str, ref: str) -> LetterRow | None:
        """One letter."""
        row = await self._database.fetchrow(
            f"{_LETTER} and ref = $2", id_of(subscription_id), stored(ref)
        )
        return None if row is None else _letter(row)

    async def counted(self, subscription_id: str, *, is_here: bool = False) -> int:
        """How many there are; or how many of them lie here."""
        database = self._database.background
        found: int = await database.fetchval(_COUNTED, id_of(subscription_id), is_here)
        return found

    async def wanted(self) -> list[str]:
        """Subscriptions of which letters are wanted, and that have some that lie here."""
        rows = await self._database.background.fetch(_WANTED)
        return [str(row["subscription_id"]) for row in rows]


class PostgresDeliveries:
    """What senders delivered."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, subscription_id: str, rows: Sequence[DeliveryRow]) -> int:
        """Keep some; how many were new."""
        given = written([_delivery(row) for row in rows])
        tag = await self._database.execute(_ADD, id_of(subscription_id), given)
        return int(tag.rpartition(" ")[2])

    async def get(self, subscription_id: str, delivery_id: str) -> DeliveryRow | None:
        """One of them."""
        row = await self._database.fetchrow(_ONE, id_of(subscription_id), id_of(delivery_id))
        return None if row is None else _delivered(row)

    async def page(self, subscription_id: str, listing: DeliveryListing) -> list[DeliveryRow]:
        """A page, newest first."""
        at, delivery_id = listing.after or (None, None)
        message_id = listing.message_id
        rows = await self._database.background.fetch(
            _OLDEST if listing.is_oldest_first else _DELIVERIES,
            id_of(subscription_id),
            moment(at),
            id_of(delivery_id),
            listing.outcome and stored(listing.outcome),
            listing.reason and stored(listing.reason),
            message_id and stored(message_id),
            moment(listing.since),
            moment(listing.until),
            listing.limit,
        )
        return [_delivered(row) for row in rows]

    async def ran(self, subscription_id: str, rows: Sequence[DeliveryRow]) -> None:
        """Note the runs of deliveries that have waited."""
        first = {row.delivery_id: row for row in reversed(rows)}.values()
        await self._database.execute(
            _RAN,
            id_of(subscription_id),
            [id_of(row.delivery_id) for row in first],
            [moment(row.at) for row in first],
            [row.outcome for row in first],
            [row.reason for row in first],
            [row.message_id and stored(row.message_id) for row in first],
            [id_of(row.execution_id) for row in first],
        )


class PostgresCircuits:
    """Small documents by tenant and path, written by compare and set."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, tenant_id: str, path: str) -> CircuitRow | None:
        """One document."""
        row = await self._database.fetchrow(_CIRCUIT, stored(tenant_id), stored(path))
        if row is None:
            return None
        return CircuitRow(
            path=shown(row["path"]), state=value_of(row["state"]), revision=row["revision"]
        )

    async def put(
        self, tenant_id: str, path: str, state: dict[str, Any], revision: int | None
    ) -> int | None:
        """Write a document that is still at a revision; its new one."""
        place = stored(tenant_id), stored(path), written(state)
        found: int | None = (
            await self._database.fetchval(_FIRST, *place)
            if revision is None
            else await self._database.fetchval(_NEXT, *place, revision)
        )
        return found

    async def remove(self, tenant_id: str, path: str, revision: int | None = None) -> bool:
        """Forget one that is still at a revision; false when it is not."""
        place = stored(tenant_id), stored(path)
        return bool(await self._database.fetchval(_REMOVE, *place, revision))


def _letter(row: asyncpg.Record) -> LetterRow:
    return LetterRow(
        ref=shown(row["ref"]),
        message_id=shown_or_none(row["message_id"]),
        reason=shown(row["reason"] or ""),
        attempts=row["attempts"],
        at=rfc3339(row["at"]),
        result_ref=shown_or_none(row["result_ref"]),
    )


def _delivery(row: DeliveryRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _DELIVERY}


def _delivered(row: asyncpg.Record) -> DeliveryRow:
    return DeliveryRow(
        delivery_id=str(row["delivery_id"]),
        at=rfc3339(row["at"]),
        outcome=shown(row["outcome"]),
        reason=shown_or_none(row["reason"]),
        status=row["status"],
        message_id=shown_or_none(row["message_id"]),
        execution_id=text_of(row["execution_id"]),
        duration_ms=row["duration_ms"],
        bytes=row["bytes"],
        directives=value_of(row["directives"]),
        body_ref=shown_or_none(row["body_ref"]),
        replay_of=text_of(row["replay_of"]),
    )
