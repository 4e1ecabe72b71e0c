"""The official MCP client at the gateway, over a socket, in every version that it speaks."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import version as known

from noetl.clock import SystemClock
from tests.integration.test_gateway_process import gateway_process, token_of
from tests.servers.gateway import PASSWORD
from tests.unit.gateway.rig import INTERNAL, gateway_rig
from tests.unit.gateway.served import served
from tests.unit.server.rig import PYTHON
from tests.unit.server.rig import rig as server_rig

TOOL = f"""
inputs:
  city: {{type: string, required: true, description: IATA code}}
output:
  value: {{city: "{{{{ workload.city }}}}", legs: [1, 2]}}
  schema:
    type: object
    required: [city, legs]
    properties: {{city: {{type: string}}, legs: {{$ref: "#/$defs/legs"}}}}
    $defs: {{legs: {{type: array, items: {{type: integer}}}}}}
workflow:
  - step: start
    tool: {PYTHON}
"""
TELLING = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: told, path: {path}}}
inputs: {{parcels: {{type: integer, required: true}}}}
workload: {{request_id: "", gateway_url: ""}}
workflow:
  - step: begin
    tool:
      kind: http
      method: POST
      url: "{{{{ workload.gateway_url }}}}/api/internal/progress"
      json:
        request_id: "{{{{ workload.request_id }}}}"
        step: begin
        message: half of it
        progress: 0.5
"""
VERSIONS = ["2025-06-18", "2025-11-25", "2026-07-28"]


@asynccontextmanager
async def connected(url, who, version):
    """The official client, signed in as somebody, made to speak one version."""
    async with httpx2.AsyncClient(headers=who.headers, timeout=60) as http:
        mode = version if version in known.MODERN_PROTOCOL_VERSIONS else "legacy"
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with asyncio.timeout(60), Client(transport, mode=mode) as client:
            yield client


@pytest.fixture(params=VERSIONS)
def version(request, monkeypatch):
    """One version; the client offers the newest of its own unless it is told."""
    if request.param in known.HANDSHAKE_PROTOCOL_VERSIONS:
        for module in ("mcp.client.session", "mcp_types.version"):
            monkeypatch.setattr(f"{module}.LATEST_HANDSHAKE_VERSION", request.param)
    return request.param


async def test_the_official_client_lists_and_calls_tools(version):
    async with gateway_rig() as rig, served(rig.gateway.asgi) as url:
        await rig.playbook(TOOL, "air/fly")
        await rig.playbook(TOOL, "system/hidden")
        who = await rig.login()
        async with connected(url, who, version) as client, rig.worker(1):
            assert client.session.protocol_version == version
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert [name for name in tools if not name.startswith("noetl_")] == ["air.fly"]
            assert tools["air.fly"].input_schema["required"] == ["city"]
            found = await client.call_tool("air.fly", {"city": "ZRH"})
            assert not found.is_error
            assert found.structured_content["status"] == "COMPLETED"
            assert found.structured_content["result"] == {"city": "ZRH", "legs": [1, 2]}
            run = found.structured_content["execution_id"]
            shown = await client.call_tool("noetl_get_execution", {"execution_id": run})
            assert shown.structured_content["status"] == "COMPLETED"
            wrong = await client.call_tool("air.fly", {"city": 3})
            assert wrong.is_error
            assert "/city" in wrong.content[0].text
            dry = await client.call_tool("air.fly", {"city": "ZRH"}, meta={"noetl/dryRun": True})
            assert dry.structured_content == {"status": "VALID", "problems": []}
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("air.walk", {})


async def test_the_official_client_hears_progress(version):
    async with gateway_rig() as rig, served(rig.gateway.asgi) as url:
        await rig.playbook(TOOL, "air/fly")
        who = await rig.login()
        heard = asyncio.Event()

        async def progress(*_):
            heard.set()

        async def work():
            await heard.wait()
            await rig.step(1)

        async with connected(url, who, version) as client:
            working = asyncio.create_task(work())
            found = await client.call_tool("air.fly", {"city": "ZRH"}, progress_callback=progress)
            await working
        assert found.structured_content["status"] == "COMPLETED"


