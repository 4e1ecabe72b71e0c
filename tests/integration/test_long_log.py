"""A run with a long log: whoever reads it holds a page of it, never the whole."""

from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import contextmanager
from typing import TYPE_CHECKING

import asyncpg
import pytest

from noetl.api.executions import Fork, Rerun
from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.store.postgres.output import _READ_ON
from tests.integration.test_reading import EVENTS, MOST_BYTES, MOVE, SEED, Counting
from tests.integration.test_two_servers import server
from tests.unit.server.reading.test_stream import Listening
from tests.unit.server.rig import ONE_STEP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.servers.postgres import Server
    from tests.unit.server.rig import Rig

PAGE = 1_000
LINES = """
insert into noetl.log (execution_id, command_id, attempt, step, n, ts, text)
select $1::bigint, $1::bigint + 1, 1, 'start', n, now() + n * interval '1 millisecond', 'line ' || n
from generate_series(1, $2::int) as n"""
SOME = 10_000
"""Events that are read where reading all would only take longer."""


async def made(url: str) -> str:
    """A run that waits for its only command, with a long log and as many lines."""
    async with server(url, 1) as r:
        run = await r.start(ONE_STEP)
        last = (await r.client.status(run)).last_seq
    admin = await asyncpg.connect(url)
    try:
        await admin.execute(SEED, int(run), last, int(Ids(SystemClock(), 7).new()), EVENTS)
        await admin.execute(MOVE, int(run), EVENTS)
        await admin.execute(LINES, int(run), EVENTS)
        await admin.execute("vacuum analyze noetl.event")
        await admin.execute("vacuum analyze noetl.log")
    finally:
        await admin.close()
    return run


@pytest.fixture(scope="module")
def long(postgres_server: Server) -> Iterator[tuple[str, str]]:
    """A database with such a run, for all tests here; its address and the run."""
    name = postgres_server.make()
    url = postgres_server.url_of(name)
    yield url, asyncio.run(made(url))
    postgres_server.drop(name)


@pytest.fixture
async def r(long: tuple[str, str]) -> AsyncIterator[Rig]:
    async with server(long[0], 2) as rig:
        yield rig


@contextmanager
def small(r: Rig, most_rows: int = PAGE, *, is_traced: bool = True) -> Iterator[list[Counting]]:
    """What is done inside takes few bytes, and no statement gives more than a page of rows.

    To trace every byte makes reading several times slower.
    """
    database = r.store.reading._database  # noqa: SLF001 - what it asks is counted
    counts = [Counting(database), Counting(database.background)]
    if is_traced:
        tracemalloc.start()
    try:
        yield counts
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES
    assert max(count.most for count in counts) <= most_rows


async def test_a_detail_reads_no_event(r: Rig, long: tuple[str, str]) -> None:
    run = long[1]
    with small(r, 2) as counts:  # a page asks for one more, to know whether there is a next
        told = await r.client.execution(run, with_state=False)
        status = await r.client.status(run)
        listed = await r.client.executions(path="demo/it", limit=1, order="asc")
    assert told.event_count == status.last_seq == listed.items[0].event_count > EVENTS
    assert [count.events for count in counts] == [0, 0]


async def test_pages_of_events_are_read_by_page(r: Rig, long: tuple[str, str]) -> None:
    run = long[1]
    with small(r):
        page = await r.client.events(run, EVENTS // 2, PAGE)
        last = await r.client.events(run, 0, 100, order="desc")
        few = await r.client.events(run, 0, 10, event_type="command.issued")
    assert [row["seq"] for row in page.items] == [*range(EVENTS // 2 + 1, EVENTS // 2 + PAGE + 1)]
    assert [row["seq"] for row in last.items] == [*range(last.last_seq, last.last_seq - 100, -1)]
    assert len(few.items) == 1


async def test_a_stream_catches_up_by_page(r: Rig, long: tuple[str, str]) -> None:
    stream = Listening(r, f"/api/executions/{long[1]}/events/stream", {})
    seen = 0
    with small(r):
        async for told in stream.events():
            stream.text = b""
            seen += 1
            assert told["data"]["seq"] == seen
            if seen == SOME:
                break
            if seen % PAGE == 0:
                stream.gate.clear()  # nobody reads faster than the wire
                await asyncio.sleep(0)
                stream.gate.set()
    await stream.leave()


async def test_a_replay_folds_by_page(r: Rig, long: tuple[str, str]) -> None:
    with small(r):
        told = await r.client.state(long[1], SOME)
    assert told.event_count == SOME


async def test_a_timeline_is_woven_by_page(r: Rig, long: tuple[str, str]) -> None:
    with small(r, is_traced=False):
        told = await r.client.timeline(long[1])
    assert [lane.step for lane in told.lanes] == ["start"]


async def test_a_run_is_repeated_by_its_first_event(r: Rig, long: tuple[str, str]) -> None:
    with small(r) as counts:
        again = await r.client.rerun(long[1], Rerun())
        forked = await r.client.fork(long[1], Fork(from_seq=2))
    assert again.status == forked.status == "started"
    assert sum(count.events for count in counts) <= 2 * PAGE


async def test_lines_are_read_by_page_without_sorting_them(r: Rig, long: tuple[str, str]) -> None:
    run = long[1]
    with small(r):
        first = await r.client.log_page(run, limit=PAGE)
        second = await r.client.log_page(run, limit=PAGE, cursor=first.next_cursor or "")
    assert [line["n"] for line in (*first.items, *second.items)] == [*range(1, 2 * PAGE + 1)]
    line = first.items[-1]
    database = r.store.reading._database  # noqa: SLF001 - as above
    moment = await database.background.fetchval("select $1::text::timestamptz", line["ts"])
    plan = await database.background.fetch(
        f"explain {_READ_ON}", int(run), None, PAGE, moment, int(line["command_id"]), 1, line["n"]
    )
    assert "Sort" not in "".join(row[0] for row in plan)
