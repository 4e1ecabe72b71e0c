"""Sums over logs, places in queues, and what has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.postgres.documents import shown, stored, value_of
from noetl.store.postgres.values import id_of, told
from noetl.store.reading import ArcSum, Circuit, StepSum

if TYPE_CHECKING:
    from noetl.store.postgres.database import Database

_STEPS: Final = """
select step, count(*) filter (where event_type = 'step.enter') as entered,
    count(*) filter (where event_type = 'command.claimed') as claimed,
    count(*) filter (where event_type = 'command.lost') as lost,
    min(created_at) filter (where event_type = 'step.enter') as started_at,
    max(created_at) filter (where event_type in ('step.exit', 'step.skipped')) as ended_at
from noetl.event where execution_id = $1 and node_type in ('step', 'command', 'loop')
group by step order by step collate "C" """
_ARCS: Final = """
select e.step, arc.place - 1 as place, count(*) as looked,
    count(*) filter (where (arc.told ->> 'taken')::boolean) as taken
from noetl.event e
cross join lateral json_array_elements(e.context -> 'routing' -> 'arcs')
    with ordinality as arc(told, place)
where e.execution_id = $1 and e.event_type in ('step.exit', 'step.skipped')
group by e.step, arc.place order by e.step collate "C", arc.place"""
_CHANGED: Final = """
select execution_id from noetl.event where event_id between $1 and $2
group by execution_id order by execution_id limit $3"""
_AHEAD: Final = """
with mine as (
    select priority, available_at, command_id from noetl.command
    where command_id = $2 and pool = $1 and status = 'PENDING')
select (select count(*) from (
    select 1 from noetl.command c
    where c.pool = $1 and c.status = 'PENDING' and not c.is_paused
        and (-c.priority, c.available_at, c.command_id)
            < (-mine.priority, mine.available_at, mine.command_id)
    limit $3) as before) as ahead from mine"""
_CIRCUITS: Final = """
select path, state::text as state from noetl.circuit
where tenant_id = $1 and (path = $2 or starts_with(path, $2 || '.')) order by path collate "C" """


class PostgresReading:
    """Reads with the pool of lists, so that no commit waits for a reader."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def steps(self, execution_id: str) -> list[StepSum]:
        """Every step that the log of a run names, by name."""
        return [
            StepSum(
                step=shown(row["step"]),
                entered=row["entered"],
                claimed=row["claimed"],
                lost=row["lost"],
                started_at=told(row["started_at"]),
                ended_at=told(row["ended_at"]),
            )
            for row in await self._database.background.fetch(_STEPS, id_of(execution_id))
        ]

    async def arcs(self, execution_id: str) -> list[ArcSum]:
        """Every arc that exits of the run's steps have looked at, by step and place."""
        return [
            ArcSum(
                step=shown(row["step"]),
                place=row["place"],
                looked=row["looked"],
                taken=row["taken"],
            )
            for row in await self._database.background.fetch(_ARCS, id_of(execution_id))
        ]

    async def changed(self, first: str, last: str, limit: int = 1000) -> list[str]:
        """Runs that have events whose ids lie in a range, ends included, oldest run first."""
        rows = await self._database.background.fetch(_CHANGED, id_of(first), id_of(last), limit)
        return [str(row["execution_id"]) for row in rows]

    async def ahead(self, pool: str, command_id: str, most: int = 10_000) -> int | None:
        """Commands of a pool that are claimed before this one, counted so far; none: not in it."""
        found: int | None = await self._database.background.fetchval(
            _AHEAD, stored(pool), id_of(command_id), most
        )
        return found

    async def circuits(self, tenant_id: str, path: str) -> list[Circuit]:
        """The breakers of a path, and those of its downstreams (`<path>.<name>`), by path."""
        rows = await self._database.background.fetch(_CIRCUITS, stored(tenant_id), stored(path))
        return [Circuit(path=shown(row["path"]), state=value_of(row["state"])) for row in rows]
