"""Messages that follow from commits, oldest first, until they are delivered."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from noetl.clock import rfc3339
from noetl.ids import EPOCH
from noetl.store.base import Backlog, Outgoing, Taken
from noetl.store.postgres.batch import PUBLISHERS_GRACE
from noetl.store.postgres.documents import stored, value_of
from noetl.store.postgres.values import id_of, moment
from noetl.store.waits import LOCK, MOST_ATTEMPTS, MOST_ERROR, PUBLICATION, delay_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import asyncpg

    from noetl.store.postgres.database import Database

_WAITING: Final = """
select outbox_id, execution_id, kind, payload from noetl.outbox
where published_at is null and available_at < coalesce($2::timestamptz, 'infinity')
    and (cardinality($3::text[]) = 0 or kind = any($3::text[]))
order by available_at, outbox_id limit $1"""
_DELIVERED: Final = "delete from noetl.outbox where outbox_id = any($1::bigint[])"
# `available_at` of what nobody has tried is the time of its commit and the publisher's grace.
_DUE: Final = """published_at is null and kind = $1 and status <> 'FAILED'
    and available_at <= greatest($2::timestamptz, $3::timestamptz)
    and case when attempts = 0 then available_at <= $3
        when status = 'IN_FLIGHT' then locked_at < $4 else available_at <= $2 end"""
_TAKE: Final = f"""
with due as (
    select outbox_id from noetl.outbox where {_DUE}
    order by available_at, outbox_id limit $5 for update skip locked)
update noetl.outbox o set status = 'IN_FLIGHT', attempts = o.attempts + 1, locked_at = $2
from due where o.outbox_id = due.outbox_id
returning o.outbox_id, o.execution_id, o.kind, o.payload, o.attempts"""  # noqa: S608 - made of constants
_COUNT_DUE: Final = f"""
select count(*) from (select 1 from noetl.outbox where {_DUE} limit $5) as due"""  # noqa: S608 - as above
_OLDEST: Final = """
select outbox_id from noetl.outbox where published_at is null
order by available_at, outbox_id limit 1"""
_PUBLISHED: Final = """
update noetl.outbox set status = 'PUBLISHED', published_at = $2, locked_at = null
where outbox_id = any($1::bigint[]) and status = 'IN_FLIGHT'"""
_HELD: Final = """
select attempts from noetl.outbox where outbox_id = $1 and status = 'IN_FLIGHT' for update"""
_FAILED: Final = """
update noetl.outbox set status = case when attempts >= $4 then 'FAILED' else 'PENDING' end,
    locked_at = null, last_error = $2, available_at = $3
where outbox_id = $1"""
_MOST_COUNTED: Final = 100_000


class PostgresOutbox:
    """Undelivered messages."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def waiting(
        self, limit: int = 1000, *, before: str | None = None, kinds: Sequence[str] = ()
    ) -> list[Outgoing]:
        """Undelivered messages, oldest first; with `before`, those committed earlier than that."""
        time = moment(before)
        until = None if time is None else time + PUBLISHERS_GRACE
        rows = await self._database.background.fetch(_WAITING, limit, until, list(kinds))
        return [_outgoing(row) for row in rows]

    async def delivered(self, ids: Sequence[str]) -> None:
        """Forget messages."""
        numbers = [number for text in ids if (number := id_of(text)) is not None]
        if numbers:
            await self._database.background.execute(_DELIVERED, numbers)

    async def take(self, limit: int, now: str, *, committed_before: str) -> list[Taken]:
        """Take publications for a while, so that nobody else gets them."""
        rows = await self._database.background.fetch(_TAKE, *_due(now, committed_before), limit)
        taken = [Taken(outgoing=_outgoing(row), attempts=row["attempts"]) for row in rows]
        return sorted(taken, key=lambda item: int(item.outgoing.outgoing_id))

    async def published(self, ids: Sequence[str], now: str) -> int:
        """Note that taken messages were published; how many of them were taken."""
        numbers = [number for text in ids if (number := id_of(text)) is not None]
        tag = await self._database.background.execute(_PUBLISHED, numbers, moment(now))
        return int(tag.rpartition(" ")[2])

    async def failed(
        self, outgoing_id: str, error: str, now: str, *, most_delay_s: int
    ) -> float | None:
        """Give a taken message back until later; in how many seconds."""
        number = id_of(outgoing_id)
        async with (
            self._database.background.connection() as connection,
            connection.transaction(),
        ):
            attempts = await connection.fetchval(_HELD, number)
            if attempts is None:
                return None
            delay = delay_of(attempts, most_delay_s)
            later = _moment(now) + timedelta(seconds=delay)
            told = stored(error[:MOST_ERROR])
            await connection.execute(_FAILED, number, told, later, MOST_ATTEMPTS)
        return delay

    async def backlog(self, now: str, *, committed_before: str) -> Backlog:
        """How much waits."""
        due = await self._database.background.fetchval(
            _COUNT_DUE, *_due(now, committed_before), _MOST_COUNTED
        )
        oldest: int | None = await self._database.background.fetchval(_OLDEST)
        return Backlog(due=due, oldest_at=None if oldest is None else _minted_at(oldest))


def _outgoing(row: asyncpg.Record) -> Outgoing:
    return Outgoing(
        outgoing_id=str(row["outbox_id"]),
        execution_id=str(row["execution_id"]),
        kind=row["kind"],
        payload=value_of(row["payload"]),
    )


def _due(now: str, committed_before: str) -> tuple[object, ...]:
    moment_now = _moment(now)
    until = _moment(committed_before) + PUBLISHERS_GRACE
    return PUBLICATION, moment_now, until, moment_now - LOCK


def _moment(text: str) -> datetime:
    found = moment(text)
    if found is None:
        raise ValueError("a time is needed")
    return found


def _minted_at(number: int) -> str:
    """When an id was made."""
    return rfc3339(EPOCH + timedelta(milliseconds=number >> 22))
