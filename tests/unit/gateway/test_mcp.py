"""MCP: what is a tool, how messages are read and answered, and what calls come to."""

import asyncio
import base64
import json
from hashlib import sha256

import pytest

from noetl.api.identity import NewRole, PathGrant
from noetl.gateway.mcp.endpoint import PAGE
from noetl.gateway.mcp.tools import FEW, gives, names_of, shape_of
from tests.unit.gateway.rig import gateway_rig
from tests.unit.server.rig import HEAD, PYTHON, virtually

STEP = f"""
workflow:
  - step: start
    tool: {PYTHON}
"""
TOOL = (
    """
inputs:
  city: {type: string, required: true, pattern: "^[A-Z]{3}$"}
"""
    + STEP
)
BUILTINS = {
    "noetl_list_executions", "noetl_get_execution", "noetl_get_events", "noetl_cancel_execution",
    "noetl_validate_playbook", "noetl_search_catalog",
}  # fmt: skip
OLD, TASKS, MODERN = "2025-06-18", "2025-11-25", "2026-07-28"
VERSIONS = [OLD, TASKS, MODERN]
EXTENSION = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


# ------------------------------------------------------------------------------ tools


def test_a_name_is_the_path_with_dots_cut_and_marked_when_it_must_be():
    def marked(path):
        return f"{path.replace('/', '.')[:55]}-{sha256(path.encode()).hexdigest()[:8]}"

    long = "deep/" + "x" * 100
    found = names_of(["a/b", "a.b", "c/d", long, "noetl_get_events"], ["noetl_get_events"])
    assert found == {
        "a/b": marked("a/b"), "a.b": marked("a.b"), "c/d": "c.d", long: marked(long),
        "noetl_get_events": marked("noetl_get_events"),
    }  # fmt: skip
    assert max(map(len, found.values())) == 64


def test_a_playbook_tells_what_it_takes_and_gives():
    shape = shape_of(
        HEAD.replace("{name: demo", "{description: Books., annotations: {readOnlyHint: true, x: 1},"
                     " name: demo")
        + """
inputs:
  city: {type: string, required: true, title: City}
  key: {type: string, secret: true}
workload:
  region: eu  # ui:enum=[eu, us] ui:description=where to run
  token: ""   # ui:secret
  none:       # ui:hidden
output: {value: 1, schema: {$schema: x, type: object, $defs: {a: {}}}}
"""
        + STEP
    )  # fmt: skip
    assert (shape.title, shape.description) == ("demo", "Books.")
    assert shape.annotations == {"readOnlyHint": True}
    assert shape.takes == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["city"],
        "properties": {
            "city": {"type": "string", "title": "City"},
            "key": {"type": "string", "writeOnly": True},
            "region": {"enum": ["eu", "us"], "default": "eu", "description": "where to run"},
            "token": {"type": "string", "writeOnly": True},
        },
    }
    result = {"type": "object", "$defs": {"a": {}}, "$id": "noetl:result"}
    assert shape.gives == gives(result)
    assert shape.gives["properties"]["result"] == {"anyOf": [result, {"type": "null"}]}


@pytest.mark.parametrize(
    "content",
    [
        HEAD + STEP,
        HEAD.replace("path:", "exposes_as_mcp: false, path:") + TOOL,
        "not: a playbook",
        "{",
        "",
    ],
    ids=["no inputs", "hidden", "another kind", "no YAML", "nothing"],
)
def test_what_is_no_tool(content):
    assert shape_of(content) is None


def test_strict_inputs_take_nothing_else():
    strict = "executor: {spec: {strict_inputs: true}}\nworkload: {region: eu}\n"
    shape = shape_of(HEAD + strict + TOOL)
    assert list(shape.takes["properties"]) == ["city"]
    assert shape.takes["additionalProperties"] is False


# ------------------------------------------------------------------------------ messages


class Agent:
    """A client of MCP that writes each message by hand."""

    def __init__(self, caller, version=MODERN, capabilities=None):
        self.caller, self.version = caller, version
        self.capabilities = capabilities or {}

    async def send(self, message, **headers):
        sent = {"mcp-protocol-version": self.version} if self.version else {}
        sent |= {"accept": "application/json, text/event-stream"}
        if self.version == MODERN and isinstance(message, dict):
            sent["mcp-method"] = str(message.get("method"))
            if message.get("method") == "tools/call":
                sent["mcp-name"] = message["params"]["name"]
        given = {k.replace("_", "-"): v for k, v in headers.items()}
        return await self.caller.post("/mcp", message, {**sent, **given})

    async def ask(self, method, **params):
        """The result; an error of the protocol is its code and text."""
        if self.version == MODERN:
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": self.version,
                "io.modelcontextprotocol/clientCapabilities": self.capabilities,
                **params.get("_meta", {}),
            }
        message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        answer = await self.send(message)
        told = json.loads(answer.body)
        assert (told["jsonrpc"], told["id"]) == ("2.0", 7)
        return told["result"] if "result" in told else told["error"]

    async def call(self, name, meta=None, **arguments):
        more = {} if meta is None else {"_meta": meta}
        return await self.ask("tools/call", name=name, arguments=arguments, **more)


PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
BAD = [
    ({**PING, "jsonrpc": "1.0"}, -32600),
    ([PING], -32600),
    ({**PING, "id": None}, -32600),
    ({**PING, "id": True}, -32600),
    ({**PING, "method": 3}, -32600),
    ({**PING, "params": []}, -32600),
    (b"{", -32700),
    (b"\xff", -32700),
]


@pytest.mark.parametrize(("body", "code"), BAD, ids=[f"{n}" for n in range(len(BAD))])
async def test_what_is_no_message_is_400(body, code):
    async with gateway_rig() as rig:
        agent = Agent(rig.caller(await rig.login()), TASKS)
        answer = await agent.send(body)
        assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, code)


async def test_versions():
    async with gateway_rig() as rig:
        caller = rig.caller(await rig.login())
        for version in (*VERSIONS, "2024-11-05", "2031-01-01"):
            message = {**PING, "method": "initialize", "params": {"protocolVersion": version}}
            told = json.loads((await Agent(caller, "").send(message)).body)["result"]
            assert told["protocolVersion"] == (version if version in VERSIONS[:2] else TASKS)
            assert ("tasks" in told["capabilities"]) == (told["protocolVersion"] == TASKS)
        for version in ("2024-11-05", "2031-01-01", "x"):
            answer = await Agent(caller, version).send(PING)
            error = json.loads(answer.body)["error"]
            assert (answer.status, error["code"]) == (400, -32022)
            assert error["data"] == {"supported": VERSIONS, "requested": version}
        found = await Agent(caller).ask("server/discover")
        assert (found["supportedVersions"], found["resultType"]) == (VERSIONS, "complete")


async def test_modern_headers_and_body_must_agree():
    async with gateway_rig() as rig:
        agent = Agent(rig.caller(await rig.login()))
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        call = {**PING, "method": "tools/list", "params": {"_meta": meta}}
        assert (await agent.send(call)).status == 200
        tool = {**PING, "method": "tools/call", "params": {"name": "a", "_meta": meta}}
        encoded = f"=?base64?{base64.b64encode(b'noetl_list_executions').decode()}?="
        named = {**tool, "params": {"name": "noetl_list_executions", "_meta": meta}}
        assert (await agent.send(named, mcp_name=encoded)).status == 200
        for message, headers, code in (
            (call, {"mcp_method": "tools/call"}, -32020),
            (tool, {"mcp_name": "b"}, -32020),
            (tool, {"mcp_name": "=?base64?%%?="}, -32020),
            ({**call, "params": {}}, {}, -32602),
            ({**call, "params": {"_meta": meta | {next(iter(meta)): OLD}}}, {}, -32020),
            ({**call, "method": "ping"}, {}, -32601),
        ):
            answer = await agent.send(message, **headers)
            error = json.loads(answer.body)["error"]
            assert (error["code"], answer.status) == (code, 404 if code == -32601 else 400)


async def test_notifications_are_accepted_and_other_methods_refused():
    async with gateway_rig() as rig:
        caller = rig.caller(await rig.login())
        agent = Agent(caller, TASKS)
        told = await agent.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert (told.status, told.body) == (202, b"")
        assert (await agent.ask("prompts/list"))["code"] == -32601
        assert await agent.ask("ping") == {}
        for method in ("GET", "DELETE"):
            assert (await caller.ask(method, "/mcp")).status == 405


async def test_who_is_not_known_is_told_where_to_look():
    async with gateway_rig() as rig:
        answer = await rig.caller().post("/mcp", PING, {"host": "gate.example"})
        url = "http://gate.example/.well-known/oauth-protected-resource"
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == f'Bearer resource_metadata="{url}"'
        told = await rig.caller().get(url.removeprefix("http://gate.example"), {"host": "h"})
        assert json.loads(told.body) == {
            "resource": "http://h/mcp", "resource_name": "NoETL",
            "bearer_methods_supported": ["header"],
        }  # fmt: skip


