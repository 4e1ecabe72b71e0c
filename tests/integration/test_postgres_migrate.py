import asyncio
from datetime import UTC, datetime

import asyncpg
import pytest

from noetl.store.errors import DatabaseGone, MigrationRefused
from noetl.store.postgres.database import Database
from noetl.store.postgres.migrate import Script, migrate, scripts, status
from noetl.store.postgres.store import PostgresStore
from tests.conformance.store_suite import Run, entered

MORE = Script(name="9999_post_more", sql="create table noetl.more (n int)")


async def fetch(url, sql, *args):
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(sql, *args)
    finally:
        await connection.close()


async def test_an_empty_database_gets_everything_once(empty_postgres_url):
    known = scripts()
    assert [m.is_applied for m in await status(empty_postgres_url)] == [False] * len(known)
    assert await migrate(empty_postgres_url) == [script.name for script in known]
    assert await migrate(empty_postgres_url) == []
    assert all(m.is_applied for m in await status(empty_postgres_url))


async def test_of_several_migrators_at_once_one_migrates(empty_postgres_url):
    applied = await asyncio.gather(*(migrate(empty_postgres_url) for _ in range(4)))
    assert sorted(map(len, applied)) == [0, 0, 0, len(scripts())]


async def test_what_is_new_is_applied_after_what_is_there(postgres_url):
    assert await migrate(postgres_url, [*scripts(), MORE]) == [MORE.name]
    assert await fetch(postgres_url, "select * from noetl.more") == []


async def test_a_newer_database_is_refused(postgres_url):
    await migrate(postgres_url, [*scripts(), MORE])
    for ask in (migrate, status):
        with pytest.raises(MigrationRefused, match=MORE.name) as caught:
            await ask(postgres_url)
        assert "newer" in caught.value.hint


async def test_a_migration_that_was_changed_is_refused(postgres_url):
    first, *rest = scripts()
    changed = [Script(name=first.name, sql=first.sql + "\n-- more"), *rest]
    with pytest.raises(MigrationRefused, match="is not the one"):
        await migrate(postgres_url, changed)


async def test_a_migration_that_comes_too_late_is_refused(postgres_url):
    with pytest.raises(MigrationRefused, match="comes before"):
        await migrate(postgres_url, [Script(name="0000_early", sql="select 1"), *scripts()])


async def test_a_migration_that_fails_leaves_nothing(postgres_url):
    bad = Script(name="9999_bad", sql="create table noetl.bad (n int); select 1 / 0")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(postgres_url, [*scripts(), bad])
    assert await fetch(postgres_url, "select to_regclass('noetl.bad') as found") == [(None,)]
    assert await migrate(postgres_url) == []


async def test_a_database_that_is_away_is_told(tmp_path):
    with pytest.raises(DatabaseGone):
        await migrate(f"postgresql://x:y@/z?host={tmp_path}&port=5432")


PARTITIONS = """
select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
where i.inhparent = 'noetl.event'::regclass order by 1"""


async def test_partitions_exist_three_months_ahead(postgres_url):
    (now,) = (await fetch(postgres_url, "select now()"))[0]
    found = {row[0] for row in await fetch(postgres_url, PARTITIONS)}
    for ahead in range(4):
        month = now.year * 12 + now.month - 1 + ahead
        assert f"event_{month // 12}_{month % 12 + 1:02}" in found
    assert "event_default" in found


async def test_rows_of_the_default_partition_move_to_their_month(postgres_url):
    database = await Database.open(postgres_url)
    store = PostgresStore(database)
    assert await store.ensure_partitions() == 0
    late = datetime(2031, 5, 17, tzinfo=UTC)
    first = await database.fetchval("select noetl.first_id($1)", late)
    run = Run(str(first))
    change = await run.write(store, run.started(), entered())
    where = """
        select c.relname from noetl.event e join pg_class c on c.oid = e.tableoid
        where e.execution_id = $1"""
    assert await database.fetchval(where, first) == "event_default"
    made = await database.background.fetchval("select noetl.ensure_partitions($1, 0)", late)
    assert made == 2
    assert await database.fetchval(where, first) == "event_2031_05"
    assert await store.log.read(run.execution_id) == list(change.events)
    assert await store.log.commit([change]) == {run.execution_id}
    await store.close()
