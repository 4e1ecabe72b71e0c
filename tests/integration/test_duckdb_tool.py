"""The duckdb tool with real children."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from noetl.blobs.memory import MemoryBlobs
from noetl.blobs.refs import key_of
from noetl.telemetry.redact import Redactor
from noetl.tools.base import ToolContext, ToolError, run_tool
from noetl.tools.duckdb.children import Child
from noetl.tools.duckdb.tool import DuckdbTool

MOST = "170141183460469231731687303715884105727"
ESCAPED = Path("/tmp/noetl-escape.csv")  # noqa: S108 - where no statement may write
FOREVER = "select count(*) from range(1000000000000) a, range(1000000000) b where a.range % 7 = 3"


class Stage:
    def __init__(self, root):
        self.root = root
        self.tool = DuckdbTool((root,))

    async def sql(self, command=None, *, within=20, blobs=None, secrets=(), **config):
        ctx = ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key="k", blobs=blobs,
            redactor=Redactor(secrets),
            deadline=asyncio.get_running_loop().time() + within,
        )  # fmt: skip
        text = {} if command is None else {"command": command}
        return await run_tool(self.tool, {"kind": "duckdb", **text, **config}, ctx)


@asynccontextmanager
async def stage(root):
    at = Stage(root)
    try:
        yield at
    finally:
        await at.tool.close()


@pytest.fixture
async def at(tmp_path):
    async with stage(tmp_path) as made:
        yield made


# ---------------------------------------------------------------------------- rows


async def test_the_last_rows_are_on_top_and_every_statement_has_its_own(at):
    text = (
        "create table t (a integer, b varchar); insert into t values (1, 'x'), (2, ';y');"
        "insert into t values (3, 'z') returning a; select * from t order by a; drop table t"
    )
    data = (await at.sql(text)).data
    assert data["rows"] == [{"a": 1, "b": "x"}, {"a": 2, "b": ";y"}, {"a": 3, "b": "z"}]
    assert data["command_1"] == {"columns": [], "rows": [], "row_count": 0, "affected_rows": 2}
    assert data["command_2"] == {
        "columns": ["a"], "rows": [{"a": 3}], "row_count": 1, "affected_rows": 0,
    }  # fmt: skip
    assert data["command_3"] == {
        "columns": ["a", "b"], "rows": data["rows"], "row_count": 3, "affected_rows": 0,
    }  # fmt: skip
    assert sorted(data) == sorted(
        ["columns", "rows", "row_count", "affected_rows", *(f"command_{n}" for n in range(5))]
    )


async def test_an_empty_select_lists_its_columns(at):
    data = (await at.sql("select 1 as a, 2 as b where false", as_objects=False)).data
    assert (data["columns"], data["rows"], data["row_count"]) == (["a", "b"], [], 0)


async def test_rows_may_be_lists(at):
    data = (await at.sql("select 1 as a, 'x' as b", as_objects=False)).data
    assert data["rows"] == [[1, "x"]]


async def test_columns_of_one_name_do_not_hide_each_other(at):
    data = (await at.sql("select 1 as a, 2 as a, 3 as a_1")).data
    assert (data["columns"], data["rows"]) == (
        ["a", "a_1", "a_1_1"], [{"a": 1, "a_1": 2, "a_1_1": 3}],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (f"{MOST}::hugeint", MOST),
        ("1::hugeint", "1"),
        ("sum(7)", "7"),
        ("1.50::decimal(10, 2)", "1.50"),
        ("0.0000001::decimal(18, 7)", "0.0000001"),
        ("9007199254740993::bigint", 9007199254740993),
        ("1.5::double", 1.5),
        ("'nan'::double", None),
        ("'inf'::float", None),
        ("timestamp '2024-01-02 03:04:05.5'", "2024-01-02T03:04:05.500000Z"),
        ("timestamptz '2024-01-02 03:04:05+02'", "2024-01-02T01:04:05Z"),
        ("timestamp_ns '2024-01-02 03:04:05.123456789'", "2024-01-02T03:04:05.123456789Z"),
        ("date '2024-01-02'", "2024-01-02"),
        ("time '01:02:03'", "01:02:03"),
        ("interval '1 month 2 days 3.5 seconds'", "P1M2DT3.5S"),
        ("'ab'::blob", "YWI="),
        ("'00000000-0000-0000-0000-000000000001'::uuid", "00000000-0000-0000-0000-000000000001"),
        ("[1.5::decimal(3, 1), null]", ["1.5", None]),
        ("{'a': 1::hugeint, 'b': [true]}", {"a": "1", "b": [True]}),
        ("map {'k': 1}", {"k": 1}),
        ("map {1: date '2024-01-01'}", {"1": "2024-01-01"}),
        ("'x'::enum('x', 'y')", "x"),
        ("null", None),
        ("true", True),
        ("'{\"a\": 1}'::json", '{"a": 1}'),
    ],
)  # fmt: skip
async def test_a_value_has_its_form_in_json(at, expression, value):
    assert (await at.sql(f"select {expression} as v")).data["rows"] == [{"v": value}]


@pytest.mark.parametrize("expression", ["'101'::bit", "timetz '01:02:03+02'"])
async def test_a_value_without_a_form_is_refused_by_name(at, expression):
    error = (await at.sql(f"select {expression} as v")).error
    assert (error["kind"], error["code"], error["details"]) == (
        "schema", "not_serialisable", {"index": 0},
    )  # fmt: skip


async def test_a_hundred_and_fifty_columns_work(at):
    names = [f"c{number}" for number in range(150)]
    text = "select " + ", ".join(f"{number} as c{number}" for number in range(150))
    data = (await at.sql(text)).data
    assert (data["columns"], data["rows"][0]["c149"]) == (names, 149)


@pytest.mark.parametrize(
    ("text", "params"),
    [("select ? as v", ["'; drop table t"]), ("select $v as v", {"v": "'; drop table t"})],
)
async def test_params_are_data(at, text, params):
    assert (await at.sql(text, params=params)).data["rows"] == [{"v": "'; drop table t"}]


async def test_params_of_a_write_are_data(at):
    await at.sql("create table t (a varchar)", database="p.db")
    await at.sql("insert into t values ($a)", params={"a": "it's"}, database="p.db")
    assert (await at.sql("from t", database="p.db")).data["rows"] == [{"a": "it's"}]


@pytest.mark.parametrize("config", [{"params": [1], "command": "select 1; select 2"},
                                    {"params": "x", "command": "select 1"}])  # fmt: skip
async def test_params_need_a_single_statement_and_a_shape(at, config):
    assert (await at.sql(**config)).error["code"] == "invalid_config"


async def test_a_script_and_a_list_are_run_in_order(at):
    script = {"source": {"type": "inline", "code": "select 7 as n"}}
    data = (await at.sql(commands=["create table t (a int)", "from t"], script=script)).data
    assert (data["rows"], len([name for name in data if name.startswith("command_")])) == (
        [{"n": 7}], 3,
    )  # fmt: skip


async def test_each_task_has_a_database_of_its_own(at):
    await at.sql("create table t (a int)")
    assert (await at.sql("from t")).error["code"] == "DUCKDB_CATALOG"


# ---------------------------------------------------------------------------- failures


async def test_a_failing_statement_rolls_everything_back(at):
    await at.sql("create table t (a integer primary key)", database="a.db")
    texts = ["insert into t values (1)", "insert into t values (1)"]
    error = (await at.sql(commands=texts, database="a.db")).error
    assert (error["kind"], error["code"], error["details"]) == (
        "db_constraint", "DUCKDB_CONSTRAINT", {"index": 1},
    )  # fmt: skip
    assert (await at.sql("from t", database="a.db")).data["row_count"] == 0


async def test_the_author_may_end_transactions_himself(at):
    texts = ["create table t (a int)", "begin", "insert into t values (1)", "rollback", "from t"]
    assert (await at.sql(commands=texts)).data["row_count"] == 0


@pytest.mark.parametrize(
    ("text", "code", "details"),
    [
        ("selec 1", "DUCKDB_PARSER", {"index": 0}),
        ("select x", "DUCKDB_BINDER", {"index": 0}),
        ("select 1; select 'a'::int", "DUCKDB_CONVERSION", {"index": 1}),
    ],
)
async def test_a_bad_statement_is_named(at, text, code, details):
    error = (await at.sql(text)).error
    assert (error["kind"], error["code"], error["details"], error["retryable"]) == (
        "db_error", code, details, False,
    )  # fmt: skip


async def test_a_statement_within_its_memory(at):
    text = "select list(range) from range(100000000)"
    error = (await at.sql(text, memory_limit="50MB")).error
    assert (error["kind"], error["code"]) == ("limit", "memory_limit")


# ---------------------------------------------------------------------------- limits


async def test_too_many_rows_are_refused_without_blobs(at):
    assert (await at.sql("from range(3)", max_rows=2)).error["code"] == "row_limit"
    assert (await at.sql("from range(9999)", max_bytes=1000)).error["code"] == "output_limit"


SECRET = "duck-Canary-6621"  # noqa: S105 - looked for where it must not be
ROWS = """select range::integer as n, case when range = 50 then 'it is ' || $it end as said,
    [{'in': 'pin', 'at': 7}, {'in': case when range = 60 then $it end, 'at': 8}] as deep,
    map {'k': if(range = 70, 'p1n', 'pin')} as named from range(100)"""


@pytest.mark.parametrize("more", [{"max_rows": 10}, {"export": {"to": "blob"}}])
async def test_rows_in_a_file_hold_no_secret(at, more):
    blobs = MemoryBlobs()
    more |= {"params": {"it": SECRET}}
    outcome = await at.sql(ROWS, blobs=blobs, secrets=(SECRET, "p1n"), **more)
    found = pq.read_table(BytesIO(await blobs.get(key_of(outcome.ref)))).to_pylist()
    assert found == [
        {
            "n": n,
            "said": "it is ***" if n == 50 else None,
            "deep": [{"in": "pin", "at": 7}, {"in": "***" if n == 60 else None, "at": 8}],
            "named": [("k", "***" if n == 70 else "pin")],
        }
        for n in range(100)
    ]


async def test_text_that_is_exported_holds_no_secret(at):
    blobs = MemoryBlobs()
    outcome = await at.sql(
        f"select '{SECRET}' as said", blobs=blobs, secrets=(SECRET,),
        export={"to": "blob", "format": "csv"},
    )  # fmt: skip
    assert await blobs.get(key_of(outcome.ref)) == b"said\n***\n"


@pytest.mark.parametrize("limit", [{"max_rows": 10}, {"max_bytes": 1000}])
async def test_a_large_result_goes_to_the_blobs_as_parquet(at, limit):
    blobs = MemoryBlobs()
    outcome = await at.sql("select range as n from range(10000)", blobs=blobs, **limit)
    data = outcome.data
    assert (data["rows"], data["row_count"], data["truncated"], data["columns"]) == (
        [], 10_000, False, ["n"],
    )  # fmt: skip
    assert (data["preview"], data["ref"]) == ([{"n": 0}, {"n": 1}, {"n": 2}], outcome.ref)
    assert data["command_0"]["ref"] == outcome.ref
    assert "file" not in data
    table = pq.read_table(BytesIO(await blobs.get(key_of(outcome.ref))))
    assert table.column("n").to_pylist() == list(range(10_000))


async def test_two_large_results_have_a_reference_each(at):
    blobs = MemoryBlobs()
    outcome = await at.sql("from range(100); from range(200)", blobs=blobs, max_rows=10)
    assert outcome.data["command_0"]["ref"] != outcome.data["command_1"]["ref"] == outcome.ref


# ---------------------------------------------------------------------------- files


@pytest.mark.parametrize("name", ["../x.db", "/etc/x.db", "sub/../../x.db"])
async def test_a_database_outside_the_roots_is_refused(tmp_path, name):
    async with stage(tmp_path / "root") as at:
        error = (await at.sql("select 1", database=name)).error
    assert (error["kind"], error["code"]) == ("storage_access", "outside_data_roots")


@pytest.mark.parametrize(
    "text",
    [
        "select * from read_text('/etc/passwd')",
        "select * from read_csv('/etc/passwd')",
        "select * from '/etc/passwd.csv'",
        "select * from read_blob('/proc/self/environ')",
        "select * from glob('/etc/*')",
        "select * from read_text('file:///etc/passwd')",
        "select * from read_text('{root}/../../../../../../etc/passwd')",
        "select * from read_text('{root}/link')",
        "select * from read_csv('http://127.0.0.1/x.csv')",
        "attach '/tmp/other.db' as other",
        "copy (select 1) to '/tmp/noetl-escape.csv'",
        "export database '/tmp/noetl-escape'",
        "import database '/tmp'",
        "install httpfs",
        "install x from 'http://127.0.0.1:1'",
        "force install httpfs",
        "update extensions",
        "prepare p as install httpfs",
        "load httpfs",
        "load '/tmp/evil.duckdb_extension'",
        "set enable_external_access = true",
        "set lock_configuration = false",
        "set allowed_directories = ['/']",
        "set temp_directory = '/etc'",
        "pragma enable_profiling",
        "call enable_logging(storage='file', storage_path='/tmp/evil-logs')",
        "from  Enable_Logging(storage := 'file', storage_path := '/tmp/evil-logs')",
        "reset allowed_directories",
        "create persistent secret s (type s3, key_id 'a', secret 'b')",
        "select * from jobs",
    ],
)
async def test_sql_reaches_nothing_outside_the_roots(at, text):
    (at.root / "link").symlink_to("/etc/passwd")
    outcome = await at.sql(text.format(root=at.root))
    assert outcome.status == "error"
    assert outcome.error["kind"] in {"storage_access", "db_error"}
    assert not is_there(ESCAPED)


async def test_sql_reads_and_writes_inside_the_roots(at):
    (at.root / "in.csv").write_text("a,b\n1,2\n")
    text = "copy (select * from '{0}/in.csv') to '{0}/out.parquet' (format parquet)"
    text = text.format(at.root)
    assert (await at.sql(text)).data["affected_rows"] == 1
    assert (await at.sql(f"from '{at.root}/out.parquet'")).data["rows"] == [{"a": 1, "b": 2}]


async def test_a_worker_without_roots_runs_in_memory_only(tmp_path):
    at = Stage(tmp_path)
    at.tool = DuckdbTool(())
    assert (await at.sql("select 1 as a")).data["rows"] == [{"a": 1}]
    assert (await at.sql("select 1", database="a.db")).error["code"] == "no_data_root"
    await at.tool.close()


@pytest.mark.parametrize(
    "attach",
    [["other.db"], [{"path": "other.db", "as": "other"}], {"other": "other.db"},
     {"other": {"path": "file://other.db", "read_only": True}}],
)  # fmt: skip
async def test_other_files_under_the_roots_can_be_attached(at, attach):
    await at.sql("create table t as select 5 as a", database="other.db")
    assert (await at.sql("from other.t", attach=attach)).data["rows"] == [{"a": 5}]


@pytest.mark.parametrize(
    ("attach", "code"),
    [(["/etc/x.db"], "outside_data_roots"), (["postgres://x"], "invalid_config"),
     ([{"as": "x"}], "invalid_config")],
)  # fmt: skip
async def test_nothing_else_can_be_attached(at, attach, code):
    assert (await at.sql("select 1", attach=attach)).error["code"] == code


@pytest.mark.parametrize(
    ("config", "code"),
    [
        ({"extensions": ["httpfs"]}, "extension_denied"),
        ({"extensions": ["spatial"]}, "missing_extension"),
        ({"auth": "somebody"}, "credential_not_found"),
        ({"export": {"format": "odd"}}, "invalid_config"),
        ({"export": {"to": "s3://bucket/x"}}, "auth_required"),
        ({"export": {"to": "blob"}}, "no_blobs"),
        ({"export": {"to": "../x.csv", "format": "csv"}}, "outside_data_roots"),
    ],
)
async def test_what_is_not_granted_is_refused(at, config, code):
    assert (await at.sql("select 1", **config)).error["code"] == code


async def test_an_extension_that_comes_along_is_loaded(at):
    assert (await at.sql("select 1 as a", extensions=["json"])).data["rows"] == [{"a": 1}]


@pytest.mark.parametrize(
    ("form", "content"), [("csv", "n\n0\n1\n"), ("json", '{"n":0}\n{"n":1}\n')]
)
async def test_a_query_is_exported_to_a_file(at, form, content):
    to = f"deep/out.{form}"
    text = "create table t as select range as n from range(2); select * from t where n < 9;"
    data = (await at.sql(text, export={"format": form, "to": to})).data
    path = at.root / to
    assert path.read_text() == content
    assert data["export"] == {"format": form, "to": path.as_uri(), "bytes": len(content)}
    assert (data["row_count"], data["rows"]) == (2, [])


async def test_a_query_is_exported_to_the_blobs(at):
    blobs = MemoryBlobs()
    outcome = await at.sql("select $n as n", params={"n": 4}, export={"format": "parquet"},
                           blobs=blobs)  # fmt: skip
    table = pq.read_table(BytesIO(await blobs.get(key_of(outcome.ref))))
    assert (table.to_pylist(), outcome.data["export"]["ref"]) == ([{"n": 4}], outcome.ref)


async def test_only_a_query_is_exported(at):
    error = (await at.sql("create table t (a int)", export={"format": "csv", "to": "a.csv"})).error
    assert error["code"] == "invalid_config"


async def test_one_writer_at_a_time_and_who_waits_too_long_is_told(at):
    await at.sql("create table t (a int)", database="w.db")
    path = (at.root / "w.db").resolve()
    lock = at.tool.engine.writers.setdefault(path, asyncio.Lock())
    async with lock:
        error = (await at.sql("insert into t values (1)", database="w.db", within=0.3)).error
    assert (error["kind"], error["code"], error["retryable"]) == (
        "db_timeout", "database_locked", True,
    )  # fmt: skip
    writes = [at.sql("insert into t values (?)", params=[n], database="w.db") for n in range(4)]
    assert [outcome.status for outcome in await asyncio.gather(*writes)] == ["ok"] * 4
    assert (await at.sql("select count(*) as n from t", database="w.db")).data["rows"] == [{"n": 4}]


async def test_a_file_that_another_process_holds_is_busy(at):
    with duckdb.connect(str(at.root / "held.db")):
        error = (await at.sql("select 1", database="held.db")).error
    assert (error["kind"], error["code"]) == ("db_timeout", "database_locked")


# ---------------------------------------------------------------------------- children


def children():
    """The children of this process that run the tool's program."""
    below = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in below if b"duckdb/child.py" in about(pid, "cmdline")]


