"""The snowflake tool: the real connector against a stand-in of Snowflake's REST interface."""

from __future__ import annotations

import asyncio
import json

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from noetl.blobs.memory import MemoryBlobs
from noetl.telemetry.redact import Redactor
from noetl.tools.base import ToolContext, ToolError, run_tool
from noetl.tools.snowflake.session import connect
from noetl.tools.snowflake.tool import SnowflakeTool
from tests.fakes.snowflake import PASSWORD, WAREHOUSE, Snowflake

pytest.importorskip("snowflake.connector", reason="the extra snowflake")


ALL = """with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000)
    select i, 'number ' || i as name from n"""


class Stage:
    """A tool, and a credential `sf` for a server."""

    def __init__(self, server):
        self.server = server
        self.fields = server.fields
        self.blobs = MemoryBlobs()
        self.kept = []

    async def secrets(self, name):
        return {"sf": {"type": "snowflake", "data": self.fields},
                "pg": {"type": "postgres", "data": {"host": "h"}}}[name]  # fmt: skip

    async def sql(self, command=None, *, within=30, resume=None, blobs=True, key="k", **config):
        ctx = ToolContext(
            execution_id="7", step="s", command_id="c", idempotency_key=key, secrets=self.secrets,
            deadline=asyncio.get_running_loop().time() + within, resume=resume,
            blobs=self.blobs if blobs else None, redactor=Redactor([PASSWORD]),
            on_keep=lambda state: self.kept.append(json.loads(json.dumps(state))),
        )  # fmt: skip
        text = {} if command is None else {"command": command}
        config = {"kind": "snowflake", "auth": "sf", **text, **config}
        return await run_tool(SnowflakeTool(), config, ctx)

    async def data(self, command, **config):
        outcome = await self.sql(command, **config)
        assert outcome.error is None, outcome.error
        return outcome.data

    async def error(self, command, **config):
        outcome = await self.sql(command, **config)
        assert PASSWORD not in str(outcome)
        return outcome.error


@pytest.fixture
def server():
    made = Snowflake()
    yield made
    made.stop()


@pytest.fixture
def at(server):
    return Stage(server)


def named(error):
    return error["kind"], error["code"], error["retryable"]


# ---------------------------------------------------------------------------- results


async def test_rows_come_with_their_columns(at):
    data = await at.data("select 1 as a, 'x' as b, 1.5 as c, null as d")
    assert data["columns"] == ["A", "B", "C", "D"]
    assert data["rows"] == [{"A": 1, "B": "x", "C": 1.5, "D": None}]
    assert (data["row_count"], data["affected_rows"]) == (1, 0)
    assert data["command_0"] == data["statement_0"] == {
        name: data[name] for name in ("columns", "rows", "row_count", "affected_rows")
    }  # fmt: skip


async def test_rows_may_be_lists(at):
    assert (await at.data("select 1 as a, 2 as b", as_objects=False))["rows"] == [[1, 2]]


async def test_a_query_without_rows_lists_its_columns(at):
    data = await at.data("select 1 as a where 1 = 2")
    assert (data["columns"], data["rows"], data["row_count"]) == (["A"], [], 0)


async def test_several_statements_and_the_last_rows_on_top(at):
    text = "create table t (a int); insert into t values (1), (2); select a from t; drop table t"
    data = await at.data(text, warehouse=WAREHOUSE)
    assert data["rows"] == [{"A": 1}, {"A": 2}]
    assert data["command_0"]["columns"] == []
    assert data["command_1"]["affected_rows"] == 2
    assert data["statement_2"]["row_count"] == 2
    assert len(at.server.texts) == 4


async def test_a_list_of_commands(at):
    data = await at.data(None, commands=["select 1 as a", "select 2 as a"])
    assert [data["command_0"]["rows"], data["rows"]] == [[{"A": 1}], [{"A": 2}]]


@pytest.mark.parametrize(
    ("command", "params"),
    [
        ("select ? as a, ? as b", [1, "it's; drop table t"]),
        ("select %s as a, %s as b", [1, "it's; drop table t"]),
        ("select %(n)s as a, %(t)s as b -- ? %s", {"n": 1, "t": "it's; drop table t"}),
    ],
)
async def test_values_are_bound_by_the_driver(at, command, params):
    data = await at.data(command, params=params)
    assert data["rows"] == [{"A": 1, "B": "it's; drop table t"}]
    assert "drop" not in at.server.texts[0]


