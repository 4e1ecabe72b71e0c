"""A database written to a file and read back: the same rows, or a clear refusal."""

import asyncio
import json
import os
import zipfile
from contextlib import asynccontextmanager

import asyncpg
import pytest

from noetl.server import admin
from noetl.store.errors import MigrationRefused
from noetl.store.postgres import dump, loading
from noetl.store.postgres.migrate import scripts

PUT = """
insert into noetl.execution (execution_id, catalog_id, path, version, status, last_seq,
    last_event_id, workload, labels, pool, priority, started_at, updated_at, completed_at)
values ($1::bigint, 1, 'etl/' || $1::bigint, 1, $2::text, $3, 1, $4, '{"team": "etl"}',
    'shared', 5, now(), now(),
    case when $2::text = 'COMPLETED' then now() end)"""
EVENT = """
insert into noetl.event (execution_id, seq, event_id, event_type, step, node_id, node_type, status,
    context, result)
values ($1::bigint, $2::int, $1::bigint * 10 + $2::int, $3, 's', 's', 'step', 'X', $4, $5)"""
CONTEXT = '{"b": 1, "a": "tab\\t quote \\" back \\\\ é \\u0001"}'
RESULT = '{"status": "ok", "context": {"n": 1.50}}'
TABLES = """
select relname as name from pg_class where relnamespace = to_regnamespace('noetl')
and relkind in ('r', 'p') and not relispartition and relname not in ('migration', 'runtime')"""
NOW_ID = 380_000_000_000_000_000
OLD_ID = 5_000_000_000_000_000


@asynccontextmanager
async def opened(url, **more):
    connection = await asyncpg.connect(url, **more)
    try:
        yield connection
    finally:
        await connection.close()


async def execute(url, sql, *values):
    async with opened(url) as connection:
        return await connection.fetchval(sql, *values)


async def fill(url, runs=3, events=4):
    async with opened(url) as connection:
        await _fill(connection, runs, events)


async def _fill(connection, runs, events):
    for number in range(runs):
        execution_id = (OLD_ID if number == 0 else NOW_ID) + number
        await connection.execute(PUT, execution_id, "COMPLETED", events, '{"n": 1}')
        for seq in range(1, events + 1):
            kind = "playbook.completed" if seq == events else "step.enter"
            await connection.execute(EVENT, execution_id, seq, kind, CONTEXT, RESULT)
    await connection.execute(
        "insert into noetl.result (result_id, ref, body) values (7, 'noetl://x', $1)",
        bytes(range(256)),
    )


async def contents(url):
    """Every row of every table as text."""
    found = {}
    async with opened(url) as connection:
        for row in await connection.fetch(TABLES):
            rows = await connection.fetch(f"select t::text as row from noetl.{row['name']} t")  # noqa: S608 - a name of the catalog
            found[row["name"]] = sorted(row["row"] for row in rows)
    return found


async def test_a_backup_says_what_it_holds(postgres_server, tmp_path):
    name = postgres_server.make()
    postgres_url = postgres_server.url_of(name)
    await fill(postgres_url)
    await execute(postgres_url, "create sequence noetl.numbers")
    await execute(postgres_url, "select setval('noetl.numbers', 42)")
    file = tmp_path / "noetl.backup"
    told = []
    made = await admin.backup(postgres_url, file, told.append)
    postgres_server.drop(name)

    assert oct(file.stat().st_mode & 0o777) == "0o600"
    assert sorted(tmp_path.iterdir()) == [file]
    assert {one.name: one.rows for one in made.tables if one.name in {"execution", "event"}} == {
        "execution": 3,
        "event": 12,
    }
    assert [one.name for one in told] == [one.name for one in made.tables]
    assert admin.verified(file) == made
    with zipfile.ZipFile(file) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert manifest["sequences"] == {"numbers": 42}


async def test_rows_and_partitions_are_those_of_the_moment(
    postgres_url, empty_postgres_url, tmp_path
):
    await fill(postgres_url)
    await execute(
        postgres_url, "select noetl.ensure_partitions('2024-01-15T00:00:00Z'::timestamptz, 0)"
    )
    before = await contents(postgres_url)
    await admin.backup(postgres_url, tmp_path / "b")

    found = await admin.restore(empty_postgres_url, tmp_path / "b")

    assert await contents(empty_postgres_url) == before
    assert [one.is_applied for one in await admin.changes(empty_postgres_url)] == [True] * len(
        scripts()
    )
    del before["execution_label"]  # written by the runs that came back
    assert sum(one.rows for one in found.tables) == sum(map(len, before.values()))
    assert await execute(empty_postgres_url, "select count(*) from noetl.event_2024_01") == 4
    assert [one.name for one in await admin.check(empty_postgres_url) if not one.is_ok] == []


