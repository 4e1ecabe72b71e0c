"""The postgres tool with a real server: rows, params, failures."""

from __future__ import annotations

import pytest

from tests.servers.sql_stage import Stage

FOREVER = "select pg_sleep(60)"
RAISED = "do $$ begin raise exception using errcode = '{}'; end $$"


@pytest.fixture(scope="module")
def url(postgres_server):
    name = postgres_server.make(template="template1")
    yield postgres_server.url_of(name)
    postgres_server.drop(name)


@pytest.fixture
async def at(url):
    made = Stage(url)
    await made.emptied()
    yield made
    await made.tool.close()


# ---------------------------------------------------------------------------- rows


async def test_the_last_rows_are_on_top_and_every_statement_has_its_own(at):
    outcome = await at.sql(
        "create table t (a int, b text); insert into t values (1, 'x'), (2, 'y') returning a;"
        "select * from t order by a; update t set b = 'z'"
    )

    assert outcome.error is None
    assert outcome.pg == {"code": None, "sqlstate": "00000"}
    assert outcome.data == {
        "columns": ["a", "b"],
        "rows": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
        "row_count": 2,
        "affected_rows": 0,
        "command_0": {"columns": [], "rows": [], "row_count": 0, "affected_rows": 0},
        "command_1": {
            "columns": ["a"], "rows": [{"a": 1}, {"a": 2}], "row_count": 2, "affected_rows": 2,
        },
        "command_2": {
            "columns": ["a", "b"], "rows": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
            "row_count": 2, "affected_rows": 0,
        },
        "command_3": {"columns": [], "rows": [], "row_count": 0, "affected_rows": 2},
    }  # fmt: skip


async def test_an_empty_select_lists_its_columns(at):
    data = (await at.sql("select 1 as a, 2 as b where false")).data

    assert (data["columns"], data["rows"], data["row_count"]) == (["a", "b"], [], 0)


async def test_rows_may_be_lists_and_no_column_hides_another(at):
    data = (await at.sql("select 1 as a, 2 as a", as_objects=False)).data

    assert (data["columns"], data["rows"]) == (["a", "a_1"], [[1, 2]])


async def test_show_and_call_return_rows(at):
    assert await at.rows("show search_path") == [{"search_path": '"$user", public'}]
    made = "create procedure p(inout n int) language plpgsql as $$ begin n := n + 1; end; $$"
    assert await at.rows(f"{made}; call p(1)") == [{"n": 2}]


async def test_create_table_as_tells_how_many_rows(at):
    data = (await at.sql("create table t as select generate_series(1, 7) as n")).data

    assert (data["affected_rows"], data["rows"]) == (7, [])


async def test_values_have_a_form_in_json(at):
    text = """select 12345678901234567890.10::numeric as n, 'NaN'::numeric as nan,
        '2026-03-01 12:00:00.5+02'::timestamptz as at, '2026-03-01 12:00:00'::timestamp as plain,
        'infinity'::timestamptz as never, '-infinity'::date as ever, '2026-03-01'::date as day,
        '0044-03-15 BC'::date as ides, '\\x00ff'::bytea as raw, true as yes, 9007199254740993 as b,
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid as id, '{"a": [1, null]}'::jsonb as doc,
        '[1]'::json as list, array[1, null, 3] as ints, array[['a', 'b'], ['c', 'd']] as texts,
        array[1.5::numeric] as exact, array['2026-03-01 12:00:00+00'::timestamptz] as times,
        interval '1 day 2 hours' as span, int4range(1, 5) as part, 1.5::float8 as f, null as no,
        '10.0.0.1/8'::inet as net, 'x'::"char" as c, '12:30'::time as t"""
    (row,) = await at.rows(text)

    assert row == {
        "n": "12345678901234567890.10", "nan": "NaN", "at": "2026-03-01T10:00:00.5Z",
        "plain": "2026-03-01T12:00:00Z", "never": "infinity", "ever": "-infinity",
        "day": "2026-03-01", "ides": "0044-03-15 BC", "raw": "AP8=", "yes": True,
        "b": 9007199254740993, "id": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "doc": {"a": [1, None]}, "list": [1], "ints": [1, None, 3],
        "texts": [["a", "b"], ["c", "d"]], "exact": ["1.5"], "times": ["2026-03-01T12:00:00Z"],
        "span": "P1DT2H", "part": "[1,5)", "f": 1.5, "no": None, "net": "10.0.0.1/8",
        "c": "x", "t": "12:30:00",
    }  # fmt: skip


