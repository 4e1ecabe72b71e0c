"""Two servers on one PostgreSQL: whoever is asked, there is one log, one leader and one clock."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest

from noetl.api.catalog import Register
from noetl.api.problems import Refused
from noetl.api.subscriptions import LettersWanted
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock, rfc3339
from noetl.ids import Ids
from noetl.server.app import create_server
from noetl.server.loops import letters, schedules
from noetl.server.parts import ServerParts
from noetl.server.reading import elsewhere
from noetl.server.signals import sleep_until
from noetl.store.base import Listing
from noetl.store.postgres.database import Database
from noetl.store.postgres.store import PostgresStore
from tests.integration.test_nats import ready
from tests.unit.server.reading.test_stream import listening
from tests.unit.server.rig import HEAD, ONE_STEP, PYTHON, Rig
from tests.unit.server.subscriptions.stage import TARGET, item_of, kept, registered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from noetl.bus.base import Bus

WAIT = "workflow:\n  - {step: start, tool: {kind: wait, seconds: 0.3}}\n"
MANY = f"""
workflow:
  - step: start
    loop: {{in: 40, iterator: n, spec: {{mode: parallel, max_in_flight: 8}}}}
    tool: {PYTHON}
"""
TWICE = f"""
workflow:
  - step: start
    tool: {PYTHON}
    next: {{arcs: [{{step: end}}]}}
  - step: end
    tool: {PYTHON}
"""
LIMITED = f"executor: {{spec: {{concurrency: {{key: one, limit: 1}}}}}}\n{ONE_STEP.lstrip()}"
END_SESSIONS = """
select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted
    and database = (select oid from pg_database where datname = current_database())"""


END_ALL = """
select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()"""


@asynccontextmanager
async def server(
    url: str, machine: int, bus: Bus | None = None, **more: object
) -> AsyncIterator[Rig]:
    """One server process, as far as one process can be two."""
    database = await Database.open(url, size=4)
    try:
        clock, store = SystemClock(), PostgresStore(database)
        ids, bus = Ids(clock, machine), bus or MemoryBus()
        parts = ServerParts(
            store=store, bus=bus, blobs=MemoryBlobs(), clock=clock, ids=ids, is_alone=False, **more
        )  # fmt: skip
        async with create_server(parts) as made:
            yield Rig(made, store, ids, bus)
    finally:
        await database.close()


@pytest.fixture
async def two(postgres_url: str) -> AsyncIterator[tuple[Rig, Rig]]:
    """The leader, and one that follows."""
    async with server(postgres_url, 1) as leader:
        await leading(1)
        async with server(postgres_url, 2) as other:
            yield leader, other


async def leading(count: int) -> None:
    """Wait until so many servers of this process lead."""
    while sum(task.get_name() == "leader: timers" for task in asyncio.all_tasks()) != count:  # noqa: ASYNC110 - nobody is told of it
        await asyncio.sleep(0.01)


async def ended(rig: Rig, run: str) -> str:
    """The status of a run, once it has ended; other servers' commits wake nobody here."""
    watcher = rig.server.watch(run)
    try:
        while (row := await rig.plane.details.row(run)).completed_at is None:
            await sleep_until(watcher, 0.05)
    finally:
        rig.server.unwatch(run, watcher)
    return row.status


async def test_alternate_reports_give_one_dense_log(two: tuple[Rig, Rig]) -> None:
    run = await two[0].start(MANY)
    turn = 0
    while await two[turn % 2].status(run) == "RUNNING":
        work = await two[turn % 2].claim(slots=4)
        await asyncio.gather(*(two[(turn + n) % 2].done(item, n) for n, item in enumerate(work)))
        turn += 1
    rows = await two[0].store.log.read(run, 0, 10_000)
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert len({row.event_id for row in rows}) == len(rows)
    types = [type(row.event).__struct_config__.tag for row in rows]
    assert (types.count("call.done"), types.count("playbook.completed")) == (40, 1)


async def test_who_follows_a_run_is_woken_by_commits_of_the_other_server(
    postgres_url: str, clean_nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elsewhere, "POLL_S", 3600.0)
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(
                server(
                    postgres_url, machine, publishes=True,
                    bus=await stack.enter_async_context(ready(clean_nats_url)),
                )
            )
            for machine in (1, 2)
        ]  # fmt: skip
        run = await one.start(TWICE)
        async with asyncio.timeout(20), listening(one, run) as heard:
            for _ in range(2):
                (work,) = await other.claim(wait_seconds=5)
                await asyncio.sleep(0.2)  # longer than a reader waits for commits of its own server
                await other.done(work)
            told = [item["event"] async for item in heard.events()]
        log = await one.store.log.read(run, 0, 1000)
    assert told == [*(str(type(row.event).__struct_config__.tag) for row in log), "end"]


async def test_leadership_moves_when_the_first_stops(postgres_url: str) -> None:
    async with AsyncExitStack() as stack:
        async with server(postgres_url, 1) as first:
            await leading(1)
            second = await stack.enter_async_context(server(postgres_url, 2))
            run = await first.start(WAIT.replace("0.3", "1"))
        await leading(1)
        assert await ended(second, run) == "COMPLETED"


async def test_leadership_survives_the_end_of_its_connection(
    two: tuple[Rig, Rig], postgres_url: str
) -> None:
    admin = await asyncpg.connect(postgres_url)
    try:
        assert await admin.fetchval(END_SESSIONS)
    finally:
        await admin.close()
    runs = [await rig.start(WAIT) for rig in two]
    assert [await ended(two[0], run) for run in runs] == ["COMPLETED", "COMPLETED"]
    await leading(1)


