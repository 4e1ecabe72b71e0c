"""What DuckDB reaches besides files: objects, other databases, a lake.

Extensions come as wheels of one version of the library. Where there is none, tasks say so; where
there is one, the same tests see it at work.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import closing
from functools import cache

import duckdb
import psycopg
import pytest

from noetl.tools.base import ToolContext, run_tool
from noetl.tools.duckdb.child import wheel_of
from noetl.tools.duckdb.ducklake import DucklakeTool
from noetl.tools.duckdb.engine import Engine
from noetl.tools.duckdb.tool import DuckdbTool
from noetl.tools.http.egress import Egress
from noetl.tools.objects.store import Stores
from tests.integration.test_transfer import fields_of

PYTHON = sys.executable
SECRET = "canary-duck-8d1f"  # noqa: S105 - searched for in errors


@cache
def has(extension):
    if sys.executable == PYTHON:
        return wheel_of(extension, duckdb.__version__) is not None
    text = f"import duckdb_extension_{extension}"
    return subprocess.run([PYTHON, "-c", text], check=False, capture_output=True).returncode == 0


class Stage:
    def __init__(self, root):
        self.root = root
        self.secrets = {}
        self.stores = Stores(Egress(mode="open"))
        self.engine = Engine((root,), PYTHON)
        self.tools = {
            "duckdb": DuckdbTool((root,), engine=self.engine),
            "ducklake": DucklakeTool((root,), engine=self.engine),
        }

    async def sql(self, command, kind="duckdb", **config):
        async def secret(alias):
            return self.secrets[alias]

        ctx = ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key="k", secrets=secret,
            stores=self.stores, deadline=asyncio.get_running_loop().time() + 30,
        )  # fmt: skip
        return await run_tool(self.tools[kind], {"kind": kind, "command": command, **config}, ctx)

    async def rows(self, command, kind="duckdb", **config):
        outcome = await self.sql(command, kind, **config)
        assert outcome.status == "ok", outcome.error
        return outcome.data["rows"]


@pytest.fixture
async def at(tmp_path):
    made = Stage(tmp_path)
    yield made
    await made.engine.close()


@pytest.fixture
def bucket(at, s3_server):
    at.secrets["own"] = {"type": "s3", "data": s3_server.fields}
    return s3_server.bucket()


@pytest.fixture
def pg(at, empty_postgres_url):
    at.secrets["db"] = fields_of(empty_postgres_url)
    with closing(psycopg.connect(empty_postgres_url, autocommit=True)) as connection:
        connection.execute("create table t as select 7 as a")
        yield connection


def is_missing(outcome, extension):
    """Whether the task says which extension it lacks, and how to get it."""
    error = outcome.error
    return (
        (error["kind"], error["code"], error["retryable"]) == ("config", "missing_extension", False)
        and error["details"]["extension"] == extension
        and "duckdb-extension-" in error["message"]
    )


# ---------------------------------------------------------------------------- objects


@pytest.mark.parametrize("form", ["parquet", "csv", "json"])
async def test_a_query_is_exported_to_an_object_and_read_from_it(at, bucket, form):
    uri = f"s3://{bucket}/out/numbers.{form}"
    outcome = await at.sql("from range(3) as t (n)", export={"format": form, "to": uri}, auth="own")
    assert outcome.status == "ok", outcome.error
    assert outcome.data["export"]["to"] == uri
    attach = [{"uri": uri, "as": "numbers"}]
    rows = await at.rows("from numbers", attach=attach, auth="own")
    assert rows == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_the_narrowest_scope_gives_the_credential(at, bucket):
    at.secrets["other"] = {"type": "s3", "data": {"access_key_id": "no", "secret_access_key": "no"}}
    auth = {
        "all": {"type": "s3", "credential": "other"},
        "ours": {"type": "s3", "credential": "own", "scope": f"s3://{bucket}/"},
    }
    to = f"s3://{bucket}/x.csv"
    outcome = await at.sql("select 1 as a", export={"format": "csv", "to": to}, auth=auth)
    assert outcome.status == "ok", outcome.error


async def test_an_object_in_sql_needs_its_extension(at, bucket):
    await at.sql("select 5 as a", export={"to": f"s3://{bucket}/x.parquet"}, auth="own")
    outcome = await at.sql(f"from read_parquet('s3://{bucket}/x.parquet')", auth="own")
    if has("httpfs"):
        assert outcome.data["rows"] == [{"a": 5}]
        denied = await at.sql("from read_parquet('s3://other/x.parquet')",
                              auth={"o": {"type": "s3", "credential": "own",
                                          "scope": f"s3://{bucket}/"}})  # fmt: skip
        assert denied.status == "error"
    else:
        assert is_missing(outcome, "httpfs")


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"auth": {"x": {"type": "odd", "credential": "own"}}}, "invalid_config"),
        ({"auth": {"x": "own"}}, "invalid_config"),
        ({"auth": {"x": {"type": "s3", "credential": "own", "scope": "gs://b/"}}},
         "invalid_config"),
        ({"auth": {"x": {"type": "postgres", "credential": "own"}}}, "credential_type"),
        ({"auth": {"x": {"type": "postgres"}}}, "auth_required"),
        ({"auth": "nobody"}, "credential_not_found"),
        ({"attach": ["s3://b/x.odd"]}, "invalid_config"),
        ({"attach": ["s3://b/x.csv"]}, "auth_required"),
        ({"extensions": ["postgres_scanner"]}, "extension_denied"),
        ({"export": {"to": "ftp://b/x"}}, "invalid_config"),
    ],
)  # fmt: skip
async def test_what_is_wrong_is_told(at, config, code):
    at.secrets["own"] = {"type": "s3", "data": {"access_key_id": "a", "secret_access_key": SECRET}}
    outcome = await at.sql("select 1", **config)
    assert outcome.error["code"] == code
    assert SECRET not in str(outcome.error)


async def test_xlsx_needs_its_extension(at):
    outcome = await at.sql("select 1 as a", export={"format": "xlsx", "to": "a.xlsx"})
    if has("excel"):
        assert (at.root / "a.xlsx").read_bytes()[:2] == b"PK"
    else:
        assert is_missing(outcome, "excel")


# ---------------------------------------------------------------------------- databases


@pytest.mark.parametrize("auth", ["db", {"db": {"type": "postgres", "credential": "db"}}])
async def test_a_postgres_database_is_attached(at, pg, auth):
    outcome = await at.sql("create table db.public.u as select a + 1 as b from db.public.t; "
                           "from db.public.u", auth=auth)  # fmt: skip
    if has("postgres_scanner"):
        assert outcome.data["rows"] == [{"b": 8}]
        assert pg.execute("select b from u").fetchall() == [(8,)]
    else:
        assert is_missing(outcome, "postgres_scanner")


@pytest.mark.usefixtures("pg")
@pytest.mark.parametrize(
    "text",
    [
        "from postgres_scan('host=127.0.0.1 port=1', 'public', 't')",
        "from POSTGRES_SCAN('host=127.0.0.1 port=1', 'public', 't')",
        "from \"postgres_scan\"('host=127.0.0.1 port=1', 'public', 't')",
        "from sqlite_scan('/etc/passwd', 't')",
        "from query('from post' || 'gres_scan(''host=127.0.0.1'', ''public'', ''t'')')",
        "from query ('select 1')",
        "attach 'host=127.0.0.1 port=1' as q (type postgres)",
    ],
)
async def test_a_granted_database_opens_no_other(at, text):
    outcome = await at.sql(text, auth="db")
    if has("postgres_scanner"):
        assert outcome.error["kind"] == "storage_access"
    else:
        assert is_missing(outcome, "postgres_scanner")


# ---------------------------------------------------------------------------- lakes


@pytest.fixture(params=["file", "postgres"])
def lake(request):
    if request.param == "postgres":
        request.getfixturevalue("pg")
        return {"catalog": "db", "data_path": "lake"}
    return {"catalog": "meta.ducklake", "data_path": "file://lake"}


async def test_a_lake_keeps_tables_and_their_past(at, lake):
    outcome = await at.sql("create table t as select 1 as a", "ducklake", **lake)
    if not has("ducklake"):
        assert is_missing(outcome, "ducklake")
        return
    assert outcome.status == "ok", outcome.error
    await at.rows("insert into t values (2)", "ducklake", **lake)
    assert await at.rows("from t order by a", "ducklake", **lake) == [{"a": 1}, {"a": 2}]
    old = await at.rows("from lake.t", "ducklake", **lake, snapshot_version=1)
    assert old == [{"a": 1}]
    written = await at.sql("insert into t values (3)", "ducklake", **lake, snapshot_version=1)
    assert written.status == "error"


async def test_a_lake_has_a_name_of_its_own(at):
    lake = {"catalog": "m.ducklake", "data_path": "data", "lake": "sales"}
    outcome = await at.sql("create table sales.t as select 1 as a; from t", "ducklake", **lake)
    if has("ducklake"):
        assert outcome.data["rows"] == [{"a": 1}]
    else:
        assert is_missing(outcome, "ducklake")


async def test_a_lake_of_objects(at, bucket):
    lake = {"catalog": "m.ducklake", "data_path": f"s3://{bucket}/lake", "auth": "own"}
    texts = "create table t as select range as a from range(5000); select count(*) as n from t"
    outcome = await at.sql(texts, "ducklake", **lake)
    if has("ducklake") and has("httpfs"):
        assert outcome.data["rows"] == [{"n": 5000}]
    else:
        assert outcome.error["code"] == "missing_extension"


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"catalog": "nobody", "data_path": "d"}, "credential_not_found"),
        ({"catalog": "own", "data_path": "d"}, "credential_type"),
        ({"catalog": "m.ducklake", "data_path": "ftp://x"}, "invalid_config"),
        ({"catalog": "m.ducklake", "data_path": "../out"}, "outside_data_roots"),
        ({"catalog": "../m.ducklake", "data_path": "d"}, "outside_data_roots"),
        ({"catalog": "m.ducklake", "data_path": "s3://b/x"}, "auth_required"),
        ({"catalog": "m.ducklake", "data_path": "d", "snapshot_version": "x"}, "invalid_config"),
        ({"data_path": "d"}, "invalid_config"),
    ],
)
async def test_a_lake_that_cannot_be(at, config, code):
    at.secrets["own"] = {"type": "s3", "data": {"access_key_id": "a", "secret_access_key": SECRET}}
    assert (await at.sql("select 1", "ducklake", **config)).error["code"] == code
