"""What only a real database shows: constraints, races of two servers, lost connections."""

import asyncio
import json
import re

import asyncpg
import pytest

from noetl.engine.events import KINDS, OF_SUBSCRIPTIONS, PlaybookCompleted
from noetl.store.base import Listing
from noetl.store.errors import DatabaseBusy, DatabaseGone
from noetl.store.postgres import pool as pools
from noetl.store.postgres.database import Database
from noetl.store.postgres.listing import Wanted
from noetl.store.postgres.ordering import Reach
from noetl.store.postgres.store import PostgresStore
from tests.conformance.store_suite import RUN, Run, at, entered
from tests.replay.logs import kinds, load, names

INDEXED = (
    {},
    {"status": ("RUNNING",)},
    {"path": "big/1"},
    {"catalog_id": "1"},
    {"version": 1},
    {"pool": "shared"},
    {"created_by": "ann"},
    {"client_id": "c1"},
    {"request_id": "*"},
    {"has_error": True},
    {"parent_execution_id": "none"},
    {"parent_execution_id": "7"},
)
"""Filters of which each has an index in the order of the list."""
MOST_BLOCKS = 24
"""What a page of five rows may read, told twice by the plan; the table has several hundred."""


@pytest.fixture
async def database(postgres_url):
    opened = await Database.open(postgres_url)
    yield opened
    await opened.close()


@pytest.fixture
def store(database):
    return PostgresStore(database)


@pytest.fixture
async def other_database(postgres_url):
    opened = await Database.open(postgres_url)
    yield opened
    await opened.close()


@pytest.fixture
def other(other_database):
    """A second server on the same database."""
    return PostgresStore(other_database)


BY_HAND = """
insert into noetl.event (execution_id, seq, event_id, event_type, step, node_id, node_type, status,
    result)
values ($1, $2, $3, $4, 's', 's', 'execution', 'COMPLETED', $5)"""


async def test_two_terminal_events_cannot_be_inserted_by_hand(database):
    await database.execute(BY_HAND, 7, 1, 1, "playbook.failed", None)
    with pytest.raises(asyncpg.UniqueViolationError):
        await database.execute(BY_HAND, 7, 2, 2, "playbook.completed", None)
    await database.execute(BY_HAND, 7, 2, 2, "step.enter", None)
    await database.execute(BY_HAND, 8, 1, 3, "playbook.cancelled", None)


@pytest.mark.parametrize(
    ("result", "is_one"),
    [
        ({"status": "COMPLETED"}, True),
        ({"status": "COMPLETED", "context": {"data": 1}, "reference": {}}, True),
        ({"status": "COMPLETED", "extra": 1}, False),
        ({"context": {}}, False),
        ({"status": 1}, False),
        ({"status": "COMPLETED", "context": []}, False),
        ({"status": "COMPLETED", "reference": None}, False),
        ([], False),
        ("text", False),
    ],
)
async def test_a_result_has_one_form(database, result, is_one):
    insert = database.execute(BY_HAND, 7, 1, 1, "call.done", json.dumps(result))
    if is_one:
        await insert
    else:
        with pytest.raises(asyncpg.CheckViolationError):
            await insert


async def test_every_recorded_event_comes_back_as_it_was(store):
    logs = [load(name) for name in names() if "/" not in name]  # those of cases add no type
    assert kinds(logs) == set(KINDS) - set(OF_SUBSCRIPTIONS)
    for number, log in enumerate(logs, start=1):
        execution_id = log.rows[0].execution_id
        run = Run(execution_id)
        parts = [log.rows[n : n + 100] for n in range(0, len(log.rows), 100)]
        for part in parts:
            change = run.change(*(item.event for item in part))
            change = type(change)(
                execution_id=execution_id,
                expected_seq=run.seq,
                events=tuple(part),
                execution=change.execution,
            )
            if await store.log.commit([change]):
                break  # logs of one family share runs
            run.seq += len(part)
        else:
            assert await store.log.read(execution_id, 0, 10_000) == log.rows, (number, log.name)


