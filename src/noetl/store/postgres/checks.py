"""Whether a database is what the migrations make, and keeps what the engine relies on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from noetl.errors import NoetlError
from noetl.store.postgres import migrate as schema
from noetl.store.postgres.dump import connected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from noetl.store.postgres.dump import Connection

MOST_SHOWN: Final = 5
_TIME: Final = "60s"
_MADE: Final = re.compile(
    r"^create (?:or replace )?(?P<kind>table|(?:unique )?index|function|view) "
    r"(?:if not exists )?(?:noetl\.)?(?P<name>\w+)",
    re.MULTILINE,
)
_GONE: Final = re.compile(
    r"^drop (?:table|index|function|view) (?:if exists )?(?:noetl\.)?(\w+)", re.MULTILINE
)
_PRESENT: Final = """
select relname as name from pg_class where relnamespace = to_regnamespace('noetl')
union select proname from pg_proc where pronamespace = to_regnamespace('noetl')"""
_BROKEN_INDEXES: Final = """
select c.relname as name from pg_index i join pg_class c on c.oid = i.indexrelid
where c.relnamespace = to_regnamespace('noetl') and not (i.indisvalid and i.indisready)
order by 1"""
_ENDS: Final = "('playbook.completed', 'playbook.failed', 'playbook.cancelled')"

# Each finds what is not as it should be. A run whose events retention has dropped has none left.
_INVARIANTS: Final[dict[str, tuple[str, str]]] = {
    "dense_seq": (
        "the events of every run are numbered 1, 2, 3",
        """select execution_id from noetl.event group by execution_id
        having count(*) <> max(seq) or min(seq) <> 1""",
    ),
    "event_of_run": (
        "every event belongs to a run",
        """select distinct e.execution_id from noetl.event e
        where not exists (select from noetl.execution x where x.execution_id = e.execution_id)""",
    ),
    "one_end": (
        "a run that has ended has one terminal event, its last one; another has none",
        f"""select x.execution_id from noetl.execution x join lateral (
            select count(*) filter (where event_type in {_ENDS}) as ends, count(*) as events
            from noetl.event e where e.execution_id = x.execution_id) as log on true
        where log.events > 0
            and log.ends <> (x.status in ('COMPLETED', 'FAILED', 'CANCELLED'))::int""",  # noqa: S608 - constants of ours
    ),
    "read_model": (
        "the list of runs is as new as their logs",
        """select x.execution_id from noetl.execution x join (
            select execution_id, max(seq) as seq from noetl.event group by execution_id) as log
            using (execution_id) where log.seq <> x.last_seq""",
    ),
    "command_of_run": (
        "every command belongs to a run",
        """select distinct c.execution_id from noetl.command c
        where not exists (select from noetl.execution x where x.execution_id = c.execution_id)""",
    ),
    "open_command": (
        "no command is open of a run that has ended",
        """select distinct c.execution_id from noetl.command c
        join noetl.execution x using (execution_id)
        where c.status in ('PENDING', 'CLAIMED', 'PARKED') and x.completed_at is not null""",
    ),
    "timer_of_run": (
        "every timer belongs to a run that has not ended",
        """select t.execution_id from noetl.timer t
        left join noetl.execution x using (execution_id)
        where x.execution_id is null or x.completed_at is not null""",
    ),
    "lease_of_claim": (
        "a command that is claimed has a worker and a lease",
        """select execution_id from noetl.command
        where status = 'CLAIMED' and (worker_id is null or lease_until is null)""",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    is_ok: bool
    meaning: str
    found: tuple[str, ...] = ()
    """What is not as it should be: the first of it."""


async def check(url: str) -> list[Check]:
    """Look at everything, as one moment of the database shows it."""
    made = [await _migrations(url)]
    async with connected(url, application_name="noetl check", statement_timeout="0") as connection:
        made += [await _objects(connection), await _indexes(connection)]
        if not made[1].is_ok:
            return made
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            made += [await _invariant(connection, name) for name in _INVARIANTS]
    return made


async def _migrations(url: str) -> Check:
    meaning = "every migration of this release was applied, unchanged"
    try:
        missing = [one.name for one in await schema.status(url) if not one.is_applied]
    except NoetlError as fault:
        if fault.code != "migration_refused":
            raise
        missing = [fault.message]
    return Check(
        name="migrations", is_ok=not missing, meaning=meaning, found=tuple(missing[:MOST_SHOWN])
    )


def _expected() -> Iterator[str]:
    """What the migrations make and leave, by its name."""
    known: dict[str, None] = {}
    for script in schema.scripts():
        for name in _GONE.findall(script.sql):
            known.pop(name, None)
        for made in _MADE.finditer(script.sql):
            known[made["name"]] = None
    yield from known


async def _objects(connection: Connection) -> Check:
    present = {row["name"] for row in await connection.fetch(_PRESENT)}
    missing = [name for name in _expected() if name not in present]
    return Check(
        name="schema",
        is_ok=not missing,
        meaning="every table, index and function of the migrations is there",
        found=tuple(missing[:MOST_SHOWN]),
    )


async def _indexes(connection: Connection) -> Check:
    broken = [row["name"] for row in await connection.fetch(_BROKEN_INDEXES)]
    return Check(
        name="indexes",
        is_ok=not broken,
        meaning="every index can be used",
        found=tuple(broken[:MOST_SHOWN]),
    )


async def _invariant(connection: Connection, name: str) -> Check:
    meaning, sql = _INVARIANTS[name]
    rows = await connection.fetch(f"{sql} limit {MOST_SHOWN}")
    return Check(
        name=name,
        is_ok=not rows,
        meaning=meaning,
        found=tuple(str(row["execution_id"]) for row in rows),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a doctor asks a database."""

    version: str
    settings: dict[str, str]
    clock_offset_ms: float
    migrations_missing: int


_DURABLE: Final = """
select name, setting from pg_settings
where name in ('fsync', 'full_page_writes', 'synchronous_commit') order by name"""
_NOW: Final = "select extract(epoch from clock_timestamp())::float8"


async def facts(url: str, now: Any) -> Facts:  # noqa: ANN401 - a function that tells seconds
    """Version, durability, clock and schema; the clock is compared at the middle of a call."""
    async with connected(url, application_name="noetl doctor", statement_timeout=_TIME) as held:
        version = await held.fetchval("select current_setting('server_version')")
        settings = {row["name"]: row["setting"] for row in await held.fetch(_DURABLE)}
        before = now()
        there: float = await held.fetchval(_NOW)
        middle = (before + now()) / 2
    missing = [one for one in await schema.status(url) if not one.is_applied]
    return Facts(
        version=version,
        settings=settings,
        clock_offset_ms=(there - middle) * 1000,
        migrations_missing=len(missing),
    )
