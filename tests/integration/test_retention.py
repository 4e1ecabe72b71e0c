"""Retention on PostgreSQL: whole months, runs with everything of theirs, and what keeps them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from noetl.api.catalog import Register
from noetl.api.events import LogBatch, LogLine
from noetl.api.executions import Control, Execute
from noetl.api.http import AsgiTransport
from noetl.api.internal import Advance, OutboxPublished, Project, Purge
from noetl.api.schedules import ScheduleBody
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock, rfc3339
from noetl.ids import Ids
from noetl.server.app import create_server
from noetl.server.loops import schedules
from noetl.server.loops.leading import ROLE
from noetl.server.parts import ServerParts
from noetl.store.base import Listing
from noetl.store.postgres.database import Database
from noetl.store.postgres.migrate import migrate
from noetl.store.postgres.store import PostgresStore
from tests.unit.server.rig import HEAD, ONE_STEP, Rig
from tests.unit.server.rig import rig as memory_rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DEMO = Register(content=HEAD + ONE_STEP)
LONG_AGO = datetime(2025, 3, 10, tzinfo=UTC)
MARCH = "event_2025_03"


class Then:
    """The machine's clock, some while ago or as it is."""

    def __init__(self, moment: datetime | None) -> None:
        self._clock = SystemClock()
        self._offset = timedelta() if moment is None else moment - self._clock.now()

    def now(self) -> datetime:
        return self._clock.now() + self._offset

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def skip(self, days: int) -> None:
        self._offset += timedelta(days=days)


@asynccontextmanager
async def server(url: str, machine: int = 1, **more) -> AsyncIterator[tuple[Rig, Then]]:
    """A server that lives in March of 2025."""
    clock = Then(more.pop("moment", LONG_AGO))
    database = await Database.open(url, size=4)
    try:
        ids, bus, store = Ids(clock, machine), MemoryBus(), PostgresStore(database)
        parts = ServerParts(
            store=store, bus=bus, blobs=MemoryBlobs(), clock=clock, ids=ids, **more
        )  # fmt: skip
        async with create_server(parts) as made:
            yield Rig(made, store, ids, bus), clock
    finally:
        await database.close()


async def months(database: Database) -> None:
    """The months of that time, as a server of that time would have made them."""
    await database.execute("select noetl.ensure_partitions($1, 3)", LONG_AGO)


async def finished(r: Rig) -> str:
    run = (await r.client.execute(Execute(path="demo/it"))).execution_id
    (work,) = await r.claim()
    await r.client.log(
        LogBatch(
            entries=(
                LogLine(
                    execution_id=run, command_id=work.command_id, attempt=1, n=1,
                    ts=rfc3339(LONG_AGO), text="hello",
                ),
            )
        )
    )  # fmt: skip
    await r.done(work)
    return run


@pytest.fixture
async def database(empty_postgres_url: str) -> AsyncIterator[Database]:
    await migrate(empty_postgres_url)
    made = await Database.open(empty_postgres_url, size=2)
    await months(made)
    yield made
    await made.close()


async def test_a_month_stays_while_a_run_lives_and_goes_when_it_has_ended(
    database: Database, empty_postgres_url: str
) -> None:
    leads = PostgresStore(database).roles.lead(ROLE)  # so that only this test cleans up
    async with leads, server(empty_postgres_url, retention_days=30) as (r, clock):
        await r.client.register(DEMO)
        await finished(r)
        live = (await r.client.execute(Execute(path="demo/it"))).execution_id
        clock.skip(60)
        asked = Purge(event_retention_days=30, dry_run=True)
        dry = await r.client.purge(asked)
        assert dry.event_partitions_dropped == ()
        assert [(p.partition, p.blockers) for p in dry.event_partitions_kept] == [(MARCH, (live,))]
        real = await r.client.purge(Purge(event_retention_days=30))
        assert real.event_partitions_dropped == ()
        shard = (await r.client.shards_health()).items[0]
        assert (MARCH, (live,)) in [(p.partition, p.blockers) for p in shard.kept_partitions]
        assert len(await r.store.log.read(live)) == 3
        await r.client.cancel(live, Control())
        dry = await r.client.purge(asked)
        assert (dry.event_partitions_dropped, dry.event_partitions_kept) == ((MARCH,), ())
        assert len(await r.store.executions.listed(Listing())) == 2
        gone = await r.client.purge(Purge(event_retention_days=30))
        assert gone.event_partitions_dropped == (MARCH,)
        assert await r.store.executions.listed(Listing()) == []
        left = await database.fetch("select name from noetl.months() where name like '%2025_03'")
        assert left == []
        for table in ("command", "outbox", "timer", "log", "event"):
            assert await database.fetchval(f"select count(*) from noetl.{table}") == 0  # noqa: S608 - a name of this test
        assert (await r.client.purge(Purge(event_retention_days=30))).event_partitions_dropped == ()


async def test_what_was_not_exported_keeps_its_month(
    database: Database, empty_postgres_url: str
) -> None:
    async with server(empty_postgres_url) as (r, clock):
        await r.client.register(DEMO)
        run = await finished(r)
        await database.execute("update noetl.execution set unexported = true")
        clock.skip(60)
        kept = await r.client.purge(Purge(event_retention_days=30))
        assert [p.blockers for p in kept.event_partitions_kept] == [(run,)]
        assert (await r.store.upkeep.drop_partition(MARCH)) == (run,)
        await database.execute("update noetl.execution set unexported = false")
        assert await r.store.upkeep.drop_partition(MARCH) == ()


