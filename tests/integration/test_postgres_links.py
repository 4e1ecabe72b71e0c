"""The postgres tool and its connections: who may connect, who gets one, and what is left on it."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop

from noetl.local.postgres import Postgres
from noetl.tools.base import run_tool
from tests.servers.postgres import FAST
from tests.servers.sql_stage import Stage

SOON_S = 10.0
FOREVER = "select pg_sleep(60)"
CANARY = "canary-6f1c-postgres"


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


async def at_rest(at):
    """Wait until no statement runs: one that was cancelled ends soon, the others last a minute."""
    async with asyncio.timeout(SOON_S):
        while any(item["state"] == "active" for item in await others(at)):  # noqa: ASYNC110 - of a server
            await asyncio.sleep(0.01)


async def others(at):
    """What other connections do in the database."""
    text = (
        "select state, query from pg_stat_activity where datname = %s and pid <> pg_backend_pid()"
    )
    return await at.rows(text, params=[at.fields["database"]])


# ---------------------------------------------------------------------------- who may connect


async def test_without_auth_nobody_connects(url):
    at = Stage(url)
    outcome = await at.sql("select 1", auth=None)

    assert (outcome.error["kind"], outcome.error["code"]) == ("auth", "auth_required")
    assert "/auth" in outcome.error["message"]
    assert len(at.tool.pools) == 0


@pytest.mark.parametrize("missing", ["host", "user"])
async def test_there_is_no_default_host_or_user(at, missing):
    connection = {**at.fields, missing: None}
    error = (await at.sql("select 1", auth=None, connection=connection)).error

    assert (error["code"], f"/connection/{missing}" in error["message"]) == ("auth_required", True)


async def test_a_connection_may_be_written_out(at):
    outcome = await at.sql("select 1 as a", auth=None, connection=at.fields)

    assert outcome.data["rows"] == [{"a": 1}]


async def test_written_fields_win_over_the_credential(at):
    right = at.fields
    at.fields = {**right, "database": "nowhere", "db_port": 1, "port": None}
    named = {"database": right["database"], "port": right["port"]}

    assert await at.rows("select 1 as a", connection=named) == [{"a": 1}]
    assert await at.rows("select 1 as a", auth={"credential": "db", **named}) == [{"a": 1}]


async def test_older_names_of_fields_are_read(at):
    names = {"host": "db_host", "port": "db_port", "user": "db_user", "password": "db_password"}
    right = at.fields
    at.fields = {names.get(name, name): value for name, value in right.items()} | {"db_name": "x"}
    at.fields["db_name"] = at.fields.pop("database")
    at.fields["password"] = right["password"]  # what the stage covers

    assert await at.rows("select current_database() as d") == [{"d": right["database"]}]


@pytest.mark.parametrize(
    ("change", "told", "remedy"),
    [
        ({"password": CANARY}, ("auth", "PG_28P01", False), "check `user` and `password`"),
        ({"password": None}, ("auth", "password_missing", False), "wants a password"),
        ({"user": "nobody_of_that_name"}, ("auth", "PG_28P01", False), "check `user`"),
        ({"database": "nowhere"}, ("db_error", "PG_3D000", False), "check `database`"),
        ({"host": "name.invalid"}, ("connection", "DNS_ERROR", True), "check `host`"),
        ({"sslmode": "sometimes"}, ("config", "invalid_config", False), "verify-full"),
        ({"port": "many"}, ("config", "invalid_config", False), "port"),
    ],
)
async def test_a_connection_that_fails_says_why(at, change, told, remedy):
    at.fields = {**at.fields, **change}
    error = (await at.sql("select 1")).error

    assert (error["kind"], error["code"], error["retryable"]) == told
    assert remedy in error["message"]
    assert CANARY not in str(error)


async def test_a_refused_connection_may_be_tried_again(at):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    at.fields = {**at.fields, "host": "127.0.0.1", "port": port}
    error = (await at.sql("select 1")).error

    assert (error["kind"], error["code"], error["retryable"]) == (
        "connection",
        "CONN_REFUSED",
        True,
    )


async def test_tls_that_is_required_and_not_offered_is_told(at):
    async def no_tls(reader, writer):
        await reader.readexactly(8)
        writer.write(b"N")
        await reader.read()
        writer.close()

    async with await asyncio.start_server(no_tls, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        at.fields = {**at.fields, "host": "127.0.0.1", "port": port, "sslmode": "require"}
        error = (await at.sql("select 1")).error

    assert (error["kind"], error["code"], error["retryable"]) == ("connection", "TLS_ERROR", False)


async def test_a_server_that_is_silent_ends_at_the_limit_of_the_task(at):
    async def silent(reader, writer):
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        at.fields = {**at.fields, "host": "127.0.0.1", "port": port, "sslmode": "disable"}
        error = (await at.sql("select 1", within=0.2)).error

    assert (error["kind"], error["code"]) == ("timeout", "tool_timeout")


# ---------------------------------------------------------------------------- what is left


async def test_nothing_of_a_task_is_seen_by_the_next(at):
    left = (
        "create role guest; create schema if not exists s; set search_path = s; set role guest;"
        "create temp table mine (a int); set statement_timeout = 1234;"
        "select pg_advisory_lock(7); prepare q as select 1; listen here"
    )
    first = await at.rows(f"{left}; select pg_backend_pid() as pid", transaction=False)
    await at.settled()
    second = await at.rows("""select pg_backend_pid() as pid, current_user = session_user as is_me,
        current_setting('search_path') as path, current_setting('statement_timeout') as most,
        to_regclass('pg_temp.mine') as temp, (select count(*) from pg_locks
        where locktype = 'advisory' and pid = pg_backend_pid()) as locks,
        (select count(*) from pg_prepared_statements) as prepared,
        (select count(*) from pg_listening_channels()) as channels""")

    assert second == [
        {
            "pid": first[0]["pid"], "is_me": True, "path": '"$user", public', "most": "0",
            "temp": None, "locks": 0, "prepared": 0, "channels": 0,
        }
    ]  # fmt: skip
    assert (await at.sql("drop role guest")).error is None


async def test_a_failed_task_leaves_a_connection_that_works(at):
    (first,) = await at.rows("select pg_backend_pid() as pid")
    await at.settled()
    await at.sql("select 1 / 0")
    await at.settled()

    assert await at.rows("select pg_backend_pid() as pid") == [first]


async def test_cancelling_a_task_cancels_its_statement(at):
    running = asyncio.create_task(at.sql(FOREVER))
    while not any(FOREVER in item["query"] for item in await others(at)):  # noqa: ASYNC110 - of a server
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await at_rest(at)


async def test_a_task_that_takes_too_long_is_cancelled_on_the_server(at):
    error = (await at.sql(FOREVER, within=0.2)).error

    assert (error["kind"], error["code"]) == ("timeout", "tool_timeout")
    await at_rest(at)


def test_all_of_it_works_on_the_loop_of_a_worker(url):
    async def rows_and_limit():
        at = Stage(url)
        try:
            rows = await at.rows("select generate_series(1, 2000) as n")
            code = (await at.sql(FOREVER, within=0.2)).error["code"]
            await at_rest(at)
            return len(rows), code
        finally:
            await at.tool.close()

    assert uvloop.run(rows_and_limit()) == (2000, "tool_timeout")


async def test_a_kept_connection_that_died_is_replaced(at):
    (first,) = await at.rows("select pg_backend_pid() as pid")
    await at.settled()
    other = Stage(at.url)
    await other.sql("select pg_terminate_backend(%s)", params=[first["pid"]])
    await other.tool.close()

    (second,) = await at.rows("select pg_backend_pid() as pid")
    assert second != first


async def test_a_connection_that_is_cut_in_the_middle_may_be_tried_again(at):
    error = (await at.sql("select pg_terminate_backend(pg_backend_pid()), pg_sleep(1)")).error

    assert (error["kind"], error["code"], error["retryable"]) == ("db_connection", "PG_57P01", True)
    assert error["details"]["index"] == 0
    assert await at.rows("select 1 as a") == [{"a": 1}]


async def test_a_server_that_restarts_is_found_again(postgres_home):
    server = Postgres(postgres_home / "pg", settings=FAST)
    await server.start()
    at = Stage(server.url)
    try:
        assert await at.rows("select 1 as a") == [{"a": 1}]
        await at.settled()
        await server.stop()
        error = (await at.sql("select 1")).error
        assert (error["kind"], error["retryable"]) == ("connection", True)
        await server.start()
        assert await at.rows("select 2 as a") == [{"a": 2}]
    finally:
        await at.tool.close()
        await server.stop()


# ---------------------------------------------------------------------------- how many


async def test_at_most_four_connections_are_open_to_a_database(at):
    await at.sql("create table t (n int)")
    count = "(select count(*) from pg_stat_activity where datname = current_database())"
    await asyncio.gather(
        *(at.sql(f"insert into t select {count}; select pg_sleep(0.01)") for _ in range(12))
    )

    assert (await at.rows("select max(n) as n from t"))[0]["n"] <= 4
    await at.settled()
    assert at.tool.pools.idle <= 4


async def test_connections_that_nobody_uses_are_closed(url):
    at = Stage(url, idle_s=0.02)
    await at.sql("select 1")
    await at.settled()
    async with asyncio.timeout(10):
        while len(at.tool.pools):  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)

    assert at.tool.pools.idle == 0
    await at.tool.close()


async def test_the_pool_that_was_used_least_recently_goes_first(url):
    at = Stage(url, pools=2)
    right = at.fields
    names = ["a", "b", "a", "c"]
    found = []
    for name in names:
        at.fields = {**right, "sslmode": {"a": "prefer", "b": "disable", "c": "allow"}[name]}
        (row,) = await at.rows("select pg_backend_pid() as pid")
        found.append(row["pid"])
        await at.settled()

    assert (len(at.tool.pools), at.tool.pools.idle) == (2, 2)
    assert found[0] == found[2]
    at.fields = {**right, "sslmode": "disable"}
    assert (await at.rows("select pg_backend_pid() as pid"))[0]["pid"] != found[1]
    await at.tool.close()


async def test_another_password_is_another_pool(at):
    await at.sql(
        "create role other login password 'p-4711-other'; grant create on schema public to other"
    )
    await at.sql("select 1")
    right = at.fields
    at.fields = {**right, "user": "other", "password": "p-4711-other"}
    assert await at.rows("select current_user as who") == [{"who": "other"}]
    at.fields = {**right, "user": "other", "password": CANARY}

    assert (await at.sql("select 1")).error["code"] == "PG_28P01"
    at.fields = right
    await at.sql("drop owned by other; drop role other")


async def test_a_secret_in_a_row_or_an_error_is_covered(at):
    secret = at.fields["password"]
    rows = await at.rows("select %s as a", params=[secret])
    error = (await at.sql("select %s::int", params=[secret])).error

    assert rows == [{"a": "***"}]
    assert secret not in str(error)


async def test_an_unknown_key_is_refused(at):
    config = {"kind": "postgres", "auth": "db", "command": "select 1", "commit": True}
    error = (await run_tool(at.tool, config, at.context())).error

    assert (error["kind"], error["code"]) == ("config", "invalid_config")