async def test_a_page_of_somebody_else_is_refused():
    async with gateway_rig(cors_origins=("https://ours.example",)) as rig:
        agent = Agent(rig.caller(await rig.login()), TASKS)
        answer = await agent.send(PING, origin="https://evil.example")
        assert (answer.status, json.loads(answer.body)["code"]) == (403, "origin_refused")
        assert (await agent.send(PING, origin="https://ours.example")).status == 200


# ------------------------------------------------------------------------------ lists


async def names(agent):
    return {tool["name"] for tool in (await agent.ask("tools/list"))["tools"]} - BUILTINS


async def test_only_playbooks_that_the_caller_may_run_are_listed_and_run():
    async with gateway_rig() as rig:
        for path in ("one/a", "two/b", "system/c"):
            await rig.playbook(TOOL, path)
        grant = PathGrant(effect="allow", actions=("execute",), path="one/*")
        await rig.admin.add_role(NewRole(name="runner", grants=(grant,)))
        deny = PathGrant(effect="deny", actions=("execute",), path="one/*")
        await rig.admin.add_role(NewRole(name="barred", grants=(deny,)))
        seen = {
            "admin": {"one.a", "two.b", "system.c"}, "developer": {"one.a", "two.b"},
            "viewer": set(), "viewer,runner": {"one.a"}, "developer,barred": {"two.b"},
        }  # fmt: skip
        for number, (roles, expected) in enumerate(seen.items()):
            who = await rig.login(f"user{number}", *roles.split(","))
            agent = Agent(rig.caller(who))
            assert await names(agent) == expected
            if roles == "viewer":
                refused = await agent.call("one.a", city="ZRH")
                assert (refused["code"], refused["message"]) == (-32602, "Unknown tool: one.a")


@pytest.mark.parametrize("version", VERSIONS)
async def test_lists_have_pages(version):
    async with gateway_rig() as rig:
        for number in range(PAGE + 10):
            await rig.playbook(TOOL, f"many/p{number:03}")
        agent = Agent(rig.caller(await rig.login()), version)
        first = await agent.ask("tools/list")
        second = await agent.ask("tools/list", cursor=first["nextCursor"])
        assert (len(first["tools"]), "nextCursor" in second) == (PAGE, False)
        found = [tool["name"] for tool in (*first["tools"], *second["tools"])]
        assert len(set(found)) == len(found) == PAGE + 10 + len(BUILTINS)
        assert ("ttlMs" in first) == (version == MODERN)
        tool = next(one for one in first["tools"] if one["name"] == "many.p000")
        assert tool.get("execution") == ({"taskSupport": "optional"} if version == TASKS else None)
        assert (await agent.ask("tools/list", cursor="\u00e9"))["code"] == -32602


# ------------------------------------------------------------------------------ calls


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_call_runs_the_playbook_and_gives_its_result(version):
    async with gateway_rig() as rig:
        await rig.playbook(TOOL)
        agent = Agent(rig.caller(await rig.login()), version)
        async with rig.worker({"answer": 42}):
            found = await agent.call("demo.it", city="ZRH")
        told = found["structuredContent"]
        assert (told["status"], told["result"], found["isError"]) == (
            "COMPLETED", {"answer": 42}, False,
        )  # fmt: skip
        assert json.loads(found["content"][0]["text"]) == told
        assert ("resultType" in found) == (version == MODERN)
        run = await rig.admin.execution(told["execution_id"])
        assert (run.status, run.workload["city"]) == ("COMPLETED", "ZRH")


async def test_a_failed_playbook_is_a_result_with_an_error():
    async with gateway_rig() as rig:
        await rig.playbook(TOOL)
        agent = Agent(rig.caller(await rig.login()))
        calling = asyncio.create_task(agent.call("demo.it", city="ZRH"))
        while not await rig.step(error="no luck"):  # noqa: ASYNC110 - a queue tells nobody
            await asyncio.sleep(0.01)
        found = await calling
        assert found["isError"] is True
        told = found["structuredContent"]
        assert (told["status"], told["error"]["code"]) == ("FAILED", -32000)


async def test_arguments_that_do_not_fit_are_named():
    async with gateway_rig() as rig:
        await rig.playbook(TOOL)
        agent = Agent(rig.caller(await rig.login()))
        for arguments, word in (({}, "city"), ({"city": "x"}, "/city"), ({"city": 3}, "/city")):
            found = await agent.call("demo.it", **arguments)
            assert found["isError"] is True
            assert word in found["content"][0]["text"]
        found = await agent.call("noetl_get_events", execution_id="x")
        assert (found["isError"], "/execution_id" in found["content"][0]["text"]) == (True, True)
        assert (await rig.admin.executions()).items == ()