async def test_servers_recover_when_every_connection_was_lost(
    two: tuple[Rig, Rig], postgres_url: str
) -> None:
    run = await two[0].start(TWICE)
    (first,) = await two[0].claim()
    admin = await asyncpg.connect(postgres_url)
    try:
        await admin.execute(END_ALL)
        (second,) = (await _insist(lambda: two[0].done(first, slots=1))).claimed
        await admin.execute(END_ALL)
        await _insist(lambda: two[1].done(second))
    finally:
        await admin.close()
    assert await ended(two[1], run) == "COMPLETED"
    rows = await two[1].store.log.read(run, 0, 1000)
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    timed = await _insist(lambda: two[1].start(WAIT))
    assert await ended(two[0], timed) == "COMPLETED"
    await leading(1)


async def _insist(call: Callable[[], Awaitable[Any]]) -> Any:
    """Ask until there is an answer; what may pass is asked again under the same ids."""
    while True:
        try:
            return await call()
        except Refused as refusal:
            if refusal.code not in {"db_unavailable", "pool_saturated"}:
                raise
            await asyncio.sleep(0.05)


async def test_a_timer_of_the_other_server_fires_within_a_second(two: tuple[Rig, Rig]) -> None:
    leader, other = two
    run = await other.start(WAIT)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await ended(leader, run) == "COMPLETED"
    assert loop.time() - began < 0.3 + 1 + 0.7  # the machine of a test may be busy


async def test_a_tick_is_fired_once(two: tuple[Rig, Rig]) -> None:
    leader, other = two
    text = f"{HEAD}triggers:\n  - {{interval: 10s, overlap: allow}}\n{ONE_STEP.lstrip()}"
    await other.client.register(Register(content=text))
    (row,) = await leader.store.schedules.listed()
    due_at = row.next_run_at or ""

    class At(SystemClock):
        """When the first tick is due."""

        def now(self):
            return schedules.ticks.moment_of(due_at)

    planes = []
    for rig in two:
        parts = rig.plane.parts
        object.__setattr__(parts, "clock", At())
        planes.append(rig.plane)
    await asyncio.gather(*(schedules.fire(plane, row) for plane in planes * 3))
    runs = await leader.store.executions.listed(Listing())
    assert [run.workload["schedule"]["due_at"] for run in runs] == [due_at]
    (after,) = await leader.store.schedules.listed()
    assert after.last_execution_id == runs[0].execution_id
    assert (after.next_run_at or "") > due_at


async def test_a_limit_of_one_holds_over_both(two: tuple[Rig, Rig]) -> None:
    await two[0].client.register(Register(content=HEAD + LIMITED))
    runs = await asyncio.gather(*(rig.start(LIMITED) for _ in range(5) for rig in two))
    statuses = [await two[0].status(run) for run in runs]
    assert sorted(statuses) == ["PENDING"] * 9 + ["RUNNING"]
    for turn, _ in enumerate(runs):
        # Who is told of an end admits the next one, and has its work first.
        while not (work := await two[turn % 2].claim(wait_seconds=2)):
            pass
        running = [run for run in runs if await two[turn % 2].status(run) == "RUNNING"]
        assert running == [work[0].execution_id]
        await two[(turn + 1) % 2].done(work[0])
    assert {await two[0].status(run) for run in runs} == {"COMPLETED"}


async def test_the_same_key_on_both_starts_one_run(two: tuple[Rig, Rig]) -> None:
    await two[0].client.register(Register(content=HEAD + ONE_STEP.lstrip()))
    key = {"dedup": {"key": "k", "window_secs": 60}}
    runs = await asyncio.gather(*(rig.start(ONE_STEP, **key) for _ in range(5) for rig in two))
    assert len(set(runs)) == 1


async def test_a_lost_lease_is_found_and_the_old_worker_is_late(postgres_url: str) -> None:
    async with server(postgres_url, 1, lease_s=1.0) as one:
        run = await one.start(ONE_STEP)
        (work,) = await one.claim("dies")
        while not (again := await one.claim("lives", wait_seconds=0.5)):
            pass
        assert (again[0].command_id, again[0].attempt) == (work.command_id, 2)
        late = await one.report(one.event(work, "call.done", result=0), worker_id="dies")
        assert [item.outcome for item in late.results] == ["late"]
        await one.done(again[0], 5, worker_id="lives")
        assert await ended(one, run) == "COMPLETED"
        assert rfc3339(one.plane.parts.clock.now()) > work.lease_until


async def test_many_posts_at_once_share_few_transactions(postgres_url: str) -> None:
    async with server(postgres_url, 1) as r:
        run = await r.start(MANY.replace("in: 40", "in: 256").replace("flight: 8", "flight: 256"))
        claimed = [command for _ in range(4) for command in await r.claim(slots=64)]
        assert len(claimed) == 256
        posts = [r.event(command, "call.done", result=1) for command in claimed]
        before = r.plane.metrics.commit_duration.count()
        await asyncio.gather(*map(r.report, posts))
        assert r.plane.metrics.commit_duration.count() - before <= 40
        assert await r.status(run) == "COMPLETED"


async def test_a_letter_that_a_server_keeps_is_sent_again_once_whoever_is_asked(two) -> None:
    leader, other = two
    sub = await registered(leader)
    first, second = [await kept(leader, sub, item_of(number)) for number in (1, 2)]
    await other.client.redrive(sub, LettersWanted(refs=(first,)))
    await other.client.discard(sub, LettersWanted(refs=(second,)))
    async with asyncio.timeout(letters.EVERY_S * 4):
        while (await other.client.dead_letters(sub)).items:  # noqa: ASYNC110 - letters tell nobody
            await asyncio.sleep(0.05)
    await leader.plane.redriving.do(sub)
    runs = [row for row in (await other.client.executions()).items if row.path == TARGET]
    assert len(runs) == 1
    assert (await other.client.subscription(sub)).pending_actions == ()
