"""The log: one statement writes events and everything that follows from them, or nothing."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import asyncpg

from noetl.store.postgres.batch import Batch, keys_of
from noetl.store.postgres.migrate import ENSURE_PARTITIONS, MONTHS_AHEAD
from noetl.store.postgres.rows import EVENT_COLUMNS, event_of
from noetl.store.postgres.statements import COMMIT, COMMIT_TWICE
from noetl.store.postgres.values import id_of
from noetl.store.wellformed import check

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from noetl.engine.events import Recorded
    from noetl.store.base import Change, Commit
    from noetl.store.postgres.database import Database

_HOLD: Final = "select from noetl.execution where execution_id = $1 for update"
_FORGET: Final = "delete from noetl.outbox where outbox_id = any($1::bigint[])"
_READ: Final = f"""
select {EVENT_COLUMNS} from noetl.event
where execution_id = $1 and seq > $2 order by seq limit $3"""  # noqa: S608 - made of constants
_FIND: Final = f"""
select {EVENT_COLUMNS} from noetl.event where execution_id = $1 and event_id = $2"""  # noqa: S608 - as above
_LOCATE: Final = f"""
select {EVENT_COLUMNS} from noetl.event where event_id = $1 limit 1"""  # noqa: S608 - as above
_SNAPSHOT: Final = """
select snapshot_seq, snapshot from noetl.execution
where execution_id = $1 and snapshot is not null"""


_CLASHES: Final = (asyncpg.UniqueViolationError, asyncpg.DivisionByZeroError)


class PostgresLog:
    """The event log."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def commit(
        self, changes: Sequence[Change], delivered: Sequence[str] = ()
    ) -> frozenset[str]:
        """Write all changes at once; the executions that lost a race are returned, unwritten."""
        for change in changes:
            check(change)
        done = _numbers(delivered)
        if not changes:
            if done:
                await self._database.execute(_FORGET, done)
            return frozenset()
        chosen, lost = _distinct(changes)
        try:
            return lost | await _written(self._database.fetch, chosen, done)
        except _CLASHES:
            # An event that is stored, a second end, or one of two keys that was taken meanwhile:
            # the others are not to suffer from it.
            return lost | await self._one_by_one(chosen, done)

    @asynccontextmanager
    async def holding(self, execution_id: str) -> AsyncIterator[Commit]:
        """Keep everybody else from writing to a run; what is given writes for the holder."""
        async with self._database.connection() as held, held.transaction():
            await held.execute(_HOLD, id_of(execution_id))

            async def commit(
                changes: Sequence[Change], delivered: Sequence[str] = ()
            ) -> frozenset[str]:
                for change in changes:
                    check(change)
                chosen, lost = _distinct(changes)
                try:
                    async with held.transaction():
                        return lost | await _written(held.fetch, chosen, _numbers(delivered))
                except _CLASHES:
                    return frozenset(change.execution_id for change in changes)

            yield commit

    async def read(self, execution_id: str, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """Events in `seq` order."""
        rows = await self._database.fetch(_READ, id_of(execution_id), after, limit)
        return [event_of(row) for row in rows]

    async def find(self, execution_id: str, event_id: str) -> Recorded | None:
        """The event of that id, if it is stored."""
        row = await self._database.fetchrow(_FIND, id_of(execution_id), id_of(event_id))
        return None if row is None else event_of(row)

    async def located(self, event_id: str) -> Recorded | None:
        """The event of that id, whichever run it is of."""
        row = await self._database.fetchrow(_LOCATE, id_of(event_id))
        return None if row is None else event_of(row)

    async def snapshot(self, execution_id: str) -> tuple[int, bytes] | None:
        """The newest snapshot and its `seq`; a cache, never needed."""
        row = await self._database.fetchrow(_SNAPSHOT, id_of(execution_id))
        return None if row is None else (row["snapshot_seq"], row["snapshot"])

    async def ensure_partitions(self) -> int:
        """Make the partitions of the next months; how many were made."""
        made: int = await self._database.background.fetchval(ENSURE_PARTITIONS, MONTHS_AHEAD)
        return made

    async def warm_up(self) -> None:
        """Let a connection plan its commits before somebody waits for the first one."""
        async with self._database.connection() as held:
            for (starts, rest), sql in COMMIT.items():
                await held.fetch(sql, *Batch((), [], starts=starts, rest=rest).values())

    async def _one_by_one(self, changes: Sequence[Change], done: list[int]) -> frozenset[str]:
        lost: frozenset[str] = frozenset()
        for change in changes:
            try:
                lost |= await _written(self._database.fetch, [change], done)
            except _CLASHES:
                lost |= {change.execution_id}
        return lost


async def _written(
    fetch: Callable[..., Awaitable[list[asyncpg.Record]]],
    changes: Sequence[Change],
    done: list[int],
) -> frozenset[str]:
    batch = Batch(changes, done)
    text = COMMIT[batch.has_starts, batch.has_rest]
    if batch.has_two_keys:
        text = COMMIT_TWICE[batch.has_rest]
    rows = await fetch(text, *batch.values())
    if len(rows) == len(changes):
        return frozenset()
    won = {str(row["execution_id"]) for row in rows}
    return frozenset(change.execution_id for change in changes) - won


def _numbers(ids: Sequence[str]) -> list[int]:
    return [number for text in ids if (number := id_of(text)) is not None]


def _distinct(changes: Sequence[Change]) -> tuple[list[Change], frozenset[str]]:
    """The first change of each run and key, in the order of ids; the others have lost."""
    if len(changes) == 1:
        return list(changes), frozenset()
    chosen: dict[str, Change] = {}
    lost: set[str] = set()
    keys: set[tuple[str, str]] = set()
    for change in changes:
        own = {key[:2] for key in keys_of(change)}
        if change.execution_id in chosen or own & keys:
            lost.add(change.execution_id)
            continue
        chosen[change.execution_id] = change
        keys |= own
    # Whoever writes several runs locks them in one order, so that nobody waits in a circle.
    return sorted(chosen.values(), key=lambda change: int(change.execution_id)), frozenset(lost)