def about(pid, what):
    return Path(f"/proc/{pid}/{what}").read_bytes()


def is_there(path):
    return path.exists()


async def taken(at):
    """Wait until the idle child has a job."""
    async with asyncio.timeout(10):
        while at.tool.engine.children._idle:  # noqa: ASYNC110, SLF001 - the tool tells nobody
            await asyncio.sleep(0)


async def test_a_runaway_statement_ends_with_its_child(at):
    error = (await at.sql(FOREVER, within=0.7)).error
    assert (error["kind"], error["code"]) == ("timeout", "tool_timeout")
    assert children() == []
    assert (await at.sql("select 1 as a")).data["rows"] == [{"a": 1}]


async def test_cancelling_the_task_ends_the_child(at):
    await at.sql("select 1")
    task = asyncio.ensure_future(at.sql(FOREVER))
    await taken(at)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() == []


async def test_a_warm_child_is_used_again(at):
    await at.sql("select 1")
    first = children()
    await at.sql("select x")
    await at.sql("select 2")
    assert (children(), len(first)) == (first, 1)


async def test_a_child_that_is_killed_is_a_failure_and_the_next_task_works(at):
    await at.sql("select 1")
    task = asyncio.ensure_future(at.sql(FOREVER))
    await taken(at)
    os.kill(children()[0], signal.SIGKILL)
    error = (await task).error
    assert (error["kind"], error["code"]) == ("process", "exit_-9")
    assert (await at.sql("select 1 as a")).data["rows"] == [{"a": 1}]


