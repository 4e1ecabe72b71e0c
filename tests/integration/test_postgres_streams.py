"""The postgres tool and what is too large for one piece: COPY, and rows by reference."""

from __future__ import annotations

import asyncio
import base64
import json
from io import BytesIO

import pyarrow.parquet as pq
import pytest

from noetl.blobs.refs import key_of, ref_of
from noetl.tools.postgres.copy import INLINE_BYTES
from tests.servers.sql_stage import Stage

LINES = b"1,Ada\n2,Bo\n"
TABLE = "create table letter (id int primary key, who text, doc jsonb)"


@pytest.fixture(scope="module")
def url(postgres_server):
    name = postgres_server.make(template="template1")
    yield postgres_server.url_of(name)
    postgres_server.drop(name)


@pytest.fixture
async def at(url):
    made = Stage(url)
    await made.emptied()
    await made.sql(TABLE)
    yield made
    await made.tool.close()


async def letters(at):
    return await at.rows("select id, who from letter order by id", as_objects=False)


# ---------------------------------------------------------------------------- in


async def test_a_text_is_copied_in(at):
    copy = {"table": "letter", "columns": ["id", "who"], "data": LINES.decode()}
    data = (await at.sql(copy=copy)).data

    assert data["affected_rows"] == 2
    assert data["copy"] == {"direction": "from", "table": "letter", "rows": 2}
    assert data["command_0"]["affected_rows"] == 2
    assert await letters(at) == [[1, "Ada"], [2, "Bo"]]


async def test_a_reference_is_copied_in(at):
    ref = ref_of("7", "earlier", "a" * 32)
    await at.blobs.put(key_of(ref), b"id,who\n" + LINES, media_type="text/csv")
    copy = {"table": "public.letter", "columns": ["id", "who"], "ref": ref, "header": True}

    assert (await at.sql(copy=copy)).data["affected_rows"] == 2
    assert await letters(at) == [[1, "Ada"], [2, "Bo"]]


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        ([{"id": 1, "who": "A\tda\n", "doc": {"a": [1]}}, {"id": 2, "who": None}], []),
        ([[1, "A\tda\n", {"a": [1]}], [2, None, None]], []),
        ([[{"a": [1]}, "A\tda\n", 1], [None, None, 2]], ["doc", "who", "id"]),
    ],
)
async def test_rows_are_copied_in(at, rows, columns):
    outcome = await at.sql(copy={"table": "letter", "columns": columns, "data": rows})

    assert outcome.error is None
    assert await at.rows("select * from letter order by id") == [
        {"id": 1, "who": "A\tda\n", "doc": {"a": [1]}}, {"id": 2, "who": None, "doc": None},
    ]  # fmt: skip


async def test_no_rows_are_copied_in(at):
    assert (await at.sql(copy={"table": "letter", "data": []})).data["affected_rows"] == 0


async def test_a_bad_line_keeps_everything_out(at):
    copy = {"table": "letter", "columns": ["id", "who"], "data": "1,Ada\nx,Bo\n"}
    error = (await at.sql("insert into letter values (9, 'Eve')", copy=copy)).error

    assert (error["kind"], error["code"]) == ("db_error", "PG_22P02")
    assert "line 2" in error["details"]["context"]
    assert error["details"]["index"] == 1
    assert await letters(at) == []


async def test_statements_and_the_copy_are_one_transaction(at):
    await at.sql("insert into letter values (9, 'Eve')")
    copy = {"table": "letter", "columns": ["id", "who"], "data": LINES.decode()}

    assert (await at.sql("truncate letter", copy=copy)).error is None
    assert await letters(at) == [[1, "Ada"], [2, "Bo"]]


@pytest.mark.parametrize(
    ("copy", "kind", "said"),
    [
        ({"table": "letter"}, "config", "`ref`, or `data`"),
        ({"table": "letter", "data": [7]}, "config", "/copy/data/0"),
        ({"table": "letter", "data": [{"id": 1}, {"no": 1}]}, "config", "`no` is no column"),
        ({"table": "letter", "format": "binary", "data": "%"}, "config", "base64"),
        (
            {"table": "letter", "ref": "noetl://execution/7/result/s/" + "b" * 32},
            "not_found",
            "gone",
        ),
        ({"table": "no'where; drop table letter", "data": "1"}, "db_error", "does not exist"),
    ],
)
async def test_a_copy_that_cannot_be_done_says_why(at, copy, kind, said):
    error = (await at.sql(copy=copy)).error

    assert error["kind"] == kind
    assert said in error["message"]
    assert await letters(at) == []


# ---------------------------------------------------------------------------- out