async def test_a_zone_of_the_author_is_kept(at):
    text = "set local timezone = 'Asia/Kolkata'; select '2026-03-01 00:00Z'::timestamptz as at"

    assert await at.rows(text) == [{"at": "2026-03-01T05:30:00+05:30"}]


async def test_types_of_the_author_are_texts(at):
    text = "create type mood as enum ('sad', 'ok'); select 'ok'::mood as m, row(1, 'a') as r"

    assert await at.rows(text) == [{"m": "ok", "r": "(1,a)"}]


# ---------------------------------------------------------------------------- params


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("select %s as v", ["'; drop table t"]),
        ("select $1 as v", ["'; drop table t"]),
        ("select %(v)s as v", {"v": "'; drop table t"}),
    ],
)
async def test_params_are_data(at, text, params):
    assert await at.rows(text, params=params) == [{"v": "'; drop table t"}]


async def test_only_code_has_placeholders(at):
    text = (
        "select '%s $1' as a, 'x' like 'x%%' as b, 7 %% 4 as c, %(n)s::int + %(n)s::int as d -- %s"
    )
    rows = await at.rows(text, params={"n": 2})

    assert rows == [{"a": "%s $1", "b": True, "c": 3, "d": 4}]


async def test_percent_signs_need_no_care_without_params(at):
    assert await at.rows("select 7 % 4 as c, 'a%' as b") == [{"c": 3, "b": "a%"}]


@pytest.mark.parametrize(
    ("value", "cast", "found"),
    [
        (None, "text", None), (True, "bool", True), (2**40, "int8", 2**40), (1.5, "float8", 1.5),
        ({"a": [1]}, "jsonb", {"a": [1]}), ([{"a": 1}], "jsonb", [{"a": 1}]),
        ([1, "a"], "jsonb", [1, "a"]), ([1, 2], "int[]", [1, 2]),
        (["a", None], "text[]", ["a", None]),
        ([[1], [2]], "int[]", [[1], [2]]), ([], "int[]", []), ("2026-01-01", "date", "2026-01-01"),
    ],
)  # fmt: skip
async def test_values_are_bound_by_the_driver(at, value, cast, found):
    assert await at.rows(f"select %s::{cast} as v", params=[value]) == [{"v": found}]


@pytest.mark.parametrize(
    ("text", "params", "said"),
    [
        ("select %s", [1, 2], "2 values for 1 placeholders"),
        ("select %(a)s", {"b": 1}, "there is no `a`"),
        ("select %(a)s", [1], "needs a map"),
        ("select %s", {"a": 1}, "needs a list"),
        ("select %s, $1", [1], "not both"),
        ("select 1; select %s", [1], "a single statement"),
        ("select %s", "text", "a list or a map"),
        ("select %s::text", ["a\0b"], "NUL"),
    ],
)
async def test_params_that_do_not_fit_are_told(at, text, params, said):
    error = (await at.sql(text, params=params)).error

    assert (error["kind"], error["code"]) == ("config", "invalid_config")
    assert said in error["message"]


# ---------------------------------------------------------------------------- failures


async def test_a_failing_statement_rolls_everything_back(at):
    await at.sql("create table t (a int primary key)")
    outcome = await at.sql(
        commands=["insert into t values (1)", "insert into t values (1)", "select 1"]
    )

    error = outcome.error
    assert (error["kind"], error["code"], error["retryable"]) == (
        "db_constraint",
        "PG_23505",
        False,
    )
    assert error["details"] == {
        "sqlstate": "23505", "index": 1, "detail": "Key (a)=(1) already exists.",
        "constraint": "t_pkey", "schema": "public", "table": "t",
    }  # fmt: skip
    assert outcome.pg == {"code": "PG_23505", "sqlstate": "23505"}
    assert await at.rows("select count(*) as n from t") == [{"n": 0}]