async def test_the_creators_time_comes_back_in_its_own_words(store):
    run = Run()
    times = ["2026-01-01T00:00:00Z", "2026-01-01T02:00:00.5+02:00", "yesterday", "", at(7), None]
    change = run.change(*(entered(n) for n in range(len(times))))
    events = tuple(
        type(item)(**{f: getattr(item, f) for f in item.__struct_fields__} | {"event_time": time})
        for item, time in zip(change.events, times, strict=True)
    )
    change = type(change)(
        execution_id=RUN, expected_seq=0, events=events, execution=change.execution
    )
    assert await store.log.commit([change]) == frozenset()
    assert [item.event_time for item in await store.log.read(RUN)] == times


async def test_two_servers_that_write_to_the_same_runs_leave_dense_logs(store, other):
    numbers = [str(331204559102443520 + n) for n in range(6)]
    first = [Run(number) for number in numbers]
    assert await store.log.commit([run.change(run.started()) for run in first]) == frozenset()

    async def server(owner, backwards):
        won = 0
        while won < 60:
            seen = {number: (await owner.executions.get(number)).last_seq for number in numbers}
            order = sorted(numbers, reverse=backwards)
            runs = [Run(number, seq=seen[number]) for number in order]
            changes = [
                run.change(
                    entered(),
                    entered(),
                    commands=(run.command(run.seq + 1),),
                    outgoing=(run.outgoing(int(run.execution_id[-4:]) * 10_000 + run.seq),),
                )
                for run in runs
            ]
            lost = await owner.log.commit(changes)
            assert lost <= set(numbers)
            won += len(numbers) - len(lost)

    await asyncio.gather(server(store, backwards=False), server(other, backwards=True))
    for number in numbers:
        events = await store.log.read(number, 0, 10_000)
        assert [item.seq for item in events] == list(range(1, len(events) + 1))
        row = await store.executions.get(number)
        assert row.last_seq == len(events)


async def test_of_two_servers_that_end_a_run_one_does(store, other):
    run = Run()
    await run.write(store, run.started())
    done = {"status": "COMPLETED", "completed_at": at(9)}
    changes = [Run(seq=1).change(PlaybookCompleted(), row=done) for _ in range(2)]
    lost = await asyncio.gather(store.log.commit([changes[0]]), other.log.commit([changes[1]]))
    assert sorted(map(len, lost)) == [0, 1]


async def test_of_two_servers_that_start_under_one_key_one_does(store, other):
    for turn in range(20):
        runs = [Run(str(100 + 2 * turn)), Run(str(101 + 2 * turn))]
        changes = [run.change(run.started(), dedup=("s", f"k{turn}", at(60))) for run in runs]
        lost = await asyncio.gather(store.log.commit([changes[0]]), other.log.commit([changes[1]]))
        assert sorted(map(len, lost)) == [0, 1]
        held, _ = await store.executions.started_as("s", f"k{turn}", at(1))
        assert {held} == {run.execution_id for run in runs} - lost[0] - lost[1]


async def test_a_connection_that_is_lost_in_the_middle_writes_nothing(
    store, database, other_database
):
    run = Run()
    await run.write(store, run.started())
    async with other_database.connection() as blocker:
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute(
            "select from noetl.execution where execution_id = $1 for update", int(RUN)
        )
        committing = asyncio.create_task(
            store.log.commit([run.change(entered(), commands=(run.command(1),))])
        )
        waits = "select pid from pg_stat_activity where wait_event_type = 'Lock'"
        while (pid := await database.background.fetchval(waits)) is None:
            continue
        await database.background.fetchval("select pg_terminate_backend($1)", pid)
        with pytest.raises(DatabaseGone) as caught:
            await committing
        await transaction.rollback()
    assert (caught.value.code, caught.value.status, caught.value.retryable) == (
        "db_unavailable",
        503,
        True,
    )
    assert len(await store.log.read(RUN)) == 1
    assert await store.commands.get("1") is None
    await run.write(store, entered(), commands=(run.command(1),))


async def test_a_database_that_is_not_there_is_told(tmp_path):
    with pytest.raises(DatabaseGone):
        await Database.open(f"postgresql://x:y@/z?host={tmp_path}&port=5432")


