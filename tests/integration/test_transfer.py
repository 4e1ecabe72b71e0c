"""Transfers between real stores: PostgreSQL, SQLite, DuckDB, files, HTTP and objects."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import resource
import signal
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import duckdb
import psycopg
import pyarrow as pa
import pytest

from noetl.clock import SystemClock
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.duckdb.engine import Engine
from noetl.tools.http.egress import Egress
from noetl.tools.http.tool import HttpTool
from noetl.tools.interpreter import scratch
from noetl.tools.objects.store import Stores
from noetl.tools.transfer.sides import Sides
from noetl.tools.transfer.tool import TransferTool

PEOPLE = (
    "select g as id, 'name ' || g as name, (g * 1.5)::float8 as amount"
    " from generate_series(1, 25) as g"
)
ROWS = [(n, f"name {n}", n * 1.5) for n in range(1, 26)]


def fields_of(url):
    """A credential for the server of the tests."""
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    return {
        "type": "postgres",
        "data": {
            "host": (asked.get("host") or [parts.hostname])[0],
            "port": (asked.get("port") or [parts.port])[0],
            "user": parts.username, "password": parts.password, "database": parts.path[1:],
        },
    }  # fmt: skip


class Stage:
    def __init__(self, root, secrets):
        self.root = root
        self.secrets = secrets
        engine = Engine((root,))
        http = HttpTool(Egress(mode="open"), SystemClock())
        self.tool = TransferTool(Sides(duckdb=engine, http=http), SystemClock())
        self.engine, self.http = engine, http
        self.progress = []
        self.stores = None

    def context(self, mark, within=30):
        async def secret(alias):
            return self.secrets[alias]

        return ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key=mark, secrets=secret,
            stores=self.stores, deadline=asyncio.get_running_loop().time() + within,
            on_progress=lambda percent, text: self.progress.append((percent, text)),
        )  # fmt: skip

    async def move(self, source, target, *, mark="7/s/-/1", within=30, **config):
        asked = {"kind": "transfer", "source": source, "target": target, **config}
        return await run_tool(self.tool, asked, self.context(mark, within))

    async def done(self, *args, **more):
        outcome = await self.move(*args, **more)
        assert outcome.status == "ok", outcome.error
        return outcome.data


@pytest.fixture
async def at(tmp_path):
    made = Stage(tmp_path, {})
    yield made
    await made.engine.close()
    await made.http.close()


@pytest.fixture
def pg(at, empty_postgres_url):
    at.secrets["db"] = fields_of(empty_postgres_url)
    with closing(psycopg.connect(empty_postgres_url, autocommit=True)) as connection:
        connection.execute("create table people (id int primary key, name text, amount float8)")
        yield connection


def people(connection, columns="id, name, amount"):
    return connection.execute(f"select {columns} from people order by id").fetchall()  # noqa: S608 - columns of a test


def from_pg(query=PEOPLE, **more):
    return {"kind": "postgres", "auth": "db", "query": query, **more}


def to_pg(table="people", **more):
    return {"kind": "postgres", "auth": "db", "table": table, **more}


# ---------------------------------------------------------------------------- PostgreSQL


async def test_rows_go_from_postgres_to_postgres(at, pg):
    data = await at.done(from_pg(), to_pg(), chunk_size=10)
    assert people(pg) == ROWS
    assert data.pop("duration_ms") >= 0
    assert data.pop("bytes") > 100
    assert data == {
        "rows_transferred": 25, "chunks_processed": 3, "mode": "append",
        "source_type": "postgres", "target_type": "postgres", "target_table": "people",
        "columns": ["id", "name", "amount"],
    }  # fmt: skip


async def test_a_repeat_returns_the_first_outcome_and_moves_nothing(at, pg):
    first = await at.done(from_pg(), to_pg())
    assert await at.done(from_pg(), to_pg()) == first
    assert people(pg) == ROWS
    pg.execute("delete from people")
    await at.done(from_pg(), to_pg(), mark="another")
    assert people(pg) == ROWS


async def test_two_at_once_with_one_key_move_once(at, pg):
    pg.execute("alter table people drop constraint people_pkey")
    moved = await asyncio.gather(*(at.done(from_pg(), to_pg()) for _ in range(3)))
    assert moved[0] == moved[1] == moved[2]
    assert len(people(pg)) == 25


async def test_replace_removes_what_was_there(at, pg):
    pg.execute("insert into people values (1, 'old', 0), (99, 'old', 0)")
    await at.done(from_pg(), to_pg(), mode="replace")
    assert people(pg) == ROWS


async def test_upsert_changes_what_is_there_and_the_last_of_a_key_wins(at, pg):
    pg.execute("insert into people values (1, 'old', 0), (99, 'old', 0)")
    query = (
        "select * from (values (1, 'first', 1.0), (2, 'two', 2.0), (1, 'last', 3.0))"
        " as given (id, name, amount)"
    )
    source = from_pg(query)
    await at.done(source, to_pg(), mode="upsert", key=["id"])
    assert people(pg) == [(1, "last", 3.0), (2, "two", 2.0), (99, "old", 0.0)]


async def test_upsert_needs_a_unique_index(at, pg):
    outcome = await at.move(from_pg(), to_pg(), mode="upsert", key="name")
    assert (outcome.error["kind"], outcome.error["code"]) == ("config", "invalid_config")
    assert people(pg) == []


async def test_columns_and_mapping_choose_what_is_moved(at, pg):
    await at.done(from_pg(), to_pg(columns=["id", "name"]))
    assert people(pg)[0] == (1, "name 1", None)
    target = to_pg(mapping={"id": "id", "name": "amount"})
    await at.done(from_pg(), target, mark="m", mode="replace")
    assert people(pg)[0] == (1, "1.5", None)


async def test_params_are_bound_as_data(at, pg):
    source = from_pg("select %s::int as id, %s as name", params=[7, "'; drop table people; --"])
    await at.done(source, to_pg())
    assert people(pg) == [(7, "'; drop table people; --", None)]


async def test_a_table_is_made_when_that_is_wanted(at, pg):
    source = from_pg("select 1::bigint as id, 2.50::numeric(6, 2) as cents, now() as at")
    refused = await at.move(source, to_pg('"New One"'))
    assert (refused.error["kind"], refused.error["code"]) == ("not_found", "table_not_found")
    await at.done(source, to_pg('"New One"', create=True), mode="upsert", key="id")
    found = pg.execute('select id, cents::text from "New One"').fetchall()
    assert found == [(1, "2.50")]


async def test_names_are_quoted_by_the_driver(at, pg):
    name = 'x"; drop table people; --'
    pg.execute(psycopg.sql.SQL("create table {} (a int)").format(psycopg.sql.Identifier(name)))
    quoted = '"' + name.replace('"', '""') + '"'
    await at.done(from_pg("select 1 as a"), to_pg(quoted))
    assert people(pg) == []


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_a_bad_value_fails_or_becomes_null(at, pg, kind):
    if kind == "postgres":
        source = from_pg("select '1' as id, 'x' as amount union all select '2', '2.5'")
    else:
        with closing(sqlite3.connect(at.root / "s.db")) as file:
            text = "create table t (id, amount); insert into t values (1, 'x'), (2, 2.5)"
            file.executescript(text)
        source = {"kind": "sqlite", "path": "s.db", "query": "select id, amount from t order by id"}
    outcome = await at.move(source, to_pg())
    assert (outcome.error["kind"], outcome.error["code"]) == ("schema", "type_error")
    assert people(pg) == []
    await at.done(source, to_pg(), on_type_error="null")
    assert people(pg, "id, amount") == [(1, None), (2, 2.5)]


@pytest.mark.parametrize(
    ("source", "target", "code"),
    [
        (from_pg("select nothing"), to_pg(), "PG_42703"),
        (from_pg("select 1 as other"), to_pg(), "column_missing"),
        (from_pg("select 1 as id, 2 as id"), to_pg(), "duplicate_column"),
        (from_pg(), to_pg(columns=["odd"]), "column_missing"),
        (from_pg("select 1 as id union all select 1"), to_pg(), "PG_23505"),
        ({"kind": "postgres", "query": "select 1"}, to_pg(), "auth_required"),
        (from_pg(auth="nobody"), to_pg(), "credential_not_found"),
        (from_pg(auth="objects"), to_pg(), "credential_type"),
    ],
)
async def test_what_is_wrong_has_a_code_and_nothing_is_changed(at, pg, source, target, code):
    at.secrets["objects"] = {"type": "aws", "data": {"access_key_id": "a"}}
    outcome = await at.move(source, target)
    assert outcome.error["code"] == code
    assert people(pg) == []


async def test_credentials_may_stand_at_the_task(at, pg):
    source, target = from_pg(), to_pg()
    del source["auth"], target["auth"]
    await at.done(source, target, auth={"source": "db", "target": "db"})
    await at.done(source, target, auth="db", mark="2", mode="replace")
    assert people(pg) == ROWS


@pytest.mark.usefixtures("pg")
async def test_progress_is_told(at):
    await at.done(from_pg(PEOPLE.replace("25", "20000")), to_pg(), chunk_size=5000)
    assert at.progress
    assert at.progress[-1][1].endswith(" rows")


# ---------------------------------------------------------------------------- ends

SLOW = "select g as id, pg_sleep(0.01)::text as name from generate_series(1, 900000) as g"


async def test_a_cancelled_transfer_leaves_the_target_as_it_was(at, pg):
    pg.execute("insert into people values (0, 'old', 0)")
    source = from_pg(SLOW)
    task = asyncio.ensure_future(at.move(source, to_pg(), mode="replace"))
    async with asyncio.timeout(20):
        while not stages(pg):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert people(pg) == [(0, "old", 0.0)]
    data = await at.done(from_pg(), to_pg(), mode="replace")
    assert (data["rows_transferred"], people(pg)) == (25, ROWS)


def left_by(pid):
    return list(Path(tempfile.gettempdir()).glob(f"noetl-{pid}-*"))


def stages(connection):
    ask = "select count(*) from pg_class where relname = 'noetl_stage'"
    return connection.execute(ask).fetchone()[0]


KILLED = """
import asyncio, json, sys
sys.path.insert(0, {root!r})
from tests.integration.test_transfer import SLOW, Stage, from_pg, to_pg
from pathlib import Path

