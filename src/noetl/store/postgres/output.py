"""Lines that steps wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.base import Line
from noetl.store.postgres.documents import shown, stored
from noetl.store.postgres.values import id_of, moment, told

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from noetl.store.postgres.database import Database

_ADD: Final = """
insert into noetl.log (execution_id, command_id, attempt, n, ts, text, step, task, stream, level)
select * from unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[], $5::timestamptz[],
    $6::text[], $7::text[], $8::text[], $9::text[], $10::text[])
on conflict do nothing"""
_READ: Final = """
select * from noetl.log
where execution_id = $1 and ($2::text is null or step = $2)
order by ts, command_id, attempt, n limit $3"""
_READ_ON: Final = """
select * from noetl.log
where execution_id = $1 and ($2::text is null or step = $2)
    and (ts, command_id, attempt, n) > ($4::timestamptz, $5::bigint, $6::int, $7::int)
order by ts, command_id, attempt, n limit $3"""


class PostgresOutput:
    """Lines by run."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, lines: Sequence[Line]) -> None:
        """Keep lines; one that is kept already is ignored."""
        if lines:
            columns = zip(*map(_values, lines), strict=True)
            await self._database.execute(_ADD, *map(list, columns))

    async def read(
        self,
        execution_id: str,
        *,
        step: str | None = None,
        after: tuple[str, str, int, int] | None = None,
        limit: int = 1000,
    ) -> list[Line]:
        """Lines of a run in the order of time; lines of one attempt in the order of `n`."""
        wanted = (id_of(execution_id), None if step is None else stored(step), limit)
        if after is None:
            rows = await self._database.background.fetch(_READ, *wanted)
        else:
            ts, command_id, attempt, n = after
            place = (moment(ts), id_of(command_id), attempt, n)
            rows = await self._database.background.fetch(_READ_ON, *wanted, *place)
        return [_line(row) for row in rows]


def _values(line: Line) -> tuple[object, ...]:
    return (
        id_of(line.execution_id),
        id_of(line.command_id),
        line.attempt,
        line.n,
        moment(line.ts),
        stored(line.text),
        stored(line.step),
        stored(line.task),
        stored(line.stream),
        stored(line.level),
    )


def _line(row: asyncpg.Record) -> Line:
    return Line(
        execution_id=str(row["execution_id"]),
        command_id=str(row["command_id"]),
        attempt=row["attempt"],
        n=row["n"],
        ts=told(row["ts"]) or "",
        text=shown(row["text"]),
        step=shown(row["step"] or ""),
        task=shown(row["task"] or ""),
        stream=shown(row["stream"]),
        level=shown(row["level"]),
    )