async def test_an_idle_child_that_died_is_not_given_work(at):
    await at.sql("select 1")
    child = at.tool.engine.children._idle[0]  # noqa: SLF001 - the one that waits
    os.kill(children()[0], signal.SIGKILL)
    await child._process.wait()  # noqa: SLF001 - until it is gone
    assert (await at.sql("select 1 as a")).data["rows"] == [{"a": 1}]


MISSING = """
import sys
said = b'{"op": "missing", "message": "no module"}'
sys.stdout.buffer.write(len(said).to_bytes(8, "big") + said)
"""


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (MISSING, "missing_extra"),
        ("raise SystemExit(3)", "exit_3"),
        ("import sys\nsys.stdout.buffer.write(b'\\xff' * 8)", "output_limit"),
    ],
)  # fmt: skip
async def test_a_child_that_cannot_start_says_why(tmp_path, program, code):
    path = tmp_path / "program.py"
    path.write_text(program)
    with pytest.raises(ToolError) as caught:
        await Child.start(path)
    assert caught.value.code == code


async def test_a_worn_child_is_not_kept(at):
    await at.sql("select 1")
    at.tool.engine.children._idle[0].jobs = 10_000  # noqa: SLF001 - as after many tasks
    await at.sql("select 1")
    assert children() == []


async def test_a_child_sees_nothing_of_our_environment_and_leaves_nothing_behind():
    child = await Child.start()
    [pid] = children()
    names = {line.split(b"=")[0] for line in about(pid, "environ").split(b"\0")}
    scratch = child.scratch
    await child.end()
    assert names - {b""} == {b"PATH", b"LANG", b"TZ", b"HOME"}
    assert not is_there(scratch)
