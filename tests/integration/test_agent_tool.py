"""The agent tool in real children, and on a worker with a real server."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager

import pytest

from noetl.api.catalog import Register
from noetl.api.client import Client
from noetl.api.executions import Execute
from noetl.api.http import AsgiTransport
from noetl.blobs.memory import MemoryBlobs
from noetl.bus.memory import MemoryBus
from noetl.clock import SystemClock
from noetl.ids import Ids
from noetl.server.app import create_server
from noetl.server.parts import ServerParts
from noetl.store.memory.store import MemoryStore
from noetl.telemetry.redact import Redactor
from noetl.tools.agent import AgentTool
from noetl.tools.base import Parked, ToolContext, run_tool
from noetl.tools.interpreter.pool import Interpreters
from noetl.tools.interpreter.sandbox import Sandbox
from noetl.tools.noop import NoopTool
from tests.unit.worker.fakes import HEAD, Stage

ENVIRON = {"PATH": os.defpath, "LANG": "C.UTF-8"}
AGENTS = '''
class Chain:
    """As langchain has them."""
    def __init__(self, model="none", credentials=None):
        self.model, self.credentials = model, credentials
    def invoke(self, payload, config=None):
        return {"by": "invoke", "model": self.model, "payload": payload, "config": config,
                "key": (self.credentials or {}).get("llm", {}).get("value")}
    async def ainvoke(self, payload, config=None):
        return {**self.invoke(payload, config), "by": "ainvoke"}

class Event:
    def __init__(self, text):
        self.text = text
    def model_dump(self, mode):
        return {"text": self.text, "mode": mode}

class Runner:
    """As adk has them: events, one by one."""
    async def run_async(self, payload):
        yield Event("one")
        yield Event(payload["say"])

def sort(payload):
    print("sorting")
    return sorted(payload["items"])

async def later(payload, *, twice=False):
    return payload * 2 if twice else payload

def broken(payload):
    raise RuntimeError("no brain canary-agent-5c2")

def odd():
    return 7

chain = Chain("ready")
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("agents")
    (made / "acme_agents.py").write_text(AGENTS)
    return made


@pytest.fixture
async def tool():
    async with toolbox("off") as made:  # the modules of these tests lie in /tmp
        yield made


@asynccontextmanager
async def toolbox(mode):
    interpreters = Interpreters(Sandbox.detect(mode), ENVIRON, spares=0)
    try:
        yield AgentTool(interpreters)
    finally:
        await interpreters.close()


async def test_an_agent_runs_in_the_sandbox_that_there_is():
    async with toolbox("prefer") as tool:
        outcome = await run(tool, "", "custom", "string:capwords", payload="two words")
    assert outcome.data["data"] == "Two Words"


async def run(tool, folder, framework, entrypoint, /, ctx=None, **config):
    ctx = ctx or context()
    made = {"kind": "agent", "framework": framework, "entrypoint": entrypoint, **config}
    return await run_tool(tool, {"env": {"PYTHONPATH": str(folder)}, **made}, ctx)


def context(**more):
    return ToolContext(
        execution_id="81", step="s", command_id="c", idempotency_key="k", domain="t/p", **more
    )


async def test_the_data_is_the_envelope_whole(tool, folder):
    lines = []
    ctx = context(on_log=lambda *line: lines.append(line))
    outcome = await run(
        tool, folder, "custom", "acme_agents:sort", ctx=ctx, payload={"items": [2, 1]}
    )
    assert outcome.error is None
    assert outcome.data.pop("duration") >= 0
    assert outcome.data == {
        "status": "ok", "framework": "custom", "entrypoint": "acme_agents:sort", "data": [1, 2],
        "execution_id": "81", "error": None,
    }  # fmt: skip
    assert ("stdout", "info", "sorting") in lines


@pytest.mark.parametrize(
    ("framework", "entrypoint", "more", "data"),
    [
        ("langchain", "acme_agents:Chain", {"entrypoint_args": {"model": "small"}},
         {"by": "ainvoke", "model": "small", "payload": {"q": 1}, "config": None, "key": None}),
        ("langchain", "acme_agents:chain",
         {"invoke_method": "invoke", "invoke_kwargs": {"config": {"n": 8}}},
         {"by": "invoke", "model": "ready", "payload": {"q": 1}, "config": {"n": 8}, "key": None}),
        ("langchain", "acme_agents:Chain", {"entrypoint_args": ["large"]},
         {"by": "ainvoke", "model": "large", "payload": {"q": 1}, "config": None, "key": None}),
        ("adk", "acme_agents:Runner", {"payload": {"say": "two"}},
         [{"text": "one", "mode": "json"}, {"text": "two", "mode": "json"}]),
        ("custom", "acme_agents:later", {"payload": 4, "invoke_kwargs": {"twice": True}}, 8),
        ("custom", "acme_agents:Chain", {"invoke_method": "invoke"},
         {"by": "invoke", "model": "none", "payload": {"q": 1}, "config": None, "key": None}),
    ],
)  # fmt: skip
async def test_an_agent_is_whatever_has_the_method(  # noqa: PLR0913, PLR0917 - the row of a table
    tool, folder, framework, entrypoint, more, data
):
    outcome = await run(tool, folder, framework, entrypoint, **{"payload": {"q": 1}, **more})
    assert outcome.error is None
    assert outcome.data["data"] == data


async def test_an_agent_is_given_its_credentials_and_they_stay_secret(tool, folder):
    redactor = Redactor()

    async def secrets(alias):
        assert alias == "llm_key"
        redactor.add("canary-llm-91b")
        return {"type": "secret", "data": {"value": "canary-llm-91b"}}

    ctx = context(secrets=secrets, redactor=redactor)
    outcome = await run(
        tool, folder, "langchain", "acme_agents:Chain", ctx=ctx, payload=1, auth={"llm": "llm_key"}
    )
    assert outcome.data["data"]["key"] == "***"


@pytest.mark.parametrize(
    ("entrypoint", "word"),
    [
        ("acme_agents:broken", "no brain"),
        ("acme_agents:nothing", "nothing"),
        ("no_such_module:x", "no_such_module"),
        ("acme_agents", "module:attr"),
    ],
)
async def test_an_error_of_the_agent_is_the_providers(tool, folder, entrypoint, word):
    outcome = await run(tool, folder, "custom", entrypoint, payload={})
    assert (outcome.error["kind"], outcome.error["code"]) == ("provider", "agent_failed")
    assert word in outcome.error["message"]
    agent = outcome.error["details"]["agent"]
    assert (agent["status"], agent["framework"]) == ("error", "custom")


async def test_an_object_that_cannot_be_asked_is_an_error(tool, folder):
    outcome = await run(tool, folder, "langchain", "acme_agents:odd", payload={})
    assert "without ainvoke or invoke" in outcome.error["message"]


async def test_a_failed_agent_waits_for_its_diagnosis(tool, folder):
    kept = []
    ctx = context(on_keep=kept.append)
    outcome = await run(
        tool, folder, "custom", "acme_agents:broken", ctx=ctx, payload={"n": 1},
        on_failure={"troubleshoot": "assist/look"},
    )  # fmt: skip
    assert isinstance(outcome, Parked)
    [child] = outcome.request["children"]
    assert (child["path"], child["workload"]["payload"]) == ("assist/look", {"n": 1})
    assert child["workload"]["error"]["code"] == "agent_failed"
    assert kept[0]["error"]["kind"] == "provider"


async def test_requirements_are_off_and_an_entry_point_is_needed(tool, folder):
    denied = await run(tool, folder, "custom", "a:b", requirements=["left-pad"])
    assert denied.error["code"] == "requirements_denied"
    assert (await run(tool, folder, "custom", None)).error["code"] == "invalid_config"


# ---------------------------------------------------------------------------- on a worker


@asynccontextmanager
async def working(*tools):
    clock = SystemClock()
    bus, blobs = MemoryBus(), MemoryBlobs()
    parts = ServerParts(store=MemoryStore(), bus=bus, blobs=blobs, clock=clock, ids=Ids(clock))
    async with create_server(parts) as server:
        client = Client(AsgiTransport(server.asgi))
        async with Stage(client, *tools, bus=bus, blobs=blobs, clock=clock):
            yield server, client


CHILD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: look, path: assist/look}
workflow:
- step: s
  tool: {kind: noop, result: {seen: "{{ workload.error.code | default('nothing') }}"}}
result: "{{ s }}"
"""