async def test_a_backup_sees_one_moment_while_others_write(
    postgres_url, empty_postgres_url, tmp_path
):
    await fill(postgres_url)
    is_over = asyncio.Event()
    numbers = iter(range(100, 100_000))

    async def write():
        async with opened(postgres_url) as connection:
            while not is_over.is_set():
                execution_id = NOW_ID + next(numbers)
                async with connection.transaction():
                    await connection.execute(PUT, execution_id, "COMPLETED", 1, "{}")
                    await connection.execute(
                        EVENT, execution_id, 1, "playbook.completed", None, None
                    )

    writing = asyncio.create_task(write())
    await asyncio.sleep(0)
    await admin.backup(postgres_url, tmp_path / "b")
    is_over.set()
    await writing
    await admin.restore(empty_postgres_url, tmp_path / "b")

    assert [one.name for one in await admin.check(empty_postgres_url) if not one.is_ok] == []


async def test_a_database_that_is_not_empty_is_kept(postgres_url, empty_postgres_url, tmp_path):
    await fill(postgres_url)
    await admin.backup(postgres_url, tmp_path / "b")
    await admin.restore(empty_postgres_url, tmp_path / "b")

    with pytest.raises(loading.RestoreRefused, match="not empty") as refused:
        await admin.restore(empty_postgres_url, tmp_path / "b")
    assert "--force" in refused.value.hint
    await admin.restore(empty_postgres_url, tmp_path / "b", is_forced=True)
    assert await contents(empty_postgres_url) == await contents(postgres_url)


async def test_a_database_with_a_server_is_left_alone(postgres_url, empty_postgres_url, tmp_path):
    await admin.backup(postgres_url, tmp_path / "b")
    named = {"application_name": "noetl"}

    async with opened(empty_postgres_url, server_settings=named):
        with pytest.raises(loading.RestoreRefused, match="server is connected"):
            await admin.restore(empty_postgres_url, tmp_path / "b", is_forced=True)


async def test_a_database_without_the_schema_has_no_backup(empty_postgres_url, tmp_path):
    with pytest.raises(MigrationRefused, match="no schema"):
        await admin.backup(empty_postgres_url, tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def rewritten(tmp_path):
    """A backup with something else in it."""

    def make(change):
        made = tmp_path / "changed"
        with zipfile.ZipFile(tmp_path / "b") as source, zipfile.ZipFile(made, "w") as target:
            for name in source.namelist():
                data = change(name, source.read(name))
                if data is not None:
                    target.writestr(name, data)
        return made

    return make


def _manifest(**changed):
    return lambda name, data: (
        json.dumps(json.loads(data) | changed) if name == dump.MANIFEST else data
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _, data: data.replace(b"etl/", b"elt/"), "rows of `execution`"),
        (lambda name, data: None if "execution.copy" in name else data, "no rows of `execution`"),
        (lambda name, data: None if name == dump.MANIFEST else data, "no manifest"),
        (_manifest(version=2), "format noetl-backup 2"),
        (_manifest(tables="none"), "no manifest"),
    ],
)
async def test_a_changed_backup_is_refused_before_anything_is_touched(  # noqa: PLR0913, PLR0917 - fixtures
    postgres_url, empty_postgres_url, tmp_path, rewritten, change, said
):
    await fill(postgres_url, runs=1)
    await admin.backup(postgres_url, tmp_path / "b")

    with pytest.raises(loading.BackupDamaged, match=said):
        await admin.restore(empty_postgres_url, rewritten(change))
    assert await execute(empty_postgres_url, "select to_regnamespace('noetl')::text") is None


async def test_a_backup_of_a_newer_release_is_refused(
    postgres_url, empty_postgres_url, tmp_path, rewritten
):
    await admin.backup(postgres_url, tmp_path / "b")
    newer = rewritten(_manifest(migrations={"9999_pre_future": "00"}, release="99.0"))

    with pytest.raises(loading.RestoreRefused, match=r"release 99\.0"):
        await admin.restore(empty_postgres_url, newer)


async def test_a_cut_or_foreign_file_is_no_backup(postgres_url, empty_postgres_url, tmp_path):
    await admin.backup(postgres_url, tmp_path / "b")
    file = tmp_path / "cut"
    for data in ((tmp_path / "b").read_bytes()[:-100], b"", os.urandom(5000)):
        file.write_bytes(data)
        with pytest.raises(loading.BackupDamaged, match="not a whole backup"):
            await admin.restore(empty_postgres_url, file)


# ------------------------------------------------------------------------------- checks


