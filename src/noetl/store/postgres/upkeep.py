"""Partitions, and rows that have grown old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from noetl.store.postgres.migrate import ENSURE_PARTITIONS, MONTHS_AHEAD
from noetl.store.postgres.values import id_of, moment
from noetl.store.upkeep import ROWS, Condition, Partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.postgres.database import Database
    from noetl.store.upkeep import Table

MOST_BLOCKERS: Final = 10
MOST_COUNTED: Final = 1_000_000
MOST_DEFAULT: Final = 100_000
_STATE: Final = """
select (select max(name) from noetl.migration) as migration,
    (select count(*) from noetl.months()
        where parent = 'event' and low > noetl.first_id(now())) as months_ahead,
    (select count(*) from (
        (select 1 from noetl.event_default limit $1) union all
        (select 1 from noetl.log_default limit $1)) as left_over) as default_rows"""
_MONTHS: Final = """
select name, parent, low, high, high <= noetl.first_id($1) as is_old,
    case when high <= noetl.first_id($1) then noetl.blockers(low, high, $2) end as blockers
from noetl.months() order by low, name"""
_DROP: Final = "select noetl.drop_month($1)"
_OLD_RUNS: Final = """
select e.execution_id from noetl.execution e
left join noetl.execution p on p.execution_id = e.parent_execution_id
where e.execution_id < noetl.first_id($1) and not e.unexported
    and (e.completed_at < $1 or (e.kind = 'imported' and e.updated_at < $1))
    and (p.execution_id is null or p.completed_at < $1)
order by e.execution_id limit $2"""
_RUNS_OF_MONTH: Final = """
select execution_id from noetl.execution
where execution_id >= $1 and execution_id < $2 and not unexported
    and (completed_at is not null or kind = 'imported')
order by execution_id limit $3"""


class _Old(NamedTuple):
    """Which rows of a table are old: its key, and the condition with `$1` as the moment."""

    table: str
    key: tuple[str, ...]
    condition: str


# What has no index of its own is found through ids, which grow with time.
_OLD: Final[dict[Table, _Old]] = {
    "command": _Old(
        "noetl.command",
        ("execution_id", "command_id"),
        "execution_id < noetl.first_id($1) and completed_at < $1"
        " and status in ('COMPLETED', 'FAILED', 'CANCELLED')",
    ),
    "dedup": _Old("noetl.subscription_dedup", ("scope", "dedup_key"), "expires_at < $1"),
    "outbox": _Old("noetl.outbox", ("outbox_id",), "published_at < $1"),
    "log": _Old(
        "noetl.log",
        ("execution_id", "command_id", "attempt", "n"),
        "execution_id < noetl.first_id($1) and ts < $1",
    ),
    "result": _Old("noetl.result", ("result_id",), "expires_at < $1"),
    "variable": _Old("noetl.transient", ("execution_id", "var_name"), "expires_at < $1"),
    "session": _Old(
        "noetl.session",
        ("sha256",),
        "(expires_at < $1 or idle_until < $1 or revoked_at < $1)",
    ),
    "keychain": _Old("noetl.keychain", ("id",), "expires_at < $1 and not auto_renew"),
    "callback": _Old(
        "noetl.callback_held", ("execution_id", "step", "job_name"), "expires_at < $1"
    ),
    "request": _Old("noetl.request_result", ("request_id",), "expires_at < $1"),
    "delivery": _Old("noetl.delivery", ("subscription_id", "delivery_id"), "at < $1"),
    "outcome": _Old(
        "noetl.subscription_outcome", ("subscription_id", "xid", "execution_id"), "at < $1"
    ),
}


def _delete(old: _Old) -> str:
    """A row that is renewed meanwhile is looked at once more, and stays."""
    key = ", ".join(old.key)
    found = ", ".join(f"old_{name}" for name in old.key)
    same = " and ".join(f"{name} = old_{name}" for name in old.key)
    return f"""
with old ({found}) as (select {key} from {old.table} where {old.condition} limit $2)
delete from {old.table} using old where {same} and {old.condition}"""  # noqa: S608 - made of constants


def _count(old: _Old) -> str:
    return f"""
