"""Lists of runs: whatever is asked for, PostgreSQL finds what a plain look at every row finds."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from noetl.clock import SystemClock, rfc3339
from noetl.edge.cursor import Cursors
from noetl.server.reading.listing import Lists
from noetl.store.base import Listing
from noetl.store.memory.store import MemoryStore
from noetl.store.postgres.database import Database
from noetl.store.postgres.executions import PostgresExecutions
from noetl.store.postgres.ordering import Reach
from noetl.store.postgres.store import PostgresStore
from tests.conformance.store_suite import Run
from tests.integration.test_two_servers import server
from tests.unit.server.rig import ONE_STEP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.servers.postgres import Server

RUNS = 400
ASKED = 500
START = datetime(2026, 3, 1, tzinfo=UTC)
PATHS = ("None", "a/b", "a/c", "a_%x", "b/one", "b/two", "c", "ä/ö")
MESSAGES = ("no such thing", "no way: " + "x" * 200, "no way: " + "x" * 119 + "y", "50% off_x")
FILTERS: dict[str, tuple[Any, ...]] = {
    "status": (("FAILED",), ("FAILED", "PAUSED"), ("RUNNING",), ("COMPLETED", "CANCELLED")),
    "path": ("a/b", "a/*", "a_%*", "*", "b*", "no/such", "no*", "ä*"),
    "allowed": ((), ("a/*",), ("a/b", "b/*"), ("no/such",), ("*",)),
    "denied": (("a/*",), ("c", "b/*")),
    "catalog_id": ("7", "8"),
    "version": (1, 2, 9),
    "parent_execution_id": ("none", "1000", "12"),
    "labels": ({"team": "x"}, {"team": "x", "env": "prod"}, {"no": "such"}),
    "pool": ("shared", "gpu", "none"),
    "created_by": ("ann", "bob", ""),
    "since": tuple(rfc3339(START + timedelta(hours=hours)) for hours in (0, 7, 30, 99)),
    "until": tuple(rfc3339(START + timedelta(hours=hours)) for hours in (0, 9, 31, 99)),
    "has_error": (True, False),
    "request_id": ("r1", "r2", "*"),
    "client_id": ("c1", "c9"),
    "q": ("a", "a/", "no ", "no way: " + "x" * 150, "no way: " + "x" * 119, "50%", "zzz"),
    "execution_ids": (("1000", "77"),),
    "idle_since": (rfc3339(START + timedelta(hours=20)),),
}


def id_at(moment: datetime, number: int) -> str:
    """An id that was made then."""
    epoch = datetime(2024, 1, 1, tzinfo=UTC)
    return str((round((moment - epoch).total_seconds() * 1000) << 22) + number)


def row_of(chance: random.Random, number: int) -> tuple[str, dict[str, Any]]:
    """Some run; one in ten was not started when its id was made."""
    started = START + timedelta(minutes=number * 6)
    made = started + timedelta(hours=chance.choice((-50, 50))) if chance.random() < 0.1 else started
    status = chance.choice(("PENDING", "RUNNING", "RUNNING", "PAUSED", "COMPLETED", "FAILED"))
    has_error = chance.random() < {"FAILED": 0.8}.get(status, 0.1)
    is_over = status in {"COMPLETED", "FAILED"}
    return id_at(made, number), {
        "status": status,
        "started_at": rfc3339(started),
        "updated_at": rfc3339(started + timedelta(minutes=chance.randint(0, 600))),
        "completed_at": rfc3339(started + timedelta(hours=10)) if is_over else None,
        "error": {"message": chance.choice(MESSAGES)} if has_error else None,
        "path": chance.choice(PATHS),
        "catalog_id": chance.choice(("7", "7", "8")),
        "version": chance.choice((1, 1, 2)),
        "parent_execution_id": chance.choice((None, None, "1000")),
        "labels": chance.choice(({}, {"team": "x"}, {"team": "x", "env": "prod", "n": 1})),
        "pool": chance.choice(("shared", "shared", "gpu")),
        "created_by": chance.choice(("ann", "bob")),
        "request_id": chance.choice((None, None, "r1")),
        "client_id": chance.choice((None, "c1")),
        "tenant_id": chance.choice(("default", "default", "other")),
        "pending_commands": chance.choice((0, 0, 1)),
        "kind": chance.choice(("playbook", "playbook", "imported")),
    }


@pytest.fixture(scope="module")
def seeded(postgres_server: Server) -> Iterator[tuple[str, MemoryStore, random.Random]]:
    """The same runs in a database and in memory."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - a failure is told with it
    chance, memory = random.Random(seed), MemoryStore()
    name = postgres_server.make()
    url = postgres_server.url_of(name)

    async def fill() -> None:
        database = await Database.open(url)
        store = PostgresStore(database)
        for number in range(RUNS):
            execution_id, row = row_of(chance, number)
            for each in (memory, store):
                run = Run(execution_id)
                await run.write(each, run.started(), row=row)
        await store.close()

    asyncio.run(fill())
    yield url, memory, chance
    postgres_server.drop(name)


