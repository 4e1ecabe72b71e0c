"""Read models apart from commits: what is known, what is counted, what is written anew."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from noetl.store.postgres.documents import stored, written
from noetl.store.postgres.values import id_of, moment
from noetl.store.upkeep import Figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.base import ExecutionRow
    from noetl.store.postgres.database import Database

_KNOWN: Final = "select event_id from noetl.event where event_id = any($1::bigint[])"
_REFRESH: Final = """
update noetl.execution set status = $3, last_event_id = $4, last_event_type = $5,
    current_steps = $6, steps = $7, event_count = $2, pending_commands = $8, result = $9,
    error = $10, error_message = $11, completed_at = $12, updated_at = $13
where execution_id = $1 and last_seq = $2 returning true"""
_MISSING_MONTHS: Final = """
select distinct date_trunc('month', to_timestamp(1704067200 + (id >> 22) / 1000.0)
    at time zone 'UTC') at time zone 'UTC' as month
from unnest($1::bigint[]) as id
where not exists (
    select from noetl.months() where parent = 'event' and id >= low and id < high)"""
_MAKE_MONTH: Final = "select noetl.ensure_partitions($1, 0)"
_IMPORTED: Final = """
update noetl.execution set origin = 'imported' where execution_id = $1 and origin = ''"""
_LIVE: Final = """
select status, count(*) as runs from noetl.execution
where completed_at is null and tenant_id = $1 and kind <> 'imported' group by status"""
_ENDED: Final = """
select status, count(*) as runs from noetl.execution
where tenant_id = $1 and status in ('COMPLETED', 'FAILED', 'CANCELLED')
    and execution_id >= noetl.first_id($2)
group by status"""
_ESTIMATED: Final = """
explain (format json) select from noetl.execution where tenant_id = $1"""
_PLAYBOOKS: Final = """
select count(distinct path) from noetl.catalog
where tenant_id = $1 and kind = 'playbook' and archived_at is null"""


class PostgresProjections:
    """The read models of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database.background

    async def known(self, event_ids: Sequence[str]) -> frozenset[str]:
        """Which of these events are stored."""
        numbers = [number for text in event_ids if (number := id_of(text)) is not None]
        rows = await self._database.fetch(_KNOWN, numbers)
        return frozenset(str(row["event_id"]) for row in rows)

    async def refresh(self, row: ExecutionRow) -> bool:
        """Write the read model of a run anew; false when the run has gone on meanwhile."""
        message = None if row.error is None else row.error.get("message")
        return bool(
            await self._database.fetchval(
                _REFRESH,
                id_of(row.execution_id),
                row.last_seq,
                row.status,
                id_of(row.last_event_id),
                row.last_event_type,
                [stored(step) for step in row.current_steps],
                written(row.progress),
                row.pending_commands,
                None if row.result is None else written(row.result),
                None if row.error is None else written(row.error),
                None if message is None else stored(str(message)),
                moment(row.completed_at),
                moment(row.updated_at),
            )
        )

    async def prepare(self, execution_ids: Sequence[str]) -> None:
        """Make room for runs that are to be imported, however old they are."""
        numbers = [number for text in execution_ids if (number := id_of(text)) is not None]
        for row in await self._database.fetch(_MISSING_MONTHS, numbers):
            await self._database.execute(_MAKE_MONTH, row["month"])

    async def imported(self, execution_id: str) -> None:
        """Note where a run came from."""
        await self._database.execute(_IMPORTED, id_of(execution_id))

    async def figures(self, tenant_id: str, since: str) -> Figures:
        """What a tenant has."""
        tenant = stored(tenant_id)
        live = await self._database.fetch(_LIVE, tenant)
        ended = await self._database.fetch(_ENDED, tenant, moment(since))
        plan = json.loads(await self._database.fetchval(_ESTIMATED, tenant))
        return Figures(
            live={row["status"]: row["runs"] for row in live},
            ended={row["status"]: row["runs"] for row in ended},
            runs_estimated=int(plan[0]["Plan"]["Plan Rows"]),
            playbooks=await self._database.fetchval(_PLAYBOOKS, tenant),
        )
