"""Messages that follow from commits, oldest first, until they are delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.base import Outgoing
from noetl.store.postgres.batch import PUBLISHERS_GRACE
from noetl.store.postgres.documents import value_of
from noetl.store.postgres.values import id_of, moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.postgres.database import Database

_WAITING: Final = """
select outbox_id, execution_id, kind, payload from noetl.outbox
where published_at is null and available_at < coalesce($2::timestamptz, 'infinity')
    and (cardinality($3::text[]) = 0 or kind = any($3::text[]))
order by available_at, outbox_id limit $1"""
_DELIVERED: Final = "delete from noetl.outbox where outbox_id = any($1::bigint[])"


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
        return [
            Outgoing(
                outgoing_id=str(row["outbox_id"]),
                execution_id=str(row["execution_id"]),
                kind=row["kind"],
                payload=value_of(row["payload"]),
            )
            for row in await self._database.background.fetch(_WAITING, limit, until, list(kinds))
        ]

    async def delivered(self, ids: Sequence[str]) -> None:
        """Forget messages."""
        numbers = [number for text in ids if (number := id_of(text)) is not None]
        if numbers:
            await self._database.background.execute(_DELIVERED, numbers)