@pytest.fixture
async def database(seeded: tuple[str, MemoryStore, random.Random]) -> AsyncIterator[Database]:
    opened = await Database.open(seeded[0])
    yield opened
    await opened.close()


def asked_for(chance: random.Random, names: list[str]) -> Listing:
    """Some page of a list with these filters."""
    given = {name: chance.choice(FILTERS[name]) for name in names}
    return Listing(
        **given,
        tenant_id=chance.choice(("default", "default", "other", None)),
        is_ascending=chance.random() < 0.3,
        limit=chance.choice((1, 3, 20, 500)),
        offset=chance.choice((0, 0, 0, 2)),
        after=chance.choice((None, id_at(START + timedelta(hours=chance.randint(0, 45)), 0))),
    )


@pytest.mark.parametrize("reach", [Reach(), Reach(rows=3, with_error=3, paths=1)], ids=str)
async def test_lists_hold_what_a_look_at_every_row_finds(
    database: Database, seeded: tuple[str, MemoryStore, random.Random], reach: Reach
) -> None:
    _, memory, chance = seeded
    executions = PostgresExecutions(database, reach)
    names = list(FILTERS)
    wanted = [asked_for(chance, [name]) for name in names for _ in range(4)]
    wanted += [
        asked_for(chance, chance.sample(names, chance.randint(0, 4)))
        for _ in range(ASKED - len(wanted))
    ]
    for listing in wanted:
        found = [row.execution_id for row in await executions.listed(listing)]
        assert found == [row.execution_id for row in await memory.executions.listed(listing)], (
            listing
        )


@pytest.mark.parametrize(
    "asked", [{}, {"status": ("RUNNING",)}, {"path": "demo/*"}, {"pool": "shared"}], ids=str
)
async def test_pages_hold_each_run_once_while_runs_are_started(
    postgres_url: str, asked: dict[str, Any]
) -> None:
    async with server(postgres_url, 1) as r:
        before = [await r.start(ONE_STEP) for _ in range(40)]
        pages = Lists(r.store, Cursors(b"k" * 32, SystemClock()))
        done = asyncio.Event()
        meanwhile: list[str] = []

        async def write() -> None:
            while not done.is_set():
                meanwhile.append(await r.start(ONE_STEP))

        writing = asyncio.ensure_future(write())
        seen: list[str] = []
        cursor = None
        while cursor is not None or not seen:
            page = await pages.page(Listing(**asked, tenant_id="default", limit=3), cursor)
            seen += [item.execution_id for item in page.items]
            cursor = page.next_cursor
        done.set()
        await writing
    assert len(set(seen)) == len(seen)
    assert set(before) <= set(seen)
    assert seen == sorted(seen, key=int, reverse=True)
    assert meanwhile
