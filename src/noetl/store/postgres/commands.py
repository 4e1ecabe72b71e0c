"""Open commands: claims, leases, hints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.base import CommandRow, Queue
from noetl.store.postgres.documents import shown_or_none, stored, value_of, written
from noetl.store.postgres.values import id_of, moment, told

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from noetl.store.postgres.database import Database

_COLUMNS: Final = """c.execution_id, c.command_id, c.command_key, c.step, c.tool_kind, c.pool,
    c.priority, c.status, c.attempt, c.losses, c.max_attempts, c.worker_id, c.lease_until,
    c.started_at, c.available_at, c.checkpoint"""
_FROM: Final = f"select {_COLUMNS} from noetl.command c "  # noqa: S608 - made of constants
_GET: Final = f"{_FROM} where c.command_id = $1"
_THOSE: Final = f"{_FROM} where c.command_id = any($1::bigint[])"
_PENDING: Final = f"""{_FROM}
where c.pool = $1 and c.status = 'PENDING' and not c.is_paused and c.tool_kind <> all($3::text[])
order by c.priority desc, c.available_at, c.command_id limit $2"""
_EXTEND: Final = """
with held as (
    select c.execution_id, c.command_id from noetl.command c
    join unnest($2::bigint[], $3::int[]) as t(command_id, attempt)
        on c.command_id = t.command_id and c.attempt = t.attempt
    where c.status = 'CLAIMED' and c.worker_id = $1 and ($5::text is null or c.pool = $5)
    order by c.execution_id, c.command_id for update of c)
update noetl.command c set lease_until = greatest(c.lease_until, $4) from held
where c.execution_id = held.execution_id and c.command_id = held.command_id
returning c.command_id"""
_KEEP: Final = """
update noetl.command set checkpoint = $3, is_kept = true
where command_id = $1 and attempt = $2 and status = 'CLAIMED'"""
_EXPIRED: Final = f"""{_FROM}
where c.status = 'CLAIMED' and c.lease_until < $1 order by c.lease_until, c.command_id limit $2"""
_UNHINTED: Final = f"""
with found as (
    select execution_id, command_id, hinted_at from noetl.command
    where status = 'PENDING' and not is_paused and pool is not null and hinted_at < $1
    order by hinted_at, command_id limit $2 for update skip locked)
update noetl.command c set hinted_at = greatest($1, $3::timestamptz) from found
where c.execution_id = found.execution_id and c.command_id = found.command_id
returning {_COLUMNS}, found.hinted_at as before"""  # noqa: S608 - as above
_OF_WORKER: Final = f"""{_FROM}
where c.status = 'CLAIMED' and c.worker_id = $1 order by c.command_id"""
_QUEUES: Final = """
select pool, count(*) filter (where status = 'PENDING') as pending,
    count(*) filter (where status = 'CLAIMED') as claimed,
    min(available_at) filter (where status = 'PENDING') as oldest_at
from (
    select pool, status, available_at from noetl.command where status = 'PENDING'
    union all
    select pool, status, available_at from noetl.command where status = 'CLAIMED'
) as open where pool is not null
group by pool order by pool collate "C" """


class PostgresCommands:
    """Commands, for claims and leases."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, command_id: str) -> CommandRow | None:
        """One command, an ended one too."""
        row = await self._database.fetchrow(_GET, id_of(command_id))
        return None if row is None else _command(row)

    async def those(self, ids: Sequence[str]) -> dict[str, CommandRow]:
        """Several commands by their ids, those that there are."""
        rows = await self._database.fetch(_THOSE, [id_of(text) for text in ids])
        return {str(row["command_id"]): _command(row) for row in rows}

    async def pending(
        self, pool: str, limit: int, exclude_kinds: Sequence[str] = ()
    ) -> list[CommandRow]:
        """Claimable commands of a pool: higher priority first, then oldest; none of paused runs."""
        rows = await self._database.fetch(_PENDING, stored(pool), limit, list(exclude_kinds))
        return [_command(row) for row in rows]

    async def extend(
        self,
        worker_id: str,
        held: Sequence[tuple[str, int]],
        until: str,
        *,
        pool: str | None = None,
    ) -> list[str]:
        """Extend leases; the commands that this worker still holds under that attempt."""
        numbers = [(id_of(command_id), attempt) for command_id, attempt in held]
        rows = await self._database.fetch(
            _EXTEND,
            stored(worker_id),
            [number for number, _ in numbers],
            [attempt for _, attempt in numbers],
            moment(until),
            None if pool is None else stored(pool),
        )
        extended = {row["command_id"] for row in rows}
        return [text for text, _ in held if id_of(text) in extended]

    async def keep(self, command_id: str, attempt: int, checkpoint: object) -> None:
        """Keep how far an attempt is, for the next one if this one is lost."""
        await self._database.execute(_KEEP, id_of(command_id), attempt, written(checkpoint))

    async def expired(self, now: str, limit: int = 1000) -> list[CommandRow]:
        """Claimed commands whose lease has ended."""
        rows = await self._database.background.fetch(_EXPIRED, moment(now), limit)
        return [_command(row) for row in rows]

    async def unhinted(self, before: str, limit: int = 1000, *, told: str = "") -> list[CommandRow]:
        """Pending commands that nobody claimed or was told of since; they count as told now."""
        rows = await self._database.background.fetch(_UNHINTED, moment(before), limit, moment(told))
        rows.sort(key=lambda row: (row["before"], row["command_id"]))
        return [_command(row) for row in rows]

    async def of_worker(self, worker_id: str) -> list[CommandRow]:
        """Commands that a worker holds."""
        rows = await self._database.fetch(_OF_WORKER, stored(worker_id))
        return [_command(row) for row in rows]

    async def queues(self) -> list[Queue]:
        """Every pool that has open commands, and how many."""
        return [
            Queue(
                pool=row["pool"],
                pending=row["pending"],
                claimed=row["claimed"],
                oldest_at=told(row["oldest_at"]),
            )
            for row in await self._database.background.fetch(_QUEUES)
        ]


def _command(row: asyncpg.Record) -> CommandRow:
    return CommandRow(
        execution_id=str(row["execution_id"]),
        command_id=str(row["command_id"]),
        command_key=row["command_key"],
        step=row["step"],
        kind=row["tool_kind"],
        pool=row["pool"],
        priority=row["priority"],
        status=row["status"],
        attempt=row["attempt"],
        losses=row["losses"],
        max_attempts=row["max_attempts"],
        worker_id=shown_or_none(row["worker_id"]),
        lease_until=told(row["lease_until"]),
        started_at=told(row["started_at"]),
        available_at=told(row["available_at"]) or "",
        checkpoint=value_of(row["checkpoint"]),
    )