async def test_a_dry_run_starts_nothing():
    async with gateway_rig() as rig:
        await rig.playbook(TOOL)
        agent = Agent(rig.caller(await rig.login()))
        found = await agent.call("demo.it", {"noetl/dryRun": True}, city="ZRH")
        assert found["structuredContent"] == {"status": "VALID", "problems": []}
        found = await agent.call("demo.it", {"noetl/dryRun": True}, city="x")
        assert found["isError"] is True
        assert (await rig.admin.executions()).items == ()


@virtually
async def test_a_run_of_two_minutes_becomes_a_task_or_goes_on_running():
    async with gateway_rig() as rig:
        await rig.playbook(TOOL)
        caller = rig.caller(await rig.login())
        loop = asyncio.get_running_loop()
        began = loop.time()
        plain = await Agent(caller).call("demo.it", city="ZRH")
        assert plain["structuredContent"]["status"] == "RUNNING"
        assert plain["isError"] is False
        assert 29 <= loop.time() - began <= 35
        agent = Agent(caller, MODERN, EXTENSION)
        task = await agent.call("demo.it", city="ZRH")
        assert (task["resultType"], task["status"]) == ("task", "working")
        assert (await agent.ask("tasks/get", taskId=task["taskId"]))["status"] == "working"
        await asyncio.sleep(90)
        async with rig.worker(5):
            await asyncio.sleep(5)
        found = await agent.ask("tasks/get", taskId=task["taskId"])
        assert (found["status"], found["result"]["structuredContent"]["result"]) == ("completed", 5)


@virtually
async def test_tasks_of_the_version_before():
    async with gateway_rig() as rig:
        await rig.playbook(TOOL)
        agent = Agent(rig.caller(await rig.login()), TASKS)
        asked = {"name": "demo.it", "arguments": {"city": "ZRH"}, "task": {"ttl": 60_000}}
        first = (await agent.ask("tools/call", **asked))["task"]
        second = (await agent.ask("tools/call", **asked))["task"]
        assert first["status"] == second["status"] == "working"
        ended = await agent.ask("tasks/cancel", taskId=second["taskId"])
        assert ended["status"] == "cancelled"
        assert (await agent.ask("tasks/cancel", taskId="nobody's"))["code"] == -32602
        async with rig.worker(5):
            answer = await agent.send(
                {"jsonrpc": "2.0", "id": 1, "method": "tasks/result",
                 "params": {"taskId": first["taskId"]}}
            )  # fmt: skip
        assert answer.headers["content-type"].startswith("text/event-stream")
        (line,) = [one for one in answer.body.split(b"\n") if one.startswith(b"data: {")]
        told = json.loads(line.removeprefix(b"data: "))["result"]
        assert told["structuredContent"]["result"] == 5
        related = {"taskId": first["taskId"]}
        assert told["_meta"] == {"io.modelcontextprotocol/related-task": related}
        listed = {one["taskId"] for one in (await agent.ask("tasks/list"))["tasks"]}
        assert listed == {first["taskId"], second["taskId"]}
        stranger = Agent(rig.caller(await rig.login("eve", "viewer")), TASKS)
        assert (await stranger.ask("tasks/list"))["tasks"] == []


@virtually
async def test_progress_is_told_meanwhile():
    async with gateway_rig() as rig:
        await rig.playbook(TOOL)
        agent = Agent(rig.caller(await rig.login()), TASKS)
        asked = {"name": "demo.it", "arguments": {"city": "ZRH"}, "_meta": {"progressToken": "p"}}
        message = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": asked}
        calling = asyncio.create_task(agent.send(message))
        await asyncio.sleep(5)
        await rig.step(1)
        answer = await calling
        lines = [one for one in answer.body.split(b"\n") if one.startswith(b"data: ")]
        told = [json.loads(one.removeprefix(b"data: ")) for one in lines]
        assert told[0]["method"] == "notifications/progress"
        assert told[0]["params"]["progressToken"] == "p"
        assert told[0]["params"]["message"] == "start"
        steps = [one["params"]["progress"] for one in told[:-1]]
        assert steps == sorted(set(steps))
        assert told[-1]["result"]["structuredContent"]["status"] == "COMPLETED"