async def test_a_small_table_is_copied_out_in_place(at):
    await at.sql("insert into letter values (1, 'A,da'), (2, null)")
    copy = {"direction": "to", "table": "letter", "columns": ["id", "who"], "header": True}
    data = (await at.sql(copy=copy)).data

    assert data["copy"] == {
        "direction": "to", "table": "letter", "rows": 2, "bytes": 19, "content_type": "text/csv",
        "data": 'id,who\n1,"A,da"\n2,\n',
    }  # fmt: skip
    assert (data["row_count"], data["affected_rows"]) == (2, 0)


@pytest.mark.parametrize("form", ["csv", "text", "binary"])
async def test_a_large_table_goes_out_and_in_by_reference(at, form):
    await at.sql("insert into letter select n, repeat('x', 100) from generate_series(1, 2000) n")
    out = await at.sql(copy={"direction": "to", "table": "letter", "format": form})

    told = out.data["copy"]
    assert (told["rows"], told["bytes"] > INLINE_BYTES, out.ref) == (2000, True, told["ref"])
    back = {"table": "letter", "format": form, "ref": told["ref"]}
    assert (await at.sql("truncate letter", copy=back)).data["affected_rows"] == 2000


async def test_binary_data_is_base64(at):
    await at.sql("insert into letter values (1, 'Ada')")
    told = (await at.sql(copy={"direction": "to", "table": "letter", "format": "binary"})).data[
        "copy"
    ]
    raw = base64.b64encode(await at.blobs.get(key_of(told["ref"]))).decode()
    back = {"table": "letter", "format": "binary", "data": raw}

    assert (await at.sql("truncate letter", copy=back)).data["affected_rows"] == 1


# ---------------------------------------------------------------------------- rows by reference


async def table(at, ref):
    return pq.read_table(BytesIO(await at.blobs.get(key_of(ref))))


async def test_too_many_rows_go_to_parquet(at):
    text = """select n, n::numeric / 4 as price, n % 2 = 0 as even, now() as at, array[n] as list,
        jsonb_build_object('n', n) as doc, null::text as nothing, n / 2.0::float8 as half
        from generate_series(1, 5000) n"""
    outcome = await at.sql(f"select 1 as one; {text}", max_rows=4000)

    data = outcome.data
    assert (data["rows"], data["row_count"], data["truncated"]) == ([], 5000, False)
    assert outcome.ref == data["ref"] == data["command_1"]["ref"]
    assert data["command_0"]["rows"] == [{"one": 1}]
    found = await table(at, data["ref"])
    last = found.slice(4999).to_pylist()[0]
    types = [str(found.schema.field(name).type) for name in ("n", "price", "even", "half")]
    assert types == ["int64", "string", "bool", "double"]
    assert (last["n"], last["price"], last["even"]) == (5000, "1250.0000000000000000", True)
    assert (json.loads(last["list"]), json.loads(last["doc"])) == ([5000], {"n": 5000})
    assert [row["n"] for row in data["preview"]] == [1, 2, 3]


async def test_too_many_bytes_go_to_parquet(at):
    data = (
        await at.sql("select repeat('x', 1000) as a from generate_series(1, 2000)", max_bytes="1Mi")
    ).data

    assert (await table(at, data["ref"])).num_rows == 2000


async def test_without_blobs_there_is_a_limit(at):
    at.blobs = None
    rows = (await at.sql("select generate_series(1, 11)", max_rows=10)).error
    size = (await at.sql("select repeat('x', 5000)", max_bytes=4096)).error

    assert (rows["kind"], rows["code"], rows["details"]) == ("limit", "row_limit", {"index": 0})
    assert (size["kind"], size["code"], size["details"]) == ("limit", "output_limit", {"index": 0})
    assert await at.rows("select 1 as a") == [{"a": 1}]


async def test_a_secret_does_not_reach_the_file(at):
    secret = at.fields["password"]
    data = (
        await at.sql("select %s as a from generate_series(1, 20)", params=[secret], max_rows=10)
    ).data

    assert set((await table(at, data["ref"])).column("a").to_pylist()) == {"***"}


async def test_an_error_after_the_first_rows_is_an_error(at):
    error = (
        await at.sql("select 1 / (3000 - n) from generate_series(1, 5000) n", max_rows=10)
    ).error

    assert error["code"] == "PG_22012"
    assert await at.blobs.listed() == []


async def test_a_long_result_does_not_hold_up_others(at):
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    ticking = asyncio.create_task(tick())
    await at.sql("select n, repeat('x', 100) as x from generate_series(1, 20000) n", max_rows=100)
    ticking.cancel()
    await asyncio.wait([ticking])

    assert ticks > 5