async def test_the_task_names_warehouse_database_schema_and_role(at):
    at.fields = {**at.fields, "warehouse": "OTHER", "role": "READER"}
    await at.data("select 1 as a", warehouse=WAREHOUSE, database="D", schema="S")
    [login] = at.server.logins
    told = {name: login[name] for name in ("warehouse", "databaseName", "schemaName", "roleName")}
    assert told == {
        "warehouse": WAREHOUSE, "databaseName": "D", "schemaName": "S", "roleName": "READER",
    }  # fmt: skip


async def test_many_rows_go_to_the_blobs_as_parquet(at):
    pytest.importorskip("pyarrow")
    outcome = await at.sql(ALL, max_rows=100)
    assert outcome.error is None, outcome.error
    data = outcome.data
    assert (data["row_count"], data["rows"], data["truncated"]) == (5000, [], False)
    assert data["preview"][0] == {"I": 1, "NAME": "number 1"}
    assert outcome.ref == data["ref"]
    refused = await at.error(ALL, max_rows=100, blobs=False)
    assert named(refused) == ("limit", "row_limit", False)


# ---------------------------------------------------------------------------- failures


async def test_the_first_failure_ends_the_task_and_tells_what_was_done(at):
    text = "create table t (a int); insert into t values (7); select * from nope; select 1 as a"
    error = await at.error(text, warehouse=WAREHOUSE)
    assert named(error) == ("db_error", "SF_2003", False)
    details = error["details"]
    assert (details["index"], details["sqlstate"], details["errno"]) == (2, "42S02", 2003)
    assert details["command_1"]["affected_rows"] == 1
    assert details["query_id"] in at.server.queries
    assert len(at.server.texts) == 3


async def test_what_is_told_of_earlier_results_is_bounded(at):
    error = await at.error(None, commands=[ALL, "select * from nope"])
    first = error["details"]["command_0"]
    assert (first["row_count"], first["truncated"], len(first["rows"])) == (5000, True, 3)


async def test_a_missing_warehouse_names_the_remedy(at):
    error = await at.error("insert into t values (1)")
    assert named(error) == ("db_error", "SF_606", False)
    assert "`warehouse`" in error["message"]


async def test_a_wrong_password_is_no_login(at):
    at.fields = {**at.fields, "password": "canary-wrong-7302"}
    error = await at.error("select 1 as a")
    assert named(error) == ("auth", "SF_390100", False)
    assert "canary-wrong-7302" not in str(error)
    assert at.server.texts == []


async def test_nobody_there_is_a_lost_connection(server):
    fields = {**server.fields, "port": "1"}
    with pytest.raises(ToolError) as caught:
        await connect(fields, timeout_s=1)
    assert named(caught.value.as_map())[::2] == ("db_connection", True)


@pytest.mark.parametrize(
    ("auth", "code", "said"),
    [
        (None, "auth_required", "/auth"),
        ("pg", "credential_type", "snowflake"),
        ({"user": "u", "password": "canary-7303"}, "auth_required", "account"),
        ({"account": "a", "password": "canary-7303"}, "auth_required", "user"),
        ({"account": "a", "user": "u"}, "auth_required", "private_key"),
    ],
)
async def test_a_credential_that_does_not_do(at, auth, code, said):
    error = await at.error("select 1 as a", auth=auth)
    assert (error["kind"], error["code"]) == ("auth", code)
    assert said in error["message"]
    assert at.server.asked == []


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"command": "-- so\nput file:///etc/passwd @~"}, "PUT and GET"),
        ({"command": "get @~ file:///tmp"}, "PUT and GET"),
        ({"command": "select ?", "params": [1, 2]}, "2 values for 1"),
        ({"command": "select ?", "params": {"a": 1}}, "a map has"),
        ({"command": "select %(b)s", "params": {"a": 1}}, "no `b`"),
        ({"command": "select 1; select 2", "params": [1]}, "single statement"),
    ],
)
async def test_what_cannot_be_sent(at, config, said):
    error = (await at.sql(**config)).error
    assert (error["kind"], error["code"]) == ("config", "invalid_config")
    assert said in error["message"]
    assert at.server.asked == []


async def test_a_missing_extra_is_named(at, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "snowflake.connector", None)
    error = await at.error("select 1 as a")
    assert (error["kind"], error["code"]) == ("config", "missing_extra")
    assert 'pip install "noetl[snowflake]"' in error["message"]


