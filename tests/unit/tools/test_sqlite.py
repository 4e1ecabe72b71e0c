"""SQL on files under the data roots."""

from __future__ import annotations

import asyncio
from io import BytesIO

import pyarrow.parquet as pq
import pytest

from noetl.blobs.memory import MemoryBlobs
from noetl.blobs.refs import key_of
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.sqlite import SqliteTool


def run(root, blobs=None, **config):
    async def one():
        ctx = ToolContext(
            execution_id="1", step="s", command_id="c", idempotency_key="k", blobs=blobs,
            deadline=asyncio.get_running_loop().time() + config.pop("within", 20),
        )  # fmt: skip
        return await run_tool(
            SqliteTool((root,)), {"kind": "sqlite", "path": "a.db", **config}, ctx
        )

    return asyncio.run(one())


def test_the_last_rows_are_on_top_and_every_statement_has_its_own(tmp_path):
    text = (
        "create table t (a integer, b blob); insert into t values (1, x'00ff') returning a;"
        "select * from t"
    )
    data = run(tmp_path, command=text).data
    assert data["rows"] == [{"a": 1, "b": "AP8="}]
    assert data["command_1"] == {
        "columns": ["a"], "rows": [{"a": 1}], "row_count": 1, "affected_rows": 1,
    }  # fmt: skip
    assert data["command_2"]["rows"] == data["rows"]


def test_an_empty_select_lists_its_columns(tmp_path):
    data = run(tmp_path, query="select 1 as a, 2 as b where 0", as_objects=False).data
    assert (data["columns"], data["rows"], data["row_count"]) == (["a", "b"], [], 0)


@pytest.mark.parametrize(
    ("text", "params"),
    [("select ? as v", ["'; drop table t"]), ("select :v as v", {"v": "'; drop table t"})],
)
def test_params_are_data(tmp_path, text, params):
    assert run(tmp_path, sql=text, params=params).data["rows"] == [{"v": "'; drop table t"}]


def test_params_need_a_single_statement(tmp_path):
    assert run(tmp_path, command="select 1; select 2", params=[1]).error["code"] == "invalid_config"


def test_a_failing_statement_rolls_everything_back(tmp_path):
    run(tmp_path, command="create table t (a integer primary key)")
    error = run(tmp_path, commands=["insert into t values (1)", "insert into t values (1)"]).error
    assert (error["kind"], error["details"]) == ("db_constraint", {"index": 1})
    assert run(tmp_path, command="select count(*) n from t").data["rows"] == [{"n": 0}]


@pytest.mark.parametrize("path", ["../x.db", "/etc/x.db", "sub/../../x.db"])
def test_a_file_outside_the_roots_is_refused(tmp_path, path):
    error = run(tmp_path / "root", path=path, command="select 1").error
    assert (error["kind"], error["code"]) == ("storage_access", "outside_data_roots")


def test_a_link_out_of_the_roots_is_refused(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a.db").symlink_to(tmp_path / "b.db")
    assert run(tmp_path / "root", command="select 1").error["code"] == "outside_data_roots"


def test_attaching_another_file_is_refused(tmp_path):
    error = run(tmp_path, command=f"attach '{tmp_path}/../x.db' as x").error
    assert error["kind"] == "storage_access"


def test_a_worker_without_roots_runs_no_file_database():
    async def one():
        ctx = ToolContext(execution_id="1", step="s", command_id="c", idempotency_key="k")
        return await run_tool(SqliteTool(()), {"kind": "sqlite", "path": "a", "sql": "1"}, ctx)

    assert asyncio.run(one()).error["code"] == "no_data_root"


def test_too_many_rows_are_refused(tmp_path):
    assert run(tmp_path, command="values (1), (2), (3)", max_rows=2).error["code"] == "row_limit"


def test_rows_that_are_too_large_are_refused(tmp_path):
    error = run(tmp_path, command="select hex(zeroblob(1000)) as a", max_bytes=1000).error
    assert (error["kind"], error["code"], error["details"]) == (
        "limit", "output_limit", {"index": 0},
    )  # fmt: skip


def test_a_runaway_statement_is_interrupted(tmp_path):
    text = "with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c"
    assert run(tmp_path, command=text, within=0.2).error["code"] == "tool_timeout"


def test_a_script_in_place_is_run(tmp_path):
    script = {"source": {"type": "inline", "code": "select 7 as n"}}
    assert run(tmp_path, script=script).data["rows"] == [{"n": 7}]


COUNT = "with recursive r(n) as (values (1) union all select n + 1 from r where n < 5000) {}"


def test_too_many_rows_go_to_parquet(tmp_path):
    blobs = MemoryBlobs()
    text = COUNT.format("select n, 'row ' || n as name, n / 2.0 as half, null as blank from r")
    outcome = run(tmp_path, blobs=blobs, command=text, max_rows=4000)

    data = outcome.data
    assert (data["rows"], data["row_count"], data["truncated"]) == ([], 5000, False)
    assert data["preview"][0] == {"n": 1, "name": "row 1", "half": 0.5, "blank": None}
    assert outcome.ref == data["ref"] == data["command_0"]["ref"]
    table = pq.read_table(BytesIO(asyncio.run(blobs.get(key_of(data["ref"])))))
    assert table.num_rows == 5000
    assert table.slice(4999).to_pylist() == [
        {"n": 5000, "name": "row 5000", "half": 2500.0, "blank": None}
    ]


def test_too_many_bytes_go_to_parquet(tmp_path):
    blobs = MemoryBlobs()
    data = run(
        tmp_path,
        blobs=blobs,
        command=COUNT.format("select n from r"),
        max_bytes=100,
        as_objects=False,
    ).data

    table = pq.read_table(BytesIO(asyncio.run(blobs.get(key_of(data["ref"])))))
    assert table.column("n").to_pylist() == list(range(1, 5001))
    assert data["preview"] == [[1], [2], [3]]


def test_a_column_that_changes_its_type_on_the_way_is_told(tmp_path):
    text = COUNT.format("select case when n < 4500 then n else 'x' end as v from r")
    error = run(tmp_path, blobs=MemoryBlobs(), command=text, max_rows=10).error

    assert (error["kind"], error["code"]) == ("schema", "not_serialisable")
    assert "column v" in error["message"]


def test_mixed_columns_are_json_in_the_file(tmp_path):
    blobs = MemoryBlobs()
    text = "select 1 as v union all select 'a' union all select null union all select 2.5"
    data = run(tmp_path, blobs=blobs, command=text, max_rows=2).data

    table = pq.read_table(BytesIO(asyncio.run(blobs.get(key_of(data["ref"])))))
    assert table.column("v").to_pylist() == ["1", '"a"', None, "2.5"]
    assert table.schema.field("v").metadata[b"noetl"] == b"json"


def test_no_column_hides_another(tmp_path):
    assert run(tmp_path, command="select 1 as a, 2 as a").data["rows"] == [{"a": 1, "a_1": 2}]
