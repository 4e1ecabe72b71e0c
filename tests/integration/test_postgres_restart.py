"""The database goes away and comes back; the store goes on without a restart of its own."""

import os
import signal

import pytest

from noetl.local.postgres import DURABLE, Postgres
from noetl.store.errors import DatabaseGone, UnsafeDatabase
from noetl.store.postgres.database import Connections, Database
from noetl.store.postgres.durability import require_durable
from noetl.store.postgres.migrate import migrate
from noetl.store.postgres.pool import Pool
from noetl.store.postgres.store import PostgresStore
from tests.conformance.store_suite import RUN, Run, entered
from tests.integration.test_roles import swallowing


@pytest.fixture
async def server(postgres_home):
    started = Postgres(postgres_home / "pg", settings=DURABLE)
    await started.start()
    yield started
    await started.stop()


async def ask_for_ever(store):
    """A session may outlive its server by a moment: until it notices, it answers."""
    while True:
        await store.executions.get(RUN)


async def test_a_database_that_was_killed_and_came_back_has_all_it_confirmed(server):
    await migrate(server.url)
    database = await Database.open(server.url)
    await require_durable(database)
    store = PostgresStore(database)
    run = Run()
    await run.write(store, run.started())
    await run.write(store, entered(), commands=(run.command(1),))
    os.kill(server.pid, signal.SIGKILL)
    await server.wait()
    await server.stop()
    with pytest.raises(DatabaseGone):
        await ask_for_ever(store)
    with pytest.raises(DatabaseGone):
        await store.log.commit([run.change(entered())])
    await server.start()
    assert len(await store.log.read(RUN)) == 2
    await run.write(store, entered())
    assert (await store.executions.get(RUN)).last_seq == 3
    await store.close()


async def test_production_refuses_a_database_that_may_forget(postgres_url):
    database = await Database.open(postgres_url)
    with pytest.raises(UnsafeDatabase, match="fsync, full_page_writes, synchronous_commit is off"):
        await require_durable(database)
    await database.close()


async def test_a_connection_that_was_lost_without_a_word_holds_nobody_up(postgres_url):
    async with swallowing(postgres_url) as (url, swallows):
        pool = Pool(url, least=3, most=3, settings={}, lent_s=0.5)
        await pool.open()
        database = Connections(pool)
        assert await database.fetchval("select 1") == 1
        swallows.set()
        with pytest.raises(DatabaseGone):
            await database.fetchval("select 2")
        swallows.clear()
        assert await database.fetchval("select 3") == 3
        assert pool.numbers()["size"] == 1  # those at rest were as dead
        await pool.close()
