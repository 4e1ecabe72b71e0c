"""The read model of runs, their keys and their families."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.postgres.documents import stored
from noetl.store.postgres.listing import FROM, Wanted
from noetl.store.postgres.ordering import Reach
from noetl.store.postgres.rows import execution_of
from noetl.store.postgres.values import id_of, moment

if TYPE_CHECKING:
    from noetl.store.base import ExecutionRow, Listing
    from noetl.store.postgres.database import Database

_REACH: Final = Reach()
_GET: Final = f"{FROM} where execution_id = $1"
_CHILDREN: Final = f"{FROM} where parent_execution_id = $1 order by execution_id"
_HOLDERS: Final = f"""{FROM} where concurrency_key = $1 and completed_at is null
order by execution_id"""
_STARTED_AS: Final = """
select execution_id, body_digest from noetl.subscription_dedup
where scope = $1 and dedup_key = $2 and expires_at > $3"""
_COUNTED: Final = """
select status, count(*) as runs from noetl.execution where completed_at is null group by status"""
_RUNNING: Final = """
select count(*) from noetl.execution where tenant_id = $1 and completed_at is null"""


class PostgresExecutions:
    """The read model."""

    def __init__(self, database: Database, reach: Reach = _REACH) -> None:
        self._database = database
        self._reach = reach

    async def get(self, execution_id: str) -> ExecutionRow | None:
        """One run."""
        row = await self._database.fetchrow(_GET, id_of(execution_id))
        return None if row is None else execution_of(row)

    async def listed(self, listing: Listing) -> list[ExecutionRow]:
        """A page of runs, in the order of their ids."""
        wanted, names = Wanted(listing, self._reach), None
        if (asked := wanted.names()) is not None:
            found = await self._database.background.fetch(asked.text, *asked.values)
            names = [row["path"] for row in found]
        page = wanted.page(names)
        rows = await self._database.background.fetch(page.text, *page.values)
        return [execution_of(row) for row in rows]

    async def counted(self) -> dict[str, int]:
        """How many runs that have not ended there are, by status."""
        rows = await self._database.background.fetch(_COUNTED)
        return {row["status"]: row["runs"] for row in rows}

    async def running(self, tenant_id: str) -> int:
        """How many runs of a tenant have not ended."""
        counted: int = await self._database.background.fetchval(_RUNNING, stored(tenant_id))
        return counted

    async def children(self, execution_id: str) -> list[ExecutionRow]:
        """The runs that this one asked for."""
        rows = await self._database.fetch(_CHILDREN, id_of(execution_id))
        return [execution_of(row) for row in rows]

    async def started_as(self, scope: str, key: str, now: str) -> tuple[str, str] | None:
        """The run that a dedup key has started within its window, and the digest of its wish."""
        row = await self._database.fetchrow(_STARTED_AS, stored(scope), stored(key), moment(now))
        return None if row is None else (str(row["execution_id"]), row["body_digest"].decode())

    async def holders(self, concurrency_key: str) -> list[ExecutionRow]:
        """Runs of a concurrency key that have not ended, oldest first."""
        rows = await self._database.fetch(_HOLDERS, stored(concurrency_key))
        return [execution_of(row) for row in rows]
