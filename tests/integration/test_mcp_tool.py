"""The mcp tool against real servers of the official SDK."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest

from noetl.telemetry.redact import Redactor
from noetl.tools.base import ToolContext, run_tool
from noetl.tools.http.egress import Egress, Guard
from noetl.tools.interpreter.process import Processes
from noetl.tools.interpreter.sandbox import Sandbox
from noetl.tools.mcp.places import Known
from noetl.tools.mcp.tool import McpTool
from tests.servers.mcp import STDIO_ARGV

ENVIRON = {"PATH": os.defpath, "LANG": "C.UTF-8", "SECRET_OF_THE_WORKER": "x"}
SANDBOX = Sandbox.detect()
LONG_S = 60


def made(known=None, egress=None, **more):
    guard = Guard(egress=egress or Egress(mode="open"))
    return McpTool(guard, Processes(SANDBOX, ENVIRON), known or Known(stdio_allow=("*",)), **more)


@pytest.fixture
async def tool():
    one = made()
    yield one
    await one.close()


async def run(tool, /, **config):
    more = {name: config.pop(name) for name in ("on_progress", "secrets", "redactor")
            if name in config}  # fmt: skip
    ctx = ToolContext(execution_id="1", step="s", command_id="c", idempotency_key="k", **more)
    return await run_tool(tool, {"kind": "mcp", **config}, ctx)


async def data(tool, /, **config):
    outcome = await run(tool, **config)
    assert outcome.error is None, outcome.error
    return outcome.data


async def error(tool, /, **config):
    found = (await run(tool, **config)).error
    assert found is not None
    return found


def told(found):
    return found["kind"], found["code"]


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_tool_is_called_and_tools_are_listed(tool, mcp_server, transport):
    where = {"transport": transport}
    where["endpoint"] = mcp_server.url if transport == "http" else mcp_server.sse_url
    called = await data(tool, **where, server="desk", tool="add", arguments={"a": 1, "b": 2})
    assert {name: called[name] for name in ("server", "method", "tool", "text", "structured")} == {
        "server": "desk", "method": "tools/call", "tool": "add", "text": "3",
        "structured": {"result": 3},
    }  # fmt: skip
    assert called["content"] == [{"type": "text", "text": "3"}]
    assert called["result"]["content"] == called["content"]
    listed = await data(tool, **where, method="tools/list")
    assert {"add", "fail"} <= {item["name"] for item in listed["result"]["tools"]}


async def test_arguments_may_be_json_text(tool, mcp_server):
    where = {"endpoint": mcp_server.url, "tool": "add"}
    assert (await data(tool, **where, arguments='{"a": 2, "b": 3}'))["text"] == "5"
    for wrong in ("{", "[1]"):
        assert told(await error(tool, **where, arguments=wrong)) == ("config", "invalid_config")


async def test_an_error_of_the_tool_fails_the_task(tool, mcp_server):
    found = await error(tool, url=mcp_server.url, tool="fail", arguments={"why": "no paint"})
    assert told(found) == ("provider", "mcp_tool_error")
    assert "no paint" in found["message"]
    assert not found["retryable"]


async def test_an_error_of_the_protocol_fails_the_task(tool, mcp_server):
    found = await error(
        tool, server_url=mcp_server.url, method="resources/read", uri="desk://nothing/here"
    )
    assert told(found) == ("provider", "mcp_error")


async def test_resources_prompts_and_health(tool, mcp_server):
    where = {"endpoint": mcp_server.url}
    read = await data(tool, **where, method="resources/read", uri="desk://ticket/7")
    assert read["text"] == "ticket 7"
    asked = {"method": "prompts/get", "prompt": "greet", "arguments": {"name": "A"}}
    prompt = await data(tool, **where, **asked)
    assert prompt["text"] == "Hello A"
    health = await data(tool, **where, method="health")
    assert health["result"]["serverInfo"]["name"] == "desk"
    for method in ("tools/call", "resources/read", "prompts/get"):
        assert told(await error(tool, **where, method=method)) == ("config", "invalid_config")


async def test_progress_of_the_server_is_progress_of_the_task(tool, mcp_server):
    seen = []
    await data(
        tool, endpoint=mcp_server.url, tool="slow", on_progress=lambda *told: seen.append(told)
    )
    assert seen == [(50.0, "step 1"), (100.0, "step 2")]


async def test_a_credential_is_sent_and_covered(tool, mcp_server):
    async def secrets(alias):
        fields = {"token": "canary-mcp-3f1", "headers": {"X-Team": "canary-team-88"}}
        return {"type": "mcp", "data": {"url": mcp_server.url, **fields} if alias == "desk" else {}}

    redactor = Redactor()
    mcp_server.headers.clear()
    await data(tool, auth="desk", tool="add", arguments={"a": 1, "b": 1}, secrets=secrets,
               redactor=redactor)  # fmt: skip
    assert mcp_server.headers[0]["authorization"] == "Bearer canary-mcp-3f1"
    assert mcp_server.headers[0]["x-team"] == "canary-team-88"
    assert redactor.redact("canary-mcp-3f1 canary-team-88") == "*** ***"


async def test_the_session_of_a_credential_is_used_again(mcp_server):
    tool = made(idle_s=0.2)
    try:
        for _ in range(3):
            await data(tool, endpoint=mcp_server.url, tool="add", arguments={"a": 1, "b": 1})
        assert len(tool.sessions) == 1
        async with asyncio.timeout(LONG_S):
            while len(tool.sessions):  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)
    finally:
        await tool.close()


async def test_a_cancelled_task_closes_its_request(tool, mcp_server):
    mcp_server.waiting.clear()
    mcp_server.cancelled.clear()
    task = asyncio.create_task(run(tool, endpoint=mcp_server.url, tool="wait"))
    assert await asyncio.to_thread(mcp_server.waiting.wait, 20)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await asyncio.to_thread(mcp_server.cancelled.wait, 20)
    again = await data(tool, endpoint=mcp_server.url, tool="add", arguments={"a": 4, "b": 4})
    assert again["text"] == "8"


@pytest.mark.parametrize(
    ("status", "kind"), [(401, "auth"), (429, "rate_limit"), (503, "server_error")]
)
async def test_a_status_is_the_error_that_it_means(tool, mcp_server, status, kind):
    async def secrets(_alias):
        return {"type": "mcp", "data": {"headers": {"x-refuse": str(status)}}}

    found = await error(tool, endpoint=mcp_server.url, method="tools/list", auth="a",
                        secrets=secrets)  # fmt: skip
    assert told(found) == (kind, f"http_{status}")


async def test_nobody_at_home_is_a_connection_error(tool):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    found = await error(tool, endpoint=f"http://127.0.0.1:{port}/mcp", method="tools/list")
    assert told(found) == ("connection", "CONN_REFUSED")
    assert found["retryable"]


async def test_a_guarded_worker_does_not_reach_inside(mcp_server):
    tool = made(egress=Egress())
    try:
        for transport in ("http", "sse"):
            found = await error(
                tool, endpoint=mcp_server.url, method="tools/list", transport=transport
            )
            assert told(found) == ("egress", "egress_denied")
    finally:
        await tool.close()


async def test_a_server_is_known_by_its_name(mcp_server):
    known = Known(endpoints={"FRONT_DESK": mcp_server.url})
    tool = made(known)
    try:
        listed = await data(tool, server="front-desk", method="tools/list")
        assert listed["server"] == "front-desk"
        unknown = await error(tool, server="back", method="tools/list")
        assert told(unknown) == ("config", "invalid_config")
        assert "NOETL_MCP_BACK_ENDPOINT" in unknown["message"]
    finally:
        await tool.close()


# ---------------------------------------------------------------------------- standard streams


async def test_a_child_serves_on_its_standard_streams(tool):
    where = {"transport": "stdio", "argv": list(STDIO_ARGV)}
    listed = await data(tool, **where, method="tools/list")
    assert {item["name"] for item in listed["result"]["tools"]} == {"add", "environment"}
    assert (await data(tool, **where, tool="add", arguments={"a": 20, "b": 22}))["text"] == "42"
    seen = (await data(tool, **where, tool="environment"))["structured"]["result"]
    assert "SECRET_OF_THE_WORKER" not in seen
    assert "HOME" not in seen


async def test_a_program_that_is_not_listed_is_not_started():
    tool = made(Known(stdio_allow=("/usr/bin/other",)))
    found = await error(tool, transport="stdio", argv=list(STDIO_ARGV), method="tools/list")
    assert told(found) == ("config", "stdio_denied")


async def test_a_child_that_ends_tells_why(tool):
    code = "import sys; sys.stderr.write('no licence'); sys.exit(3)"
    argv = [STDIO_ARGV[0], "-c", code]
    found = await error(tool, transport="stdio", argv=argv, method="tools/list")
    assert told(found) == ("process", "mcp_server_ended")
    assert found["details"]["stderr"] == "no licence"