async def test_without_a_transaction_earlier_statements_stay(at):
    await at.sql("create table t (a int primary key)")
    error = (
        await at.sql(
            transaction=False, commands=["insert into t values (1)", "insert into t values (1)"]
        )
    ).error

    assert error["details"]["index"] == 1
    assert await at.rows("select count(*) as n from t") == [{"n": 1}]


async def test_the_author_may_control_transactions(at):
    await at.sql("create table t (a int)")
    text = "begin; insert into t values (1); rollback; begin; insert into t values (2); commit"

    assert (await at.sql(text)).error is None
    assert await at.rows("select a from t") == [{"a": 2}]
    assert at.lines == []


async def test_a_deferred_constraint_fails_the_commit(at):
    await at.sql("create table t (a int unique deferrable initially deferred)")
    error = (await at.sql("insert into t values (1), (1)")).error

    assert (error["kind"], error["code"]) == ("db_constraint", "PG_23505")


@pytest.mark.parametrize(
    ("text", "kind", "code", "position"),
    [
        ("select 1 +", "db_error", "PG_42601", 11),
        ("select nothing", "db_error", "PG_42703", 8),
        ("select 1 / 0", "db_error", "PG_22012", None),
        (RAISED.format("40001"), "db_deadlock", "PG_40001", None),
        (RAISED.format("55P03"), "db_timeout", "PG_55P03", None),
        (RAISED.format("08006"), "db_connection", "PG_08006", None),
    ],
)  # fmt: skip
async def test_the_sqlstate_tells_the_kind(at, text, kind, code, position):
    error = (await at.sql(text)).error

    assert (error["kind"], error["code"]) == (kind, code)
    assert error["retryable"] is (kind != "db_error")
    assert error["details"].get("position") == position


async def test_a_position_is_that_of_the_authors_text(at):
    text = "select %(name)s::text, '%%', nothing"
    error = (await at.sql(text, params={"name": "x"})).error

    assert error["details"]["position"] == text.index("nothing") + 1


async def test_what_cannot_run_in_a_transaction_names_the_remedy(at):
    await at.sql("create table t (a int)")
    error = (await at.sql("vacuum t")).error

    assert error["code"] == "PG_25001"
    assert "transaction: false" in error["message"]
    assert (await at.sql("vacuum t", transaction=False)).error is None


async def test_a_copy_in_the_text_is_refused_and_the_next_task_works(at):
    error = (await at.sql("copy (select 1) to stdout")).error

    assert (error["kind"], error["code"]) == ("config", "invalid_config")
    assert await at.rows("select 1 as a") == [{"a": 1}]


async def test_read_only_refuses_writes(at):
    await at.sql("create table t (a int)")
    for transaction in (True, False):
        error = (
            await at.sql("insert into t values (1)", read_only=True, transaction=transaction)
        ).error
        assert error["code"] == "PG_25006"
    assert (await at.sql("insert into t values (1)")).error is None


async def test_a_statement_that_takes_too_long_is_stopped(at):
    for transaction in (True, False):
        error = (await at.sql(FOREVER, statement_timeout=0.05, transaction=transaction)).error
        assert (error["kind"], error["code"], error["retryable"]) == (
            "db_timeout", "PG_57014", True,
        )  # fmt: skip
    assert await at.rows("show statement_timeout") == [{"statement_timeout": "0"}]


async def test_schema_is_the_search_path_of_the_task_alone(at):
    await at.sql('create schema "Mine"; create table "Mine".t as select 7 as a')
    for transaction in (True, False):
        assert await at.rows("select a from t", schema="Mine, public", transaction=transaction) == [
            {"a": 7}
        ]
    assert (await at.sql("select a from t")).error["code"] == "PG_42P01"


async def test_notices_go_to_the_log(at):
    await at.sql("do $$ begin raise notice 'here'; raise warning 'beware'; end $$")

    assert at.lines == [("log", "info", "NOTICE: here"), ("log", "warning", "WARNING: beware")]
