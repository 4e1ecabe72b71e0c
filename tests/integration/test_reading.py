"""Looking into runs on PostgreSQL: a long log costs nothing, and servers hear each other."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import TYPE_CHECKING, Any

import asyncpg

from noetl.api.executions import Control
from noetl.clock import SystemClock
from noetl.ids import Ids
from tests.integration.test_two_servers import leading, server
from tests.unit.server.reading.test_stream import Listening
from tests.unit.server.rig import ONE_STEP, many

if TYPE_CHECKING:
    from noetl.store.postgres.database import Connections

EVENTS = 200_000
MOST_BYTES = 20 * 1024 * 1024
SEED = """
insert into noetl.event (execution_id, seq, event_id, event_type, step, node_id, node_type, status,
    attempt, created_at, context, meta)
select $1, $2 + n, $3::bigint + n, 'step.progress', 'start', 'start#1', 'command', 'RUNNING',
    1, now(), '{"percent": 1}'::json, '{"command_key": "start#1"}'::json
from generate_series(1, $4::int) as n"""
MOVE = (
    "update noetl.execution set last_seq = last_seq + $2, snapshot = null where execution_id = $1"
)


class Counting:
    """How many rows of which tables statements gave."""

    def __init__(self, connections: Connections) -> None:
        self.rows = 0
        self.most = 0
        self.events = 0
        self._fetch, self._fetchrow = connections.fetch, connections.fetchrow
        connections.fetch, connections.fetchrow = self.fetch, self.fetchrow  # type: ignore[method-assign]

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        found = await self._fetch(sql, *args)
        self._count(sql, len(found))
        return found

    async def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:
        found = await self._fetchrow(sql, *args)
        self._count(sql, found is not None)
        return found

    def _count(self, sql: str, rows: int) -> None:
        self.rows += rows
        self.most = max(self.most, rows)
        if "noetl.event" in sql:
            self.events += rows


async def seeded(r, url: str) -> str:
    """A run whose log is long."""
    run = await r.start(ONE_STEP)
    await r.claim()
    last = (await r.client.status(run)).last_seq
    admin = await asyncpg.connect(url)
    try:
        first = int(Ids(SystemClock(), 7).new())
        await admin.execute(SEED, int(run), last, first, EVENTS)
        await admin.execute(MOVE, int(run), EVENTS)
    finally:
        await admin.close()
    return run


async def test_a_run_with_many_events_is_told_by_its_row_alone(postgres_url: str) -> None:
    async with server(postgres_url, 1) as r:
        run = await seeded(r, postgres_url)
        database = r.store.reading._database  # noqa: SLF001 - what it asks is counted
        counts = [Counting(database), Counting(database.background)]
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            told = await r.client.execution(run, with_state=False)
            listed = await r.client.executions(path="demo/it")
            status = await r.client.status(run)
            peak = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        assert told.event_count == listed.items[0].event_count == status.last_seq > EVENTS
        assert sum(count.events for count in counts) == 0
        assert sum(count.rows for count in counts) <= 6
        assert peak < MOST_BYTES


async def test_sums_of_a_long_log_are_made_by_the_database(postgres_url: str) -> None:
    async with server(postgres_url, 1) as r:
        run = await seeded(r, postgres_url)
        database = r.store.reading._database  # noqa: SLF001 - what it asks is counted
        count = Counting(database.background)
        (step,) = await r.store.reading.steps(run)
        await r.store.reading.arcs(run)
        assert (step.entered, step.claimed) == (1, 1)
        assert count.rows <= 2


async def test_a_list_is_followed_over_two_servers(postgres_url: str) -> None:
    async with server(postgres_url, 1) as one:
        await leading(1)
        async with server(postgres_url, 2) as two:
            heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

            stream = Listening(one, "/api/stream?topics=executions&path=demo/*", {})

            async def follow() -> None:
                async for told in stream.events():
                    heard.put_nowait((told["data"]["execution_id"], told["data"]["status"]))

            following = asyncio.ensure_future(follow())
            try:
                while not one.plane.streams.count:  # noqa: ASYNC110 - nobody is told of it
                    await asyncio.sleep(0.01)
                mine, theirs = await one.start(many(3, 3)), await two.start(ONE_STEP)
                seen: dict[str, str] = {}
                async with asyncio.timeout(20):
                    while len(seen) < 2:
                        run, status = await heard.get()
                        seen[run] = status
                assert seen == {mine: "RUNNING", theirs: "RUNNING"}
                await two.client.cancel(mine, Control())
                await one.client.cancel(theirs, Control())
                async with asyncio.timeout(20):
                    while set(seen.values()) != {"CANCELLED"}:
                        run, status = await heard.get()
                        seen[run] = status
            finally:
                await stream.leave()
                following.cancel()
                await asyncio.gather(following, stream.task, return_exceptions=True)
