"""The read model of runs, their keys and their families."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.store.postgres.documents import stored, written
from noetl.store.postgres.rows import EXECUTION_COLUMNS, execution_of
from noetl.store.postgres.values import id_of, moment

if TYPE_CHECKING:
    from noetl.store.base import ExecutionRow, Listing
    from noetl.store.postgres.database import Database

_FROM: Final = f"select {EXECUTION_COLUMNS} from noetl.execution "  # noqa: S608 - made of constants
_GET: Final = f"{_FROM} where execution_id = $1"
_CHILDREN: Final = f"{_FROM} where parent_execution_id = $1 order by execution_id"
_HOLDERS: Final = f"""{_FROM} where concurrency_key = $1 and completed_at is null
order by execution_id"""
_STARTED_AS: Final = """
select execution_id, body_digest from noetl.subscription_dedup
where scope = $1 and dedup_key = $2 and expires_at > $3"""
_COUNTED: Final = """
select status, count(*) as runs from noetl.execution where completed_at is null group by status"""
_EQUAL: Final = {
    "tenant_id": "tenant_id = {}",
    "version": "version = {}",
    "pool": "pool = {}",
    "created_by": "created_by = {}",
    "request_id": "request_id = {}",
    "client_id": "client_id = {}",
}


class PostgresExecutions:
    """The read model."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, execution_id: str) -> ExecutionRow | None:
        """One run."""
        row = await self._database.fetchrow(_GET, id_of(execution_id))
        return None if row is None else execution_of(row)

    async def listed(self, listing: Listing) -> list[ExecutionRow]:
        """A page of runs, in the order of their ids."""
        wanted = _Wanted(listing)
        rows = await self._database.background.fetch(wanted.sql(), *wanted.values)
        return [execution_of(row) for row in rows]

    async def counted(self) -> dict[str, int]:
        """How many runs that have not ended there are, by status."""
        rows = await self._database.background.fetch(_COUNTED)
        return {row["status"]: row["runs"] for row in rows}

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


class _Wanted:
    """The filters of a list as conditions with parameters; the texts are constants."""

    def __init__(self, listing: Listing) -> None:
        self.values: list[object] = []
        self._listing = listing
        self._conditions: list[str] = []
        self._ids()
        self._texts()
        self._ranges()

    def sql(self) -> str:
        listing = self._listing
        where = " and ".join(self._conditions) or "true"
        order = "execution_id" if listing.is_ascending else "execution_id desc"
        limit, offset = self._value(listing.limit), self._value(listing.offset)
        return f"{_FROM} where {where} order by {order} limit {limit} offset {offset}"

    def _value(self, value: object) -> str:
        self.values.append(value)
        return f"${len(self.values)}"

    def _when(self, condition: str, *values: object) -> None:
        self._conditions.append(condition.format(*map(self._value, values)))

    def _ids(self) -> None:
        listing = self._listing
        if listing.after is not None:
            order = "execution_id > {}" if listing.is_ascending else "execution_id < {}"
            self._when(order, id_of(listing.after))
        if listing.catalog_id is not None:
            self._when("catalog_id = {}", id_of(listing.catalog_id))
        if listing.parent_execution_id == "none":
            self._when("parent_execution_id is null")
        elif listing.parent_execution_id is not None:
            self._when("parent_execution_id = {}", id_of(listing.parent_execution_id))

    def _texts(self) -> None:
        listing = self._listing
        for name, condition in _EQUAL.items():
            value: Any = getattr(listing, name)
            if value is not None:
                self._when(condition, stored(value) if isinstance(value, str) else value)
        if listing.path is not None and listing.path.endswith("*"):
            self._when("path like {}", _prefix(listing.path[:-1]))
        elif listing.path is not None:
            self._when("path = {}", stored(listing.path))
        if listing.q is not None:
            prefix = _prefix(listing.q)
            self._when("(path like {} or error_message like {})", prefix, prefix)
        if listing.labels:
            # The first part lets the planner use the index, which has no runs without labels.
            self._when("labels <> '{{}}' and labels @> {}::jsonb", written(listing.labels))

    def _ranges(self) -> None:
        listing = self._listing
        if listing.status:
            self._when("status = any({}::text[])", list(listing.status))
        if listing.since is not None:
            self._when("started_at >= {}", moment(listing.since))
        if listing.until is not None:
            self._when("started_at < {}", moment(listing.until))
        if listing.has_error is not None:
            self._when("(error is not null) = {}", listing.has_error)


def _prefix(text: str) -> str:
    """A pattern for what begins with the text."""
    plain = stored(text).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"{plain}%"