@virtually
async def test_only_the_text_of_playbooks_that_nobody_has_seen_is_read():
    async with gateway_rig() as rig:
        paths = [f"demo/it{number}" for number in range(FEW + 1)]
        for path in paths:
            await rig.playbook(TOOL, path)
        asked = []

        async def server(scope, receive, send):
            message = await receive()
            if scope["path"] == "/api/catalog/list":
                asked.append(json.loads(message["body"]))
            sent = iter([message])

            async def again():
                return next(sent, None) or await receive()

            await rig.server.server.asgi(scope, again, send)

        def read():
            seen = [(one.get("path_prefix"), one.get("content", False)) for one in asked]
            asked.clear()
            return seen

        async with rig.replica(upstream_app=server) as other:
            ann, bob = [Agent(other.caller(await rig.login(who))) for who in ("ann", "bob")]
            own = {path.replace("/", ".") for path in paths}
            assert await names(ann) == own
            assert read() == [(None, False), (None, True)]
            assert await names(bob) == own
            assert read() == [(None, False)]
            changed = "# another text\n" + TOOL
            await rig.playbook(changed, "demo/it3")
            await rig.playbook(TOOL, "demo/it33")
            await asyncio.sleep(6)
            assert await names(ann) == own | {"demo.it33"}
            assert read() == [(None, False), ("demo/it3", True), ("demo/it33", True)]


@virtually
async def test_nothing_is_asked_while_nothing_is_heard_of_a_run():
    async with gateway_rig() as rig:
        await rig.playbook(TOOL)
        asked = []

        async def server(scope, receive, send):
            asked.append(scope["path"])
            await rig.server.server.asgi(scope, receive, send)

        who = await rig.login()
        async with rig.replica(upstream_app=server) as other:
            agent = Agent(other.caller(who), TASKS)
            given = {"name": "demo.it", "arguments": {"city": "ZRH"}}
            params = {**given, "_meta": {"progressToken": "p"}}
            message = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}
            calling = asyncio.create_task(agent.send(message))
            await asyncio.sleep(2)
            before = sum(path.startswith("/api/executions/") for path in asked)
            await asyncio.sleep(20)
            assert sum(path.startswith("/api/executions/") for path in asked) == before == 1
            await rig.step(1)
            assert b'"COMPLETED"' in (await calling).body
            assert (await rig.gate.hub.presence.clients_of(session_id=who.session_id)) == []


async def test_the_built_in_tools_ask_the_server_as_the_caller():
    async with gateway_rig() as rig:
        await rig.playbook(TOOL)
        developer = Agent(rig.caller(await rig.login("dev", "operator")))
        viewer = Agent(rig.caller(await rig.login("eve", "viewer")))
        started = await rig.caller(await rig.again("dev")).post(
            "/noetl/execute", {"path": "demo/it", "payload": {"city": "ZRH"}}
        )
        run = json.loads(started.body)["execution_id"]
        listed = await viewer.call("noetl_list_executions", limit=1)
        assert [one["execution_id"] for one in listed["structuredContent"]["items"]] == [run]
        shown = await viewer.call("noetl_get_execution", execution_id=run)
        assert shown["structuredContent"]["status"] == "RUNNING"
        log = await viewer.call("noetl_get_events", execution_id=run, limit=1)
        assert log["structuredContent"]["items"][0]["event_type"] == "playbook.started"
        found = await viewer.call("noetl_search_catalog", query="demo")
        assert [one["path"] for one in found["structuredContent"]["entries"]] == ["demo/it"]
        checked = await viewer.call("noetl_validate_playbook", content=HEAD + TOOL)
        assert checked["structuredContent"]["valid"] is True
        refused = await viewer.call("noetl_cancel_execution", execution_id=run)
        assert refused["isError"] is True
        assert refused["structuredContent"]["error"]["code"] == "forbidden"
        ended = await developer.call("noetl_cancel_execution", execution_id=run, reason="enough")
        assert ended["isError"] is False
        unknown = await viewer.call("noetl_get_execution", execution_id="7")
        assert unknown["structuredContent"]["error"]["code"] == "unknown_execution"


async def test_calls_are_counted():
    async with gateway_rig() as rig:
        agent = Agent(rig.caller(await rig.login()))
        await agent.call("noetl_list_executions")
        await agent.call("noetl_get_execution", execution_id="7")
        await agent.call("nothing")
        text = rig.gate.metrics.render().decode()
        for outcome in ("ok", "error", "refused"):
            assert f'noetl_gateway_mcp_calls_total{{outcome="{outcome}"}} 1.0' in text