# ---------------------------------------------------------------------------- queries by id


async def until(is_so):
    async with asyncio.timeout(20):
        while not is_so():  # noqa: ASYNC110 - it happens in threads of others
            await asyncio.sleep(0.01)


async def running(at):
    """The query that waits, as soon as the server has it."""
    await until(lambda: at.kept)
    return at.server.queries[at.kept[-1]["queries"][-1]]


async def test_the_id_of_a_running_query_is_kept_and_the_next_attempt_waits_for_it(at):
    first = asyncio.ensure_future(at.sql("select wait()"))
    query = await running(at)
    state = at.kept[-1]
    second = asyncio.ensure_future(at.sql("select wait()", resume=state))  # of another worker
    await until(lambda: len(at.server.logins) == 2)
    query.columns = [{**_COLUMN, "name": "N"}]
    query.rows = [["5"]]
    query.done.set()
    assert [(await task).data["rows"] for task in (first, second)] == [[{"N": 5}]] * 2
    assert len(at.server.queries) == 1


_COLUMN = {"type": "fixed", "precision": 38, "scale": 0, "nullable": True, "length": None,
           "byteLength": None}  # fmt: skip


async def test_statements_that_ended_are_not_sent_again(at):
    text = "insert into t values (1); select count(*) as n from t"
    await at.data("create table t (a int)")
    at.kept.clear()
    await at.data(text, warehouse=WAREHOUSE)
    state = {**at.kept[0]}
    assert len(state["queries"]) == 1
    data = await at.data(text, warehouse=WAREHOUSE, resume=state)
    assert (data["command_0"]["affected_rows"], data["rows"]) == (1, [{"N": 1}])
    assert at.server.texts.count("insert into t values (1)") == 1


@pytest.mark.parametrize("how", ["other text", "other key", "unknown id", "odd state"])
async def test_what_is_not_ours_is_sent_anew(at, how):
    await at.data("select 1 as a")
    state = at.kept[0]
    config = {"resume": state}
    text = "select 1 as a"
    if how == "other text":
        text = "select 2 as a"
    elif how == "other key":
        config["key"] = "k2"
    elif how == "unknown id":
        config["resume"] = {**state, "queries": ["01b2c3d4-0000-0000-0000-000000000000"]}
    else:
        config["resume"] = [1]
    await at.data(text, **config)
    assert len(at.server.queries) == 2


async def test_a_query_that_failed_is_sent_anew(at):
    await at.error("select a from t")
    at.server.queries[at.kept[0]["queries"][0]].done.set()
    await at.data("create table t (a int)")
    assert (await at.data("select a from t", resume=at.kept[0]))["rows"] == []


async def test_statements_that_share_a_session_are_not_taken_apart(at):
    await at.sql("create temporary table s (a int); select a from s")
    assert at.kept == []


async def test_cancelling_the_task_stops_the_query(at):
    task = asyncio.ensure_future(at.sql("select wait()"))
    query = await running(at)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (query.is_aborted, query.status) == (True, "FAILED_WITH_ERROR")


async def test_the_deadline_stops_the_query(at):
    error = await at.error("select wait()", within=3)
    assert named(error) == ("timeout", "tool_timeout", True)
    [query] = at.server.queries.values()
    assert query.is_aborted


async def test_a_query_that_somebody_else_stopped_is_an_error(at):
    task = asyncio.ensure_future(at.sql("select wait()"))
    query = await running(at)
    at.server.abort(query.id)
    error = (await task).error
    assert named(error) == ("db_timeout", "SF_604", True)


async def test_a_session_ends_with_its_task(at):
    await at.data("select 1 as a")
    last = [asked for asked in at.server.asked if asked.path == "/session"]
    assert [asked.query.get("delete") for asked in last] == ["true"]


async def test_a_private_key_opens_a_session(at):
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"canary-phrase-7304"),
    ).decode()  # fmt: skip
    fields = {**at.fields, "private_key": pem, "private_key_passphrase": "canary-phrase-7304"}
    del fields["password"]
    at.fields = fields
    assert (await at.data("select 1 as a"))["rows"] == [{"A": 1}]
    assert at.server.logins[0]["TOKEN"].count(".") == 2
    at.fields = {**fields, "private_key": "no key at all"}
    error = await at.error("select 1 as a")
    assert error["kind"] in {"auth", "config"}