async def test_a_month_that_is_being_read_is_dropped_later(
    database: Database, empty_postgres_url: str
) -> None:
    async with server(empty_postgres_url) as (r, clock):
        clock.skip(60)
        async with database.connection() as reader, reader.transaction():
            await reader.fetch("select from noetl.event")
            held = await r.client.purge(Purge(event_retention_days=30))
        assert held.event_partitions_dropped == ()
        freed = await r.client.purge(Purge(event_retention_days=30))
        assert freed.event_partitions_dropped == (MARCH,)


async def test_old_runs_of_a_month_that_stays_go_with_everything_of_theirs(
    database: Database, empty_postgres_url: str
) -> None:
    async with server(empty_postgres_url, retention_days=3) as (r, clock):
        await r.client.register(DEMO)
        old = [await finished(r) for _ in range(3)]
        clock.skip(5)
        young = await finished(r)
        await r.plane.retention.turn()
        kept = [row.execution_id for row in await r.store.executions.listed(Listing())]
        assert kept == [young]
        for run in old:
            assert await r.store.log.read(run) == []
            assert await r.store.output.read(run) == []
        assert (
            await database.fetchval("select count(distinct execution_id) from noetl.command") == 1
        )
        text = (await AsgiTransport(r.server.asgi).request("GET", "/metrics")).body.decode()
        assert 'noetl_cleanup_rows_purged_total{table="execution"} 3.0' in text
        assert "noetl_partition_default_rows 0.0" in text


async def test_a_foreign_run_of_long_ago_gets_a_month_of_its_own(postgres_url: str) -> None:
    database = await Database.open(postgres_url, size=2)
    async with memory_rig(clock=Then(datetime(2024, 7, 5, tzinfo=UTC)), machine=9) as there:
        run = await there.start(ONE_STEP)
        (work,) = await there.claim()
        await there.done(work, {"x": 1})
        rows = (await there.client.events(run, limit=1000)).items
    try:
        async with server(postgres_url, moment=None) as (r, _):
            told = await asyncio.gather(
                *(r.client.project(Project(events=tuple(rows))) for _ in range(3))
            )
            assert sum(each.projected for each in told) == len(rows)
            assert all(each.projected + each.duplicates == len(rows) for each in told)
            shown = await r.client.execution(run)
            assert (shown.status, shown.result) == ("COMPLETED", {"x": 1})
            condition = await r.store.upkeep.condition()
            assert (condition.default_rows, condition.months_ahead) == (0, 3)
            name = await database.fetchval("select name from noetl.months() order by low limit 1")
            assert name == "event_2024_07"
            assert await database.fetchval("select origin from noetl.execution") == "imported"
            path = f"/api/replay/state?execution_id={run}"
            answer = await AsgiTransport(r.server.asgi).request("GET", path)
            state = msgspec.json.decode(answer.body)
            assert (answer.status, state["execution"]["status"]) == (200, "COMPLETED")
            assert (await r.client.advance(Advance(execution_ids=(run,)))).advanced == (run,)
            assert (await r.client.execution(run)).result == {"x": 1}
    finally:
        await database.close()


async def test_two_publishers_never_get_the_same_row(postgres_url: str) -> None:
    more = {"publishes": True, "publisher": "playbook", "is_alone": False}
    now = SystemClock().now()
    async with (
        server(postgres_url, 1, moment=None, **more) as (one, _),
        server(postgres_url, 2, moment=None, **more) as (two, _),
    ):
        await one.client.register(DEMO)
        for _ in range(30):
            await one.client.execute(Execute(path="demo/it"))
        pending = (await two.client.outbox_pending()).pending
        assert pending == 30
        seen: list[str] = []

        async def drain(r: Rig) -> None:
            while rows := (await r.client.claim_outbox(4)).rows:
                seen.extend(row.outbox_id for row in rows)
                ids = tuple(row.outbox_id for row in rows)
                marked = await r.client.outbox_published(OutboxPublished(outbox_ids=ids))
                assert marked.marked == len(rows)

        await asyncio.gather(drain(one), drain(two), drain(one), drain(two))
        assert (len(seen), len(set(seen))) == (30, 30)
        assert (await one.client.outbox_pending()).pending == 0
        assert await one.store.upkeep.purge("outbox", rfc3339(now + timedelta(days=1))) == 30


async def test_two_servers_fire_a_schedule_once(postgres_url: str) -> None:
    now = SystemClock().now()
    async with (
        server(postgres_url, 1, moment=None, is_alone=False) as (one, _),
        server(postgres_url, 2, moment=None, is_alone=False) as (two, _),
    ):
        await one.client.register(DEMO)
        made = await two.client.add_schedule(
            ScheduleBody(name="s", path="demo/it", interval_seconds=10, overlap="allow")
        )
        (row,) = await one.store.schedules.listed()
        due = msgspec.structs.replace(row, next_run_at=rfc3339(now - timedelta(seconds=1)))
        await one.store.schedules.change(due)
        await asyncio.gather(*(schedules.fire(r.plane, due) for r in (one, two, one, two)))
        runs = await one.store.executions.listed(Listing())
        dues = [run.workload["schedule"]["due_at"] for run in runs]
        assert len(dues) == len(set(dues)) >= 1
        assert (await two.client.schedule(made.schedule_id)).last_status == "started"