select count(*) from (
    select 1 from {old.table} where {old.condition} limit $2) as old"""  # noqa: S608 - as above


_PURGE: Final = {table: _delete(old) for table, old in _OLD.items()}
_PURGEABLE: Final = {table: _count(old) for table, old in _OLD.items()}


def _some_of_runs(table: str, key: str, condition: str = "true") -> str:
    """Deletes a piece of what runs have in a table that may hold much of each."""
    columns = ("execution_id", *key.split())
    same = " and ".join(f"t.{name} = old.{name}" for name in columns)
    return f"""
with old as (select {", ".join(columns)} from noetl.{table}
    where execution_id = any($1::bigint[]) and {condition} limit $2)
delete from noetl.{table} t using old where {same}"""  # noqa: S608 - as above


_MONTHLY_OF: Final = (
    _some_of_runs("event", "seq"),
    _some_of_runs("log", "command_id attempt n"),
)
_MUCH_OF: Final = (
    _some_of_runs("command", "command_id"),
    _some_of_runs("transient", "var_name"),
    _some_of_runs("result", "result_id", "coalesce(scope, 'execution') <> 'permanent'"),
)
_REST_OF: Final = (
    "delete from noetl.timer where execution_id = any($1::bigint[])",
    "delete from noetl.execution_secret where execution_id = any($1::bigint[])",
    "delete from noetl.callback where execution_id = any($1::bigint[])",
    "delete from noetl.callback_held where execution_id = any($1::bigint[])",
    "delete from noetl.concurrency_slot where execution_id = any($1::bigint[])",
    "delete from noetl.outbox where execution_id = any($1::bigint[])",
)
_RUNS: Final = "delete from noetl.execution where execution_id = any($1::bigint[])"


class PostgresUpkeep:
    """Makes room in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database.background

    async def condition(self) -> Condition:
        """How the store is."""
        row = await self._database.fetchrow(_STATE, MOST_DEFAULT)
        if row is None:
            raise AssertionError("a select without a table has one row")
        return Condition(
            migration=row["migration"] or "",
            months_ahead=row["months_ahead"],
            default_rows=row["default_rows"],
        )

    async def ensure_partitions(self) -> int:
        """Make the partitions of the next months; how many were made."""
        made: int = await self._database.fetchval(ENSURE_PARTITIONS, MONTHS_AHEAD)
        return made

    async def partitions(self, before: str) -> list[Partition]:
        """Every month, oldest first; those before a moment with what keeps them."""
        rows = await self._database.fetch(_MONTHS, moment(before), MOST_BLOCKERS)
        return [
            Partition(
                name=row["name"],
                table=row["parent"],
                first_id=str(row["low"]),
                end_id=str(row["high"]),
                is_old=row["is_old"],
                blockers=tuple(map(str, row["blockers"] or ())),
            )
            for row in rows
        ]

    async def drop_partition(self, name: str) -> tuple[str, ...]:
        """Drop a month whose runs have all ended and are exported; else what keeps it."""
        return tuple(map(str, await self._database.fetchval(_DROP, name)))

    async def purge(self, table: Table, before: str, *, is_dry: bool = False) -> int:
        """Delete some rows that are older than a moment; a dry one counts them all."""
        if is_dry:
            found: int = await self._database.fetchval(
                _PURGEABLE[table], moment(before), MOST_COUNTED
            )
            return found
        return _deleted(await self._database.execute(_PURGE[table], moment(before), ROWS))

    async def old_runs(
        self, before: str, limit: int, *, month: Partition | None = None
    ) -> list[str]:
        """Runs that ended before a moment, and whose parents did; or all runs of a month."""
        if month is None:
            rows = await self._database.fetch(_OLD_RUNS, moment(before), limit)
        else:
            first, end = id_of(month.first_id), id_of(month.end_id)
            rows = await self._database.fetch(_RUNS_OF_MONTH, first, end, limit)
        return [str(row["execution_id"]) for row in rows]

    async def forget_runs(self, ids: Sequence[str], *, spares_events: bool = False) -> int:
        """Delete runs and everything of theirs; how many rows there were."""
        numbers = [id_of(text) for text in ids]
        pieces = _MUCH_OF if spares_events else _MONTHLY_OF + _MUCH_OF
        count = 0
        for sql in pieces:
            while deleted := _deleted(await self._database.execute(sql, numbers, ROWS)):
                count += deleted
        for sql in (*_REST_OF, _RUNS):
            count += _deleted(await self._database.execute(sql, numbers))
        return count


def _deleted(tag: str) -> int:
    """How many rows the tag of a command tells of (`DELETE 5`)."""
    return int(tag.rpartition(" ")[2])