async def test_whoever_waits_too_long_for_a_connection_is_told(postgres_url, monkeypatch):
    monkeypatch.setattr(pools, "ACQUIRE_S", 0.05)
    database = await Database.open(postgres_url, size=2)
    async with database.connection(), database.connection():
        with pytest.raises(DatabaseBusy) as caught:
            await database.fetchval("select 1")
        assert (caught.value.code, caught.value.status) == ("pool_saturated", 503)
    assert await database.fetchval("select 1") == 1
    await database.close()
    with pytest.raises(DatabaseGone):
        await database.fetchval("select 1")


async def test_a_connection_that_is_given_back_goes_to_whoever_waits(postgres_url):
    database = await Database.open(postgres_url, size=2)
    found = await asyncio.gather(*(database.fetchval("select $1::int", n) for n in range(50)))
    assert found == list(range(50))
    await database.close()


async def test_a_statement_that_is_given_up_leaves_a_usable_pool(postgres_url):
    database = await Database.open(postgres_url, size=2)
    sleeping = [asyncio.create_task(database.fetchval("select pg_sleep(30)")) for _ in range(2)]
    busy = "select count(*) from pg_stat_activity where query like 'select pg_sleep%'"
    while await database.background.fetchval(busy) < 2:
        continue
    for task in sleeping:
        task.cancel()
    await asyncio.gather(*sleeping, return_exceptions=True)
    assert await database.fetchval("select 1") == 1
    async with database.dedicated() as held:
        assert await held.fetchval("show statement_timeout") == "0"
    await database.close()


async def test_a_page_of_a_long_list_is_read_from_the_beginning_of_an_index(database):
    await database.execute(
        """insert into noetl.execution (execution_id, catalog_id, path, version, status, last_seq,
            last_event_id, pool, priority, created_by, client_id, request_id,
            parent_execution_id, error, started_at, updated_at)
        select n, 1 + n % 3, 'big/' || n % 3, 1 + n % 3,
            (array['COMPLETED', 'RUNNING', 'FAILED'])[1 + n % 3], 1, 1,
            (array['shared', 'gpu'])[1 + n % 2], 5, (array['ann', 'bob'])[1 + n % 2],
            case when n % 2 = 0 then 'c1' end, case when n % 2 = 0 then 'r' || n end,
            case when n % 2 = 0 then 7 end,
            case when n % 3 = 2 then '{}'::jsonb end,
            timestamptz '2024-01-01 00:00:00+00', now()
        from generate_series(1, 20000) as n"""
    )
    await database.execute("vacuum analyze noetl.execution")  # of what tests before have deleted
    for asked in INDEXED:
        page = Wanted(Listing(tenant_id="default", limit=5, **asked), Reach()).page()
        explain = f"explain (analyze, buffers) {page.text}"
        async with database.connection() as held:
            await held.fetch(explain, *page.values)  # reads blocks of the system catalog, too
            plan = await held.fetch(explain, *page.values)
        text = "\n".join(row[0] for row in plan)
        assert "Index Scan" in text, (asked, text)
        assert "Sort" not in text, (asked, text)
        executed = text.split("Planning", maxsplit=1)[0]
        read = sum(int(number) for number in re.findall(r"(?:hit|read)=(\d+)", executed))
        assert 0 < read <= MOST_BLOCKS, (asked, text)


async def test_a_store_that_warms_up_writes_nothing(store, database):
    await store.warm_up()
    assert await database.fetchval("select count(*) from noetl.event") == 0
    run = Run()
    await run.write(store, run.started())


async def test_a_wish_for_nothing_is_answered(store):
    assert await store.executions.listed(Listing(after="no id", labels={"a": "\0"})) == []
    assert await store.commands.extend("w", [], at(1)) == []
    assert await store.commands.extend("w", [("no id", 1)], at(1)) == []


async def test_a_run_that_is_held_makes_others_wait_and_lose(store, other):
    run = Run()
    await run.write(store, run.started())
    ours, theirs = run.change(entered()), None
    async with store.log.holding(RUN) as commit:
        assert await commit([ours]) == frozenset()
        theirs = asyncio.create_task(other.log.commit([ours]))
        done, _ = await asyncio.wait([theirs], timeout=0.2)
        assert not done
        assert len(await other.log.read(RUN)) == 1  # not durable before the block has ended
    assert await theirs == frozenset({RUN})
    assert len(await other.log.read(RUN)) == 2