async def main():
    at = Stage(Path({folder!r}), json.loads({secrets!r}))
    print("go", flush=True)
    await at.move(from_pg(SLOW), to_pg(), mode="replace", within=60)

asyncio.run(main())
"""


async def test_a_killed_worker_leaves_the_target_as_it_was_and_the_repeat_is_exact(
    at, pg, tmp_path, pytestconfig
):
    pg.execute("insert into people values (0, 'old', 0)")
    text = KILLED.format(
        root=str(pytestconfig.rootpath), folder=str(tmp_path), secrets=json.dumps(at.secrets)
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", text, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(40):
        await process.stdout.readline()
        while not stages(pg):  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
    scratch.sweep()
    assert left_by(process.pid) == []
    assert people(pg) == [(0, "old", 0.0)]
    data = await at.done(from_pg(), to_pg(), mode="replace")
    assert (data["rows_transferred"], people(pg)) == (25, ROWS)


async def test_the_loop_goes_on_while_rows_move(at, pg):
    pg.execute("create table wide (id int, a text, b text, c float8, d timestamptz)")
    query = "select g as id, md5(g::text) as a, 'x' as b, g::float8 as c, now() as d"
    source = from_pg(f"{query} from generate_series(1, 60000) as g")
    turns, longest = 0, 0.0
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(at.done(source, to_pg("wide")))
    while not task.done():
        before = loop.time()
        await asyncio.sleep(0)
        turns, longest = turns + 1, max(longest, loop.time() - before)
    assert (await task)["rows_transferred"] == 60_000
    assert turns > 100
    assert longest < 1


# ---------------------------------------------------------------------------- other stores


def sqlite_rows(path, text="select id, name, amount from people order by id"):
    with closing(sqlite3.connect(path)) as file:
        return file.execute(text).fetchall()


@pytest.mark.parametrize("middle", ["sqlite", "duckdb"])
@pytest.mark.parametrize("mode", ["append", "replace", "upsert"])
async def test_rows_go_to_a_file_and_back(at, pg, middle, mode):
    file = {"kind": middle, "path": "f.db", "table": "people", "create": True}
    key = {"key": ["id"]} if mode == "upsert" else {}
    source = from_pg(PEOPLE.replace("25", "24"))
    await at.done(source, file, mode=mode, mark="a", **key)
    again = await at.done(source, file, mode=mode, mark="a", **key)
    assert again["rows_transferred"] == 24
    last = from_pg("select 25 as id, 'name 25' as name, 37.5::float8 as amount")
    if mode == "replace":
        await at.done(from_pg(), file, mode=mode, mark="b")
    else:
        await at.done(last, file, mode=mode, mark="b", **key)
    if mode == "upsert":
        changed = from_pg("select 1 as id, 'other' as name, 1.5::float8 as amount union all "
                          "select 1, 'name 1', 1.5")  # fmt: skip
        await at.done(changed, file, mode=mode, mark="c", **key)
    back = {"kind": middle, "path": "f.db", "query": "select * from people"}
    await at.done(back, to_pg(), mark="back", chunk_size=7)
    assert people(pg) == ROWS


@pytest.mark.usefixtures("pg")
async def test_a_failure_in_a_file_changes_nothing(at):
    for kind in ("sqlite", "duckdb"):
        file = {"kind": kind, "path": f"{kind}.db", "table": "people", "create": True}
        await at.done(from_pg(), file, mode="upsert", key="id", mark="a")
        outcome = await at.move(from_pg(), {**file, "create": False}, mark="b")
        assert outcome.error["kind"] == "db_constraint"
        missing = await at.move(from_pg(), {**file, "table": "no", "create": False}, mark="c")
        assert missing.error["code"] == "table_not_found"
    assert sqlite_rows(at.root / "sqlite.db") == ROWS
    with duckdb.connect(str(at.root / "duckdb.db")) as file:
        assert file.execute("select * from people order by id").fetchall() == ROWS


async def test_bad_values_of_a_duckdb_target(at):
    with duckdb.connect(str(at.root / "t.db")) as file:
        file.execute("create table t (id int, n double)")
    source = {"kind": "duckdb", "query": "select 1 as id, 'x' as n union all select 2, '2.5'"}
    target = {"kind": "duckdb", "database": "t.db", "table": "t"}
    outcome = await at.move(source, target)
    assert (outcome.error["kind"], outcome.error["code"]) == ("schema", "type_error")
    await at.done(source, target, on_type_error="null")
    with duckdb.connect(str(at.root / "t.db")) as file:
        assert file.execute("from t order by id").fetchall() == [(1, None), (2, 2.5)]


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
async def test_a_file_outside_the_roots_is_refused(at, kind, side):
    sides = {
        "source": {"kind": "duckdb", "query": "select 1 as a"},
        "target": {"kind": "duckdb", "path": "x.db", "table": "t", "create": True},
    }
    sides[side] |= {"kind": kind, "path": "../out.db"}
    outcome = await at.move(**sides)
    assert (outcome.error["kind"], outcome.error["code"]) == (
        "storage_access", "outside_data_roots",
    )  # fmt: skip


TYPES = """
select 1::smallint as a, 2::bigint as b, true as c, 1.25::numeric(6, 2) as d, 1.5::numeric as e,
       'ü"'',\n' as f, ''::text as g, null::text as h, date '2024-01-02' as i,
       timestamptz '2024-01-02 03:04:05.123456+02' as j, timestamp '2024-01-02 03:04:05' as k,
       '\\x00ff'::bytea as l, '{"a": [1]}'::jsonb as m, array[1, 2] as n,
       '00000000-0000-0000-0000-000000000001'::uuid as o, time '01:02:03' as p"""


async def test_values_of_every_type_survive_a_round_trip(at, pg):
    pg.execute(f"create table before as {TYPES}")
    pg.execute("create table after (like before)")
    file = {"kind": "duckdb", "path": "f.db", "table": "t", "create": True}
    await at.done(from_pg("select * from before"), file, mark="a")
    back = {"kind": "duckdb", "path": "f.db", "query": "from t"}
    await at.done(back, to_pg("after"), mark="b")
    found = pg.execute("select * from after").fetchall()
    assert found == pg.execute("select * from before").fetchall()


# ---------------------------------------------------------------------------- memory


@pytest.mark.usefixtures("pg")
async def test_memory_stays_bounded(at):
    """A tenth of the million rows of the benchmark, with the peak that they add."""
    pa.default_memory_pool().release_unused()
    source = {"kind": "duckdb", "query": "select range as id, repeat('x', 100) as name"
              " from range(100000)"}  # fmt: skip
    before = peak_kib()
    data = await at.done(source, to_pg(columns=["id", "name"]))
    assert data["rows_transferred"] == 100_000
    assert peak_kib() - before < 150 * 1024


def peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# ---------------------------------------------------------------------------- HTTP


@pytest.fixture
async def site():
    pages = {}

    async def answer(reader, writer):
        line = (await reader.readline()).split()[1].decode()
        while (await reader.readline()).strip():
            pass
        body, media, status = pages.get(line, (b"{}", "application/json", 404))
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {media}\r\ncontent-length: {len(body)}\r\n"
        writer.write(head.encode() + b"connection: close\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    yield pages, f"http://{host}:{port}"
    server.close()
    await server.wait_closed()


RATES = {"rates": [{"code": "CHF", "value": {"now": 1}}, {"code": "EUR", "value": {"now": 0.95}}]}


async def test_rows_of_a_json_answer_go_to_a_table(at, pg, site):
    pages, url = site
    pages["/all.json"] = (json.dumps(RATES).encode(), "application/json", 200)
    pg.execute("create table rate (currency text primary key, value float8)")
    source = {"kind": "http", "url": f"{url}/all.json", "data_path": "$.rates"}
    target = to_pg("rate", mapping={"currency": "code", "value": "value.now"})
    await at.done(source, target, mode="upsert", key=["currency"])
    assert pg.execute("select * from rate order by 1").fetchall() == [("CHF", 1.0), ("EUR", 0.95)]


@pytest.mark.parametrize(
    "page",
    [
        ("/a.csv", b'id,name,amount\n1,"a, b",1.5\n2,,2\n', "text/csv"),
        ("/b.ndjson", b'{"id":1,"name":"a, b","amount":1.5}\n{"id":2,"amount":2}\n', "x/y"),
    ],
)  # fmt: skip
async def test_other_forms_of_answers(at, pg, site, page):
    path, body, media = page
    pages, url = site
    pages[path] = (body, media, 200)
    await at.done({"kind": "http", "url": url + path}, to_pg())
    assert people(pg) == [(1, "a, b", 1.5), (2, None, 2.0)]


@pytest.mark.parametrize(
    ("answer", "more", "kind"),
    [
        ((b"{}", 404), {}, "not_found"),
        ((b"{", 200), {}, "parse"),
        ((b"[1]", 200), {}, "schema"),
        ((b"{}", 200), {"data_path": "$.no"}, "schema"),
        ((b"{}", 200), {"format": "odd"}, "config"),
    ],
)
@pytest.mark.usefixtures("pg")
async def test_an_answer_that_cannot_be_used(at, site, answer, more, kind):
    pages, url = site
    body, status = answer
    pages["/x"] = (body, "application/json", status)
    outcome = await at.move({"kind": "http", "url": f"{url}/x", **more}, to_pg())
    assert outcome.error["kind"] == kind


# ---------------------------------------------------------------------------- objects


@pytest.fixture
def bucket(at, s3_server):
    at.secrets["own"] = {"type": "s3", "data": s3_server.fields}
    at.stores = Stores(Egress(mode="open"))
    return s3_server.bucket()


@pytest.mark.parametrize("form", ["parquet", "csv", "tsv", "ndjson"])
async def test_rows_go_to_an_object_and_back(at, pg, bucket, form):
    uri = f"s3://{bucket}/out/people.{form}"
    there = {"kind": "s3", "auth": "own", "uri": uri}
    data = await at.done(from_pg(), there, mark="a")
    assert (data["rows_transferred"], data["target_table"]) == (25, uri)
    assert await at.done(from_pg(), there, mark="a") == data
    await at.done(there, to_pg(), mark="b", chunk_size=10)
    assert people(pg) == ROWS


@pytest.mark.usefixtures("pg")
async def test_an_object_of_another_is_only_replaced(at, bucket):
    there = {"kind": "s3", "auth": "own", "uri": f"s3://{bucket}/a.csv"}
    await at.done(from_pg(), there, mark="a")
    outcome = await at.move(from_pg(), there, mark="b")
    assert outcome.error["code"] == "already_exists"
    await at.done(from_pg("select 1 as one"), there, mark="c", mode="replace")
    back = {"kind": "duckdb", "path": "x.db", "table": "t", "create": True}
    data = await at.done(there, back, mark="d")
    assert (data["rows_transferred"], data["columns"]) == (1, ["one"])


@pytest.mark.usefixtures("pg")
async def test_a_folder_gets_one_object_of_each_transfer(at, bucket):
    there = {"kind": "s3", "auth": "own", "uri": f"s3://{bucket}/parts/"}
    made = [await at.done(from_pg(), there, mark=mark) for mark in ("a", "b", "a")]
    assert made[0] == made[2] != made[1]
    assert made[0]["target_table"].startswith(f"s3://{bucket}/parts/")
    outcome = await at.move(from_pg(), there, mode="replace", mark="z")
    assert outcome.error["code"] == "invalid_config"


@pytest.mark.usefixtures("pg")
async def test_a_try_that_broke_off_after_its_object_goes_on(at, bucket):
    uri = f"s3://{bucket}/p/a.csv"
    there = {"kind": "s3", "auth": "own", "uri": uri}
    await at.done(from_pg(), there, mark="a")
    digest = hashlib.sha256(b"a").hexdigest()[:32]
    ledger = f"s3://{bucket}/p/_noetl_transfer/{digest}.json"
    store, key = await at.stores.at(ledger, "own", at.context("a"))
    await store.put_async(key, json.dumps({"uri": uri}).encode())  # as before the last word
    assert (await at.done(from_pg(), there, mark="a"))["rows_transferred"] == 25


async def test_a_missing_object_and_a_bad_one(at, pg, bucket):
    source = {"kind": "s3", "auth": "own", "uri": f"s3://{bucket}/no.parquet"}
    assert (await at.move(source, to_pg())).error["code"] == "no_such_object"
    store, key = await at.stores.at(source["uri"], "own", at.context("a"))
    await store.put_async(key, b"no parquet")
    assert (await at.move(source, to_pg())).error["code"] == "invalid_parquet"
    assert people(pg) == []


# ---------------------------------------------------------------------------- config


@pytest.mark.parametrize(
    ("source", "target", "more"),
    [
        ({"kind": "http", "url": "http://x/"}, {"kind": "s3", "uri": "s3://b/x"},
         {"mode": "upsert", "key": "a"}),
        ({"kind": "postgres"}, {"kind": "postgres", "table": "t"}, {}),
        ({"kind": "s3"}, {"kind": "postgres", "table": "t"}, {}),
        ({"kind": "s3", "uri": "gs://b/x"}, {"kind": "postgres", "table": "t"}, {}),
        ({"kind": "postgres", "query": "select 1"}, {"kind": "sqlite", "table": "t"}, {}),
        ({"kind": "postgres", "query": "select 1"}, {"kind": "postgres"}, {}),
        ({"kind": "postgres", "query": "select 1"}, {"kind": "http", "url": "x"}, {}),
        ({"kind": "postgres", "query": "select 1"}, {"kind": "postgres", "table": "t"},
         {"mode": "upsert"}),
    ],
)  # fmt: skip
async def test_a_pair_that_there_is_not_is_refused(at, source, target, more):
    outcome = await at.move(source, target, **more)
    assert (outcome.error["kind"], outcome.error["code"]) == ("config", "invalid_config")