async def test_the_official_client_hears_what_a_playbook_tells_at_another_gateway(version):
    async with gateway_rig() as rig, rig.replica() as other, served(rig.gateway.asgi) as url:
        await rig.playbook(TOOL, "air/fly")
        who = await rig.login()
        heard = asyncio.Queue()

        async def progress(*told):
            heard.put_nowait(told)

        async def work():
            first = await heard.get()
            listed = await other.caller(who).get("/api/requests")
            (request,) = json.loads(listed.body)["items"]
            told = {"request_id": request["requestId"], "step": "start", "message": "half of it"}
            answer = await other.caller(authorization=f"Bearer {INTERNAL}").post(
                "/api/internal/progress", {**told, "progress": 0.5}
            )
            second = await heard.get()
            await rig.step(1)
            return first, json.loads(answer.body), second

        async with connected(url, who, version) as client:
            working = asyncio.create_task(work())
            found = await client.call_tool("air.fly", {"city": "ZRH"}, progress_callback=progress)
            made = await working
        assert made == ((1.0, None, "start"), {"status": "sent"}, (2.0, 4.0, "start: half of it"))
        assert found.structured_content["status"] == "COMPLETED"


async def test_the_official_client_hears_a_step_that_posts_its_progress(gateway_stack):
    """On the whole stack: the broker, a gateway, a server and a worker."""
    path = f"mcp/{gateway_stack.name('told')}"
    await asyncio.to_thread(gateway_stack.register, TELLING.format(path=path))
    email = await asyncio.to_thread(gateway_stack.account)
    heard = []

    async def progress(*told):
        heard.append(told)

    async with httpx2.AsyncClient(base_url=gateway_stack.url, timeout=60) as http:
        answer = await http.post("/api/auth/login", json={"email": email, "password": PASSWORD})
        http.headers["authorization"] = f"Bearer {answer.json()['session_token']}"
        transport = streamable_http_client(f"{gateway_stack.url}/mcp", http_client=http)
        async with asyncio.timeout(60), Client(transport) as client:
            found = await client.call_tool(
                path.replace("/", "."), {"parcels": 3}, progress_callback=progress
            )
    assert found.structured_content["status"] == "COMPLETED"
    (own,) = [told for told in heard if told[2] == "begin: half of it"]
    assert own[0] / own[1] == 0.5
    assert [told[0] for told in heard] == [float(number + 1) for number in range(len(heard))]


async def test_a_viewer_has_only_the_built_in_tools(version):
    async with gateway_rig() as rig, served(rig.gateway.asgi) as url:
        await rig.playbook(TOOL, "air/fly")
        who = await rig.login("eve", "viewer")
        async with connected(url, who, version) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert [name for name in names if not name.startswith("noetl_")] == []
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("air.fly", {"city": "ZRH"})


async def test_the_client_finds_the_version_by_itself():
    async with gateway_rig() as rig, served(rig.gateway.asgi) as url:
        who = await rig.login()
        async with httpx2.AsyncClient(headers=who.headers, timeout=60) as http:
            transport = streamable_http_client(f"{url}/mcp", http_client=http)
            async with asyncio.timeout(60), Client(transport) as client:
                assert client.session.protocol_version == "2026-07-28"
                assert client.server_info.name == "noetl-gateway"


async def test_a_gateway_process_passes_calls_on_and_minds_its_shards(nats_server, tmp_path):
    """The whole process: its map of the shards is not the server's, whose N is 1."""
    told = {"is_open": False, "internal_tokens": (INTERNAL,), "password_kib": 64}
    async with (
        server_rig(**told, clock=SystemClock()) as server,
        served(server.server.asgi) as behind,
        gateway_process(
            tmp_path,
            NOETL_SERVER_URL=behind,
            NOETL_NATS_URL=nats_server.url,
            NOETL_SHARD_SERVERS=f"{behind},{behind}",
        ) as gateway,
        httpx2.AsyncClient(timeout=60) as http,
    ):
        async with asyncio.timeout(60):
            while (found := await _ready(http, gateway.url)).get("shards") != "mismatch":
                assert gateway.process.returncode is None
                await asyncio.sleep(0.05)
        assert found["http"] == 503
        http.headers["authorization"] = f"Bearer {await token_of(server)}"
        runs = await http.get(f"{gateway.url}/noetl/executions")
        assert (runs.status_code, runs.json()["items"]) == (200, [])
        one = await http.get(f"{gateway.url}/noetl/executions/1")
        assert (one.status_code, one.json()["code"]) == (503, "shard_map_mismatch")
        transport = streamable_http_client(f"{gateway.url}/mcp", http_client=http)
        async with asyncio.timeout(60), Client(transport) as client:
            listed = await client.call_tool("noetl_list_executions", {})
            assert listed.structured_content["items"] == []


async def _ready(http, url):
    try:
        answer = await http.get(f"{url}/ready")
    except httpx2.TransportError:
        return {}
    return {"http": answer.status_code, **answer.json()}
