"""No SQL leads DuckDB inside: not by an endpoint, a secret, a query of an address or a redirect.

A canary listens on 127.0.0.1 and must never see a connection. The control opens the guard.
"""

from __future__ import annotations

import asyncio
import base64
from contextlib import asynccontextmanager

import pytest

from noetl.tools.base import ToolContext, ToolError, run_tool
from noetl.tools.duckdb.door import Door
from noetl.tools.duckdb.ducklake import DucklakeTool
from noetl.tools.duckdb.engine import Engine
from noetl.tools.duckdb.tool import DuckdbTool
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.objects.store import Stores
from tests.integration.test_duckdb_reach import has
from tests.servers.http_stage import fixed, reply, stage

KEYS = {"access_key_id": "a", "secret_access_key": "b"}
QUERY = "from read_csv('s3://b/x.csv')"
INSIDE = (
    "http://10.0.0.5", "10.0.0.5", "10.0.0.5:9000", "https://127.0.0.1:9000", "http://2130706433",
    "http://[::1]:9000", "http://169.254.169.254", "http://metadata.google.internal",
    "http://localhost", "http://user:pw@93.184.216.34", "ftp://93.184.216.34",
)  # fmt: skip


async def sql(root, command, kind="duckdb", egress=None, **config):
    tools = {"duckdb": DuckdbTool, "ducklake": DucklakeTool}
    engine = Engine((root,))
    tool = tools[kind]((root,), engine=engine)
    ctx = ToolContext(
        execution_id="7", step="s", command_id="c", idempotency_key="k",
        stores=Stores(egress or Egress()), deadline=asyncio.get_running_loop().time() + 30,
    )  # fmt: skip
    try:
        return await run_tool(tool, {"kind": kind, "command": command, **config}, ctx)
    finally:
        await engine.close()


def auth(**fields):
    return {"x": {"type": "s3", "credential": {**KEYS, **fields}}}


# ---------------------------------------------------------------------------- what is declared


@pytest.mark.parametrize("endpoint", INSIDE)
async def test_an_endpoint_that_leads_inside_is_refused(tmp_path, endpoint):
    outcome = await sql(tmp_path, QUERY, auth=auth(endpoint=endpoint))
    assert (outcome.error["kind"], outcome.error["code"]) == ("egress", "egress_denied"), outcome


async def test_the_files_of_a_lake_lie_at_no_endpoint_that_leads_inside(tmp_path):
    outcome = await sql(
        tmp_path, "from t", kind="ducklake", catalog="file://a.ducklake", data_path="s3://b/lake",
        auth=auth(endpoint="http://10.0.0.5"),
    )  # fmt: skip
    assert (outcome.error["kind"], outcome.error["code"]) == ("egress", "egress_denied"), outcome


# ---------------------------------------------------------------------------- what statements say

SECRETS = (
    "create secret s (type http, http_proxy 'http://10.0.0.5')",
    "create or replace temporary secret x (type s3, endpoint '10.0.0.5')",
    "create /* a /* b */ */ persistent -- c\n secret s (type http)",
    "CREATE SECRET IF NOT EXISTS s (type http)",
    "drop secret x",
    "drop temporary secret if exists x",
    "select 1; create secret (type http)",
)


@pytest.mark.parametrize("text", SECRETS)
async def test_a_statement_changes_no_secret(tmp_path, text):
    outcome = await sql(tmp_path, text)
    found = (outcome.error["kind"], outcome.error["code"])
    assert found == ("storage_access", "statement_denied"), outcome


async def test_a_table_may_be_named_secret(tmp_path):
    text = "create table secret (a int); insert into secret values (1); from secret"
    assert (await sql(tmp_path, text)).data["rows"] == [{"a": 1}]


@pytest.mark.parametrize("name", ["s3_endpoint", "http_proxy"])
async def test_a_statement_changes_no_setting(tmp_path, name):
    outcome = await sql(tmp_path, f"set {name} = '10.0.0.5'")
    assert "locked" in outcome.error["message"], outcome