BREAKS = {
    "dense_seq": "delete from noetl.event where execution_id = $1 and seq = 2",
    "one_end": "update noetl.execution set status = 'RUNNING', completed_at = null"
    " where execution_id = $1",
    "read_model": "update noetl.execution set last_seq = 3 where execution_id = $1",
    "event_of_run": "delete from noetl.execution where execution_id = $1",
    "command_of_run": "insert into noetl.command (execution_id, command_id, command_key, step,"
    " tool_kind, priority, status, attempt) values ($1::bigint + 999, 1, 'k', 's', 'noop', 5,"
    " 'COMPLETED', 1)",
    "open_command": "insert into noetl.command (execution_id, command_id, command_key, step,"
    " tool_kind, priority, status, attempt) values ($1, 1, 'k', 's', 'noop', 5, 'PENDING', 1)",
    "lease_of_claim": "insert into noetl.command (execution_id, command_id, command_key, step,"
    " tool_kind, priority, status, attempt) values ($1, 1, 'k', 's', 'noop', 5, 'CLAIMED', 1)",
    "timer_of_run": "insert into noetl.timer (execution_id, timer_key, due_at, kind)"
    " values ($1, 't', now(), 'wait')",
}


@pytest.mark.parametrize("name", BREAKS)
async def test_a_broken_invariant_is_named_with_the_run(postgres_url, name):
    await fill(postgres_url, runs=2)
    await execute(postgres_url, BREAKS[name], NOW_ID + 1)

    found = {one.name: one.found for one in await admin.check(postgres_url) if not one.is_ok}

    run = NOW_ID + 1 + (999 if name == "command_of_run" else 0)
    assert found[name] == (str(run),)


async def test_a_missing_table_and_a_missing_migration_are_named(postgres_server):
    name = postgres_server.make()
    url = postgres_server.url_of(name)
    await execute(url, "drop table noetl.timer")
    await execute(url, "drop index noetl.command_by_id")

    found = {one.name: one for one in await admin.check(url)}
    postgres_server.drop(name)

    assert found["migrations"].is_ok
    assert set(found["schema"].found) >= {"timer", "command_by_id"}
    assert "dense_seq" not in found


async def test_a_database_without_a_schema_fails_the_check(empty_postgres_url):
    found = {one.name: one.is_ok for one in await admin.check(empty_postgres_url)}

    assert (found["migrations"], found["schema"]) == (False, False)


# ------------------------------------------------------------------------------- questions


async def test_a_question_is_answered_as_json(postgres_url):
    await fill(postgres_url, runs=1, events=1)

    sql = (
        "select execution_id, last_seq, workload, labels, completed_at is null as open,"
        " array[1, 2] as list, null as nothing, '\\x00ff'::bytea as raw, 1.50::numeric as exact,"
        " 9007199254740993 as large from execution"
    )
    rows, is_cut = await admin.query(postgres_url, sql)

    assert (rows, is_cut) == (
        [
            {
                "execution_id": str(OLD_ID), "last_seq": 1, "workload": {"n": 1},
                "labels": {"team": "etl"}, "open": False, "list": [1, 2], "nothing": None,
                "raw": "00ff", "exact": "1.50", "large": "9007199254740993",
            }
        ],
        False,
    )  # fmt: skip


async def test_more_than_ten_thousand_rows_are_cut(postgres_url):
    rows, is_cut = await admin.query(postgres_url, "select * from generate_series(1, 10001)")

    assert (len(rows), is_cut) == (10_000, True)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("delete from execution", "only a statement that reads"),
        ("with x as (delete from execution returning 1) select * from x", "read-only"),
        ("copy (select 1) to program 'true'", "only a statement that reads"),
        ("select 1; select 2", "multiple commands"),
        ("select nextval('x')", "does not exist"),
        ("/* a */ -- b\n drop table execution", "only a statement that reads"),
        ("", "only a statement that reads"),
        ("selec 1", "only a statement that reads"),
        ("select broken", "does not exist"),
        ("explain analyze insert into timer values (1)", "read-only|syntax|column"),
    ],
)
async def test_a_question_changes_nothing(postgres_url, sql, said):
    with pytest.raises(Exception, match=said) as refused:
        await admin.query(postgres_url, sql)
    assert refused.value.code == "bad_statement"


async def test_a_question_with_a_comment_in_front_is_one(postgres_url):
    rows, _ = await admin.query(postgres_url, "-- how many\n/* all */ select 1 as one")

    assert rows == [{"one": 1}]


async def test_a_doctor_asks_for_version_settings_clock_and_schema(postgres_url):
    found = await admin.vitals(postgres_url)

    assert int(found.version.split(".")[0]) >= 15
    assert found.settings == {
        "fsync": "off", "full_page_writes": "off", "synchronous_commit": "off",
    }  # fmt: skip
    assert abs(found.clock_offset_ms) < 1000
    assert found.migrations_missing == 0
