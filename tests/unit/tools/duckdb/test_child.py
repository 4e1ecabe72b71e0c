"""The program of the child, run in place: values, limits, refusals."""

from __future__ import annotations

import duckdb
import msgspec
import pyarrow.parquet as pq
import pytest

from noetl.tools.duckdb.child import Failure, run_job

pytestmark = pytest.mark.filterwarnings("ignore:Arrow output")  # as the child itself does


def job(folder, *texts, **more):
    return {
        "database": ":memory:", "texts": list(texts), "params": None, "attach": [],
        "extensions": [], "roots": [str(folder)], "scratch": str(folder / "scratch"),
        "memory_limit": "200MB", "threads": 1, "as_objects": True, "max_rows": 100,
        "max_bytes": 10_000, "spill": None, "export": None,
    } | more  # fmt: skip


def run(folder, *texts, **more):
    data = run_job(duckdb, job(folder, *texts, **more))
    return msgspec.json.decode(msgspec.json.encode(data))


def refused(folder, *texts, **more):
    with pytest.raises(Failure) as caught:
        run(folder, *texts, **more)
    kind, code, _, details = caught.value.args
    return kind, code, details


def test_values_of_every_kind_have_a_form(tmp_path):
    text = """
        select 1::hugeint as h, 1.50::decimal(9, 2) as d, timestamp '2024-01-02 03:04:05' as t,
               timestamptz '2024-01-02 03:04:05+02' as z, date '2024-01-02' as da,
               time '01:02:03' as ti, interval '-1 seconds' as i, 'ab'::blob as b, 'x' as s,
               [1, 2] as l, {'a': 'nan'::double} as st, map {'k': 2} as m, 1.5 ::double as f,
               timestamp_ns '2024-01-02 03:04:05' as n, null as nu, map {} as e
    """
    assert run(tmp_path, text)["rows"] == [{
        "h": "1", "d": "1.50", "t": "2024-01-02T03:04:05Z", "z": "2024-01-02T01:04:05Z",
        "da": "2024-01-02", "ti": "01:02:03", "i": "P0M0DT-1S", "b": "YWI=", "s": "x",
        "l": [1, 2], "st": {"a": None}, "m": {"k": 2}, "f": 1.5,
        "n": "2024-01-02T03:04:05.000000000Z", "nu": None, "e": [],
    }]  # fmt: skip


def test_statements_are_counted_and_named(tmp_path):
    data = run(
        tmp_path, "create table t (a int); insert into t values (1), (2)", "delete from t",
        "select 1 as a, 2 as a", as_objects=False,
    )  # fmt: skip
    assert [data[f"command_{n}"]["affected_rows"] for n in range(4)] == [0, 2, 2, 0]
    assert (data["columns"], data["rows"]) == (["a", "a_1"], [[1, 2]])


def test_nothing_to_run_gives_nothing(tmp_path):
    assert run(tmp_path, "-- only a comment") == {
        "columns": [], "rows": [], "row_count": 0, "affected_rows": 0,
    }  # fmt: skip


def test_rows_over_the_limit_are_refused_or_written_to_a_file(tmp_path):
    assert refused(tmp_path, "from range(200)") == ("limit", "row_limit", {"index": 0})
    assert refused(tmp_path, "from range(90)", max_bytes=50)[1] == "output_limit"
    data = run(tmp_path, "from range(200)", spill=str(tmp_path))
    assert (data["row_count"], data["truncated"]) == (200, False)
    assert pq.read_table(data["file"]).num_rows == 200


def test_all_statements_share_what_they_may_return(tmp_path):
    assert refused(tmp_path, "from range(40); from range(40)", max_bytes=700) == (
        "limit", "output_limit", {"index": 1},
    )  # fmt: skip


def test_what_parquet_cannot_hold_is_refused(tmp_path):
    text = "select interval '1 month' as i from range(200)"
    assert refused(tmp_path, text, spill=str(tmp_path))[1] == "not_serialisable"


def test_a_query_is_written_to_a_file(tmp_path):
    path = tmp_path / "out.csv"
    data = run(tmp_path, "select ? as a;", params=[5], export={"format": "csv", "path": str(path)})
    assert (data["row_count"], path.read_text()) == (1, "a\n5\n")


@pytest.mark.parametrize(
    ("text", "more", "kind", "code"),
    [
        ("selec", {}, "db_error", "DUCKDB_PARSER"),
        ("from nowhere", {}, "db_error", "DUCKDB_CATALOG"),
        ("select '1'::bit", {}, "schema", "not_serialisable"),
        ("install httpfs", {}, "storage_access", "statement_denied"),
        ("update extensions", {}, "storage_access", "statement_denied"),
        ("from read_text('/etc/passwd')", {}, "storage_access", "outside_data_roots"),
        ("select 1; select 2", {"params": [1]}, "config", "invalid_config"),
        ("select 1", {"extensions": ["spatial"]}, "config", "missing_extension"),
        ("select 1", {"database": "/nonexistent/x.db"}, "db_error", "DUCKDB_IO"),
        ("create table t (a int)", {"export": {"format": "csv", "path": "x"}}, "config",
         "invalid_config"),
        ("create table t (a int check (a > 1)); insert into t values (0)", {}, "db_constraint",
         "DUCKDB_CONSTRAINT"),
        ("select list(range) from range(100000000)", {"memory_limit": "20MB"}, "limit",
         "memory_limit"),
    ],
)  # fmt: skip
def test_a_refusal_has_a_kind_and_a_code(tmp_path, text, more, kind, code):
    assert refused(tmp_path, text, **more)[:2] == (kind, code)


def test_a_file_is_attached_under_its_name(tmp_path):
    with duckdb.connect(str(tmp_path / "o.db")) as other:
        other.execute("create table t as select 4 as a")
    attach = [{"path": str(tmp_path / "o.db"), "name": 'o"x', "read_only": True}]
    assert run(tmp_path, 'from "o""x".t', attach=attach)["rows"] == [{"a": 4}]
    assert refused(tmp_path, 'create table "o""x".u (a int)', attach=attach)[0] == "db_error"