@pytest.mark.parametrize(
    "place",
    ["s3://b/x.csv?s3_endpoint=127.0.0.1:{port}&s3_url_style=path&s3_use_ssl=false",
     "s3://127.0.0.1:{port}#/x.csv"],
)  # fmt: skip
async def test_an_address_in_a_statement_reaches_no_canary(tmp_path, place):
    async with stage(fixed({})) as canary:
        text = f"from read_csv('{place.format(port=canary.base.rsplit(':', 1)[1])}')"
        outcome = await sql(tmp_path, text, auth=auth())
    assert canary.server.connections == 0
    wanted = ("egress", "egress_denied") if has("httpfs") else ("config", "missing_extension")
    assert (outcome.error["kind"], outcome.error["code"]) == wanted, outcome


# ---------------------------------------------------------------------------- the door


@asynccontextmanager
async def through(egress, resolver=None):
    """Requests through a door, with its password."""
    guard = Guard(egress=egress) if resolver is None else Guard(egress=egress, resolve=resolver)
    async with Door(guard) as door:

        async def ask(line, *headers, password=door.password, end=b"\r\n\r\n"):
            host, port = door.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            proof = base64.b64encode(f"{door.USER}:{password}".encode()).decode()
            lines = (line, f"Proxy-Authorization: Basic {proof}", *headers, "", "")
            writer.write("\r\n".join(lines).encode())
            found = await reader.readuntil(end)
            writer.close()
            return found.partition(b"\r\n")[0].decode(), found

        ask.door = door
        yield ask


@pytest.mark.parametrize("line", ["CONNECT {host} HTTP/1.1", "GET http://{host}/x HTTP/1.1"])
async def test_the_door_leads_to_no_canary(line):
    async with stage(fixed({})) as canary, through(Egress()) as ask:
        status, _ = await ask(line.format(host=canary.base.removeprefix("http://")))
        refusal = ask.door.refusal
    assert (status, canary.server.connections) == ("HTTP/1.1 403 Forbidden", 0)
    assert isinstance(refusal, ToolError)
    assert (refusal.kind, refusal.code) == ("egress", "egress_denied")


async def test_the_door_judges_the_address_behind_a_name():
    async def lying(_host, _port):
        return ["10.1.2.3"]

    async with through(Egress(), lying) as ask:
        assert (await ask("CONNECT a.example:443 HTTP/1.1"))[0] == "HTTP/1.1 403 Forbidden"


async def test_the_door_opens_with_its_password_only():
    async with stage(fixed({})) as canary, through(Egress(mode="open")) as ask:
        status, _ = await ask(f"GET {canary.base}/x HTTP/1.1", password="guessed")  # noqa: S106 - a wrong one
    assert (status, canary.server.connections) == (
        "HTTP/1.1 407 Proxy Authentication Required", 0,
    )  # fmt: skip


@pytest.mark.parametrize(
    "line", ["GET /x HTTP/1.1", "GET https://a.example/ HTTP/1.1", "CONNECT a HTTP/1.1", "odd",
             "CONNECT a:b HTTP/1.1", "GET http://a:99999/ HTTP/1.1"],
)  # fmt: skip
async def test_the_door_understands_requests_of_a_proxy_only(line):
    async with through(Egress(mode="open")) as ask:
        assert (await ask(line))[0] == "HTTP/1.1 400 Bad Request"


async def test_control_the_same_canary_is_reached_when_the_guard_is_open():
    async with (
        stage(lambda _: reply({"caught": True})) as canary,
        through(Egress(mode="open")) as ask,
    ):
        host = canary.base.removeprefix("http://")
        status, found = await ask(
            f"GET {canary.base}/x?y=1 HTTP/1.1", f"Host: {host}", end=b"0\r\n\r\n"
        )
        (asked,) = canary.seen
        gone = await ask("CONNECT 127.0.0.1:1 HTTP/1.1")
    assert (status, asked.target) == ("HTTP/1.1 200 OK", "/x?y=1")
    assert b'{"caught":true}' in found.replace(b" ", b"")
    assert gone[0] == "HTTP/1.1 502 Bad Gateway"