async def ended(server, client, workflow):
    await client.register(Register(content=CHILD))
    await client.register(Register(content=HEAD + "workflow:\n" + workflow))
    started = await client.execute(Execute(path="p", payload={}))
    await server.finished(started.execution_id)
    return started.execution_id, await client.execution(started.execution_id)


async def test_an_agent_of_our_own_is_a_playbook_in_the_envelope(tool):
    workflow = """\
- step: s
  tool: {kind: agent, framework: noetl, entrypoint: assist/look, payload: {n: 1}}
"""
    async with working(tool, NoopTool()) as (server, client):
        execution_id, end = await ended(server, client, workflow)
        found = await client.step_result(execution_id, "s")
    assert (end.status, end.error) == ("COMPLETED", None)
    assert (found["status"], found["framework"]) == ("ok", "noetl")
    assert found["data"] == {"seen": "nothing"}


async def test_the_diagnosis_of_a_playbook_is_in_the_error(tool, folder):
    workflow = f"""\
- step: s
  tool:
    kind: agent
    framework: custom
    entrypoint: acme_agents:broken
    payload: {{n: 1}}
    env: {{PYTHONPATH: {folder}}}
    on_failure: {{troubleshoot: assist/look}}
"""
    async with working(tool, NoopTool()) as (server, client):
        _, end = await ended(server, client, workflow)
    assert (end.status, end.error["kind"], end.error["code"]) == (
        "FAILED", "provider", "agent_failed",
    )  # fmt: skip
    assert end.error["details"]["diagnosis"] == {"seen": "agent_failed"}


async def test_a_playbook_that_fails_is_an_error_of_the_agent(tool):
    workflow = """\
- step: s
  tool: {kind: agent, framework: noetl, entrypoint: assist/nowhere, payload: {n: 1}}
"""
    async with working(tool, NoopTool()) as (server, client):
        _, end = await ended(server, client, workflow)
    assert (end.status, end.error["kind"]) == ("FAILED", "provider")
