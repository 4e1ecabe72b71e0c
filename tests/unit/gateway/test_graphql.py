"""GraphQL over HTTP: the schema, what each field does, and what is refused before any of it."""

from __future__ import annotations

import json
import re
import time
from typing import Any
from unittest.mock import AsyncMock

import pytest
from graphql import get_introspection_query, parse, print_ast, print_schema

from noetl.api.identity import NewRole, PathGrant
from noetl.api.problems import Problem, Refused
from noetl.gateway.graphql.limits import LimitExceeded, must_fit, parsed
from noetl.gateway.graphql.operations import Operations, shared_schema
from noetl.gateway.graphql.runs import text_of
from noetl.gateway.routes.graphql import Kit
from tests.unit.gateway.rig import Caller, GatewayRig, gateway_rig
from tests.unit.gateway.streaming import events, socket
from tests.unit.server.rig import ONE_STEP

CONTRACT = """
scalar JSON
enum ExecutableResourceKind { playbook agent }
enum Delivery { client session user none }
enum OnTimeout { leave cancel }
type Query { health: String! version: String!
  execution(id: ID!): Execution request(id: ID!): Request
  executions(filter: ExecutionFilter, first: Int = 50, after: String): ExecutionPage!
  requests(first: Int = 50): [Request!]!
  playbooks(search: String, first: Int = 50, after: String): PlaybookPage! }
type Mutation {
  executePlaybook(name: String!, variables: JSON, resourceKind: ExecutableResourceKind = playbook,
    clientId: String, version: Int, delivery: Delivery, idempotencyKey: String, timeoutSecs: Int,
    onTimeout: OnTimeout = leave, wait: Int = 0): ExecuteResult!
  rerunExecution(executionId: String!, variables: JSON, clientId: String): ExecuteResult!
  cancelExecution(executionId: String!, cascade: Boolean = true, reason: String): ExecuteResult!
  proxyRequest(input: ProxyInput!): ProxyResponse! }
type Subscription { executionEvents(executionId: ID!, afterSeq: Int = 0): ExecutionEvent!
  requestUpdates(requestId: ID!): RequestUpdate! }
type ExecuteResult { id: ID! executionId: ID! requestId: ID name: String status: String
  textOutput: String }
"""
"""As the contract prints it."""
RUN = "mutation($name: String!, $key: String, $client: String, $vars: JSON, $wait: Int = 0) {\
 executePlaybook(name: $name, idempotencyKey: $key, clientId: $client, variables: $vars,\
 wait: $wait) { id executionId requestId name status textOutput } }"
BOMBS: dict[str, Any] = {
    "depth 11": {"query": "{a" * 10 + "{a}" + "}" * 10},
    "depth 600": {"query": "{a" * 600 + "}" * 600},
    "16 aliases": {"query": "{" + " ".join(f"a{n}: health" for n in range(16)) + "}"},
    "16 aliases by a fragment": {
        "query": "{...a ...a} fragment a on Query {"
        + " ".join(f"a{n}: health" for n in range(8))
        + "}"
    },
    "the same field 400 times": {
        "query": "{executions(first: 1) {" + "items{id}" * 400 + "}}",
    },
    "2,001 tokens": {"query": "{" + "health " * 1999 + "}"},
    "100,000 tokens": {"query": "{" + "health " * 100_000 + "}"},
    "a nested value": {"query": "{a(b:" + "[" * 900 + "]" * 900 + ")}"},
    "11 root fields": {"query": "{" + " ".join(["health"] * 11) + "}"},
    "cost 1,001": {"query": "{requests(first: 1000) {id state}}"},
    "cost by a variable": {
        "query": "query($n: Int = 5) {requests(first: $n) {id state}}",
        "variables": {"n": 501},
    },
    "cost by default": {
        "query": "{executions {items {id path status version pool priority startedAt completedAt"
        " durationMs currentSteps steps labels eventCount pendingCommands error workload result"
        " reference updatedAt createdBy lastSeq}}}"
    },
    "cost by fragments": {
        "query": "{...f0} "
        + " ".join(f"fragment f{n} on Query {{...f{n + 1} ...f{n + 1}}}" for n in range(30))
        + " fragment f30 on Query {health}"
    },
    "a batch": [{"query": "{health}"}],
    "an empty batch": [],
    "a fragment cycle": {"query": "{...a} fragment a on Query {...b} fragment b on Query {...a}"},
    "a fragment of itself": {"query": "{health} fragment a on Query {...a}"},
    "a chain of fragments": {
        "query": "{...f0} "
        + " ".join(f"fragment f{n} on Query {{...f{n + 1}}}" for n in range(200))
        + " fragment f200 on Query {health}"
    },
    "a body over 1 MiB": {"query": "{health}", "variables": {"a": "x" * (1 << 20)}},
}


class Asker:
    """Somebody who asks."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    async def post(self, body: Any, headers: Any = None) -> tuple[int, dict[str, Any]]:
        """The status and the answer of any body."""
        answer = await self.caller.post("/graphql", body, headers)
        return answer.status, json.loads(answer.body)

    async def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """The data of a query without errors."""
        status, told = await self.post({"query": query, "variables": variables})
        assert (status, told.get("errors")) == (200, None)
        return told["data"]

    async def refused(self, query: str, **variables: Any) -> dict[str, Any]:
        """The one error of a query, and its status."""
        status, told = await self.post({"query": query, "variables": variables})
        (error,) = told["errors"]
        assert error["extensions"]["requestId"]
        return {"status": status, "message": error["message"], **error["extensions"]}


async def asker(rig: GatewayRig, name: str = "ann", *roles: str) -> Asker:
    return Asker(rig.caller(await rig.login(name, *roles)))


def test_the_schema_is_the_one_of_the_contract() -> None:
    said = re.compile(r'^ *""".*?"""\n', re.MULTILINE | re.DOTALL)
    bare = said.sub("", print_schema(shared_schema()[0]))
    ours = {one.name.value: print_ast(one) for one in parse(bare).definitions}
    for theirs in parse(CONTRACT).definitions:
        assert ours[theirs.name.value] == print_ast(theirs)
    implied = {"Execution", "Request", "ExecutionPage", "PlaybookPage", "ExecutionFilter",
               "ExecutionEvent", "RequestUpdate", "ProxyInput", "ProxyResponse"}  # fmt: skip
    assert implied <= set(ours)


async def test_a_run_is_started_followed_repeated_and_ended() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await asker(rig)
        made = (await ann.ask(RUN, name="demo/it", vars={"a": 1}))["executePlaybook"]
        assert made["id"] == made["executionId"]
        assert isinstance(made["id"], str)
        assert (made["name"], made["status"], made["textOutput"]) == ("demo/it", "PENDING", None)
        told = await ann.ask(
            "query($run: ID!, $request: ID!) { execution(id: $run) { id status workload result }"
            " request(id: $request) { requestId executionId state status playbookPath } }",
            run=made["id"],
            request=made["requestId"],
        )
        assert told["execution"]["workload"] == {"a": 1}
        assert told["request"]["executionId"] == made["id"]
        assert told["request"]["playbookPath"] == "demo/it"
        again = await ann.ask(
            "mutation($run: String!) { rerunExecution(executionId: $run, variables: {a: 2})"
            " { id name status requestId } }",
            run=made["id"],
        )
        assert again["rerunExecution"]["name"] == "demo/it"
        assert again["rerunExecution"]["id"] != made["id"]
        ended = await ann.ask(
            'mutation($run: String!) { cancelExecution(executionId: $run, reason: "enough")'
            " { id name status requestId } }",
            run=made["id"],
        )
        assert ended["cancelExecution"]["id"] == made["id"]
        assert ended["cancelExecution"]["requestId"] == made["requestId"]
        assert ended["cancelExecution"]["name"] == "demo/it"


async def test_waiting_tells_the_end_and_its_text() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await asker(rig)
        async with rig.worker({"summary": "all is well", "result": 5}):
            made = (await ann.ask(RUN, name="demo/it", wait=30))["executePlaybook"]
        assert (made["status"], made["textOutput"]) == ("COMPLETED", "all is well")
        for wait in (-1, 61):
            assert (await ann.refused(RUN, name="demo/it", wait=wait))["code"] == "BAD_USER_INPUT"


def test_the_text_of_a_result_is_its_first_field_for_reading() -> None:
    assert text_of({"textOutput": "a", "text_output": "b", "summary": "c"}) == "a"
    assert text_of({"text_output": "b", "summary": "c"}) == "b"
    assert text_of({"summary": "c", "result": "d"}) == "c"
    assert text_of({"result": {"n": 1}}) == '{"n":1}'
    assert text_of({"other": 1}) is None
    assert text_of(None) is None
    assert text_of([1]) is None


async def test_lists_have_pages_and_filters() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        await rig.playbook(ONE_STEP, "other/one")
        ann = await asker(rig)
        runs = [
            (await ann.ask(RUN, name=name))["executePlaybook"]["id"]
            for name in ("demo/it", "demo/it", "other/one")
        ]
        first = (await ann.ask("{executions(first: 2) {items {id result} nextCursor}}"))[
            "executions"
        ]
        assert len(first["items"]) == 2
        rest = await ann.ask(
            "query($after: String) {executions(first: 2, after: $after) {items {id}}}",
            after=first["nextCursor"],
        )
        found = [one["id"] for one in (*first["items"], *rest["executions"]["items"])]
        assert sorted(found) == sorted(runs)
        one = await ann.ask('{executions(filter: {path: "other/*"}) {items {id path}}}')
        assert [each["path"] for each in one["executions"]["items"]] == ["other/one"]
        requests = (await ann.ask("{requests(first: 2) {id executionId}}"))["requests"]
        assert len(requests) == 2
        playbooks = await ann.ask('{playbooks(search: "other") {items {path version}}}')
        assert playbooks["playbooks"]["items"] == [{"path": "other/one", "version": 1}]
        for text in ("{requests(first: 0) {id}}", "{executions(first: 201) {items {id}}}"):
            assert (await ann.refused(text))["code"] == "BAD_USER_INPUT"


async def test_a_proxied_call_obeys_the_rules_of_the_proxy() -> None:
    text = "mutation($in: ProxyInput!) {proxyRequest(input: $in) {status headers body}}"
    async with gateway_rig() as rig:
        viewer = await asker(rig, "vic", "viewer")
        good = {"path": "executions", "query": "limit=1"}
        told = (await viewer.ask(text, **{"in": good}))["proxyRequest"]
        assert told["status"] == 200
        assert told["body"]["items"] == []
        forbidden = {"path": "catalog/register", "method": "POST", "body": {"content": "x"}}
        told = (await viewer.ask(text, **{"in": forbidden}))["proxyRequest"]
        assert told["status"] == 403
        refusals = {"internal/x": "NOT_FOUND", "%2e%2e/x": "BAD_USER_INPUT",
                    "/x": "BAD_USER_INPUT", "a%252fb": "BAD_USER_INPUT"}  # fmt: skip
        for path, code in refusals.items():
            assert (await viewer.refused(text, **{"in": {"path": path}}))["code"] == code
        other = {"path": "executions", "method": "TRACE"}
        assert (await viewer.refused(text, **{"in": other}))["code"] == "BAD_USER_INPUT"


async def test_a_deny_grant_beats_another_roles_allow_through_graphql() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        deny = PathGrant(effect="deny", actions=("execute",), path="demo/*")
        await rig.admin.add_role(NewRole(name="kept_out", grants=(deny,)))
        bob = await asker(rig, "bob", "developer")
        assert (await bob.ask(RUN, name="demo/it"))["executePlaybook"]["id"]
        eve = await asker(rig, "eve", "developer", "kept_out")
        refusal = await eve.refused(RUN, name="demo/it")
        assert (refusal["code"], refusal["rpcCode"], refusal["status"]) == (
            "FORBIDDEN",
            -32003,
            403,
        )


async def test_another_users_client_id_gets_403_in_graphql() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann, bob = await rig.login("ann"), await rig.login("bob")
        async with events(rig.gateway.asgi, ann.headers, client_id="client-of-ann"):
            theirs = {"name": "demo/it", "client": "client-of-ann"}
            refusal = await Asker(rig.caller(bob)).refused(RUN, **theirs)
            assert refusal["status"] == 403
            assert (refusal["code"], refusal["rpcCode"]) == ("FORBIDDEN", -32003)
            assert (await Asker(rig.caller(ann)).ask(RUN, **theirs))["executePlaybook"]["id"]


async def test_one_idempotency_key_twice_is_one_run_and_another_body_a_conflict() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await asker(rig)
        first, second = [
            (await ann.ask(RUN, name="demo/it", key="k1", vars={"a": 1}))["executePlaybook"]
            for _ in range(2)
        ]
        assert first == second
        assert len((await ann.ask("{executions {items {id}}}"))["executions"]["items"]) == 1
        refusal = await ann.refused(RUN, name="demo/it", key="k1", vars={"a": 2})
        assert refusal["code"] == "CONFLICT"
        header = {"idempotency-key": "k2"}
        body = {"query": RUN, "variables": {"name": "demo/it"}}
        answers = [(await ann.post(body, header))[1]["data"] for _ in range(2)]
        assert answers[0] == answers[1]


async def test_execute_behaves_the_same_on_rpc_graphql_and_ws() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await rig.login()
        caller = rig.caller(ann)
        calls: list[Any] = [
            {"name": "demo/it"},
            {"name": "demo/it", "variables": {"a": 1}, "clientId": "client-00001"},
            {"name": "demo/it", "idempotencyKey": "once"},
            {"name": "no/such"},
            {"name": "demo/it", "variables": "x"},
            {"name": "demo/it", "clientId": "client-unknown"},
            {},
        ]
        async with socket(rig.gateway.asgi, ann.headers) as ws:
            await ws.call("initialize", {"clientId": "client-00001"})
            for params in calls:
                body = {"jsonrpc": "2.0", "id": 1, "method": "playbook/execute", "params": params}
                one, two = [await caller.post(path, body) for path in ("/rpc", "/graphql")]
                three = await ws.call("playbook/execute", params)
                assert one.status == two.status
                told = [json.loads(one.body), json.loads(two.body), three]
                shapes = [each.get("error") or each["result"]["status"] for each in told]
                assert shapes[0] == shapes[1] == shapes[2], params
        for odd in ([{"jsonrpc": "2.0", "id": 1, "method": "ping"}], {"jsonrpc": "2.0"}):
            one, two = [await caller.post(path, odd) for path in ("/rpc", "/graphql")]
            assert (one.status, one.body) == (two.status, two.body)
        notice = {"jsonrpc": "2.0", "method": "ping"}
        assert (await caller.post("/graphql", notice)).status == 202


async def test_what_asks_for_too_much_is_refused_at_once_and_before_any_resolver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = []
    async with gateway_rig() as rig:
        ann = await asker(rig)
        await ann.ask("{health}")  # the kit is there
        monkeypatch.setattr(Operations, "done", lambda *given: done.append(given))
        for name, body in BOMBS.items():
            spent = []
            for _ in range(3):
                began = time.perf_counter()
                status, told = await ann.post(body)
                spent.append(time.perf_counter() - began)
            codes = {one["extensions"]["code"] for one in told["errors"]}
            assert (status, codes) == (400, {"LIMIT_EXCEEDED"}), name
            assert "data" not in told
            assert min(spent) <= 0.2, name  # 20 ms on a machine that does nothing else
        assert done == []
        assert rig.gate.metrics.graphql.value("other", "limited") == 3 * len(BOMBS)


@pytest.mark.parametrize("text", [
    "{a{b{c{d{e{f{g{h{i{j}}}}}}}}}}", "{" + " ".join(f"a{n}: health" for n in range(10)) + "}",
    "{" + " ".join(["health"] * 10) + "}", "{requests(first: 999) {id}}",
    "{executions(first: 50) {items {" + " ".join(f"f{n}" for n in range(19)) + "} nextCursor}}",
    '{a(b: """x "quoted" \\""" y""", c: "}{\\"", d: [[1, -2.5e3]])} # } and more {{{{',
])  # fmt: skip
def test_what_is_just_within_the_limits_is_taken(text: str) -> None:
    must_fit(parsed(text), {}, shared_schema()[1])


def test_tokens_are_counted_as_the_parser_does() -> None:
    for count, is_over in ((1998, False), (1999, True)):
        text = "{" + "a " * count + "}"
        if is_over:
            with pytest.raises(LimitExceeded):
                parsed(text)
        else:
            parsed(text)
    parsed("# a comment\n" * 3000 + "{a}")


async def test_bodies_that_are_no_operation_are_refused() -> None:
    async with gateway_rig() as rig:
        ann = await asker(rig)
        json_type = {"content-type": "application/json"}
        cases: list[tuple[Any, int]] = [
            (b"{", 400), (b"5", 400), ({}, 400), ({"query": 5}, 400), ({"query": "{"}, 400),
            ({"query": "{no}"}, 400), ({"query": "{health}", "variables": []}, 400),
            ({"query": "{health}", "operationName": "x"}, 400),
            ({"query": "query($a: Int!) {requests(first: $a) {id}}"}, 400),
            ({"query": "subscription {requestUpdates(requestId: 1) {id}}"}, 400),
            ({"query": "query a {health} query b {health}"}, 400),
        ]  # fmt: skip
        for body, status in cases:
            found, told = await ann.post(body, json_type)
            assert (found, told["errors"][0]["extensions"]["code"]) == (status, "BAD_USER_INPUT")
        found, told = await ann.post(b"query=1", {"content-type": "text/plain"})
        assert (found, told["errors"][0]["extensions"]["code"]) == (415, "BAD_USER_INPUT")
        body = {"query": "query a {health} query b {version}", "operationName": "a"}
        assert (await ann.post(body))[1] == {"data": {"health": "ok"}}


async def test_a_caller_without_a_session_gets_401_that_callers_of_both_kinds_understand() -> None:
    async with gateway_rig() as rig:
        status, told = await Asker(rig.caller()).post({"query": "{health}"})
        assert (status, told["error"]["code"]) == (401, -32002)
        extensions = told["errors"][0]["extensions"]
        assert (extensions["code"], extensions["rpcCode"]) == ("UNAUTHENTICATED", -32002)
        assert extensions["requestId"]


async def test_the_schema_is_shown_only_where_it_is_switched_on() -> None:
    whole = get_introspection_query()
    async with gateway_rig() as rig:
        ann = await asker(rig)
        assert (await ann.post({"query": "{__schema {types {name}}}"}))[0] == 400
        assert (await ann.ask("{__typename}")) == {"__typename": "Query"}
        assert "Did you mean" not in (await ann.refused("{helth}"))["message"]
        for path in ("/graphql", "/graphql/page.js"):
            assert (await ann.caller.get(path)).status == 404
    async with gateway_rig(shows_schema=True) as rig:
        ann = await asker(rig)
        assert (await ann.ask(whole))["__schema"]["queryType"]["name"] == "Query"
        assert "Did you mean" in (await ann.refused("{helth}"))["message"]
        wide = "{__schema {types {fields {type {fields {type {fields {type {name}}}}}}}}}"
        assert (await ann.post({"query": wide}))[0] == 400
        page = await ann.caller.get("/graphql")
        assert page.headers["content-type"].startswith("text/html")
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert b"http" not in page.body
        script = await ann.caller.get("/graphql/page.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert b"http" not in script.body
        assert (await rig.caller().get("/graphql")).status == 401


async def test_errors_never_tell_what_the_server_said() -> None:
    async with gateway_rig() as rig:
        ann = await asker(rig)

        def said(status: int, code: str) -> Refused:
            return Refused(Problem(type="x", status=status, code=code, title="x", detail="SECRET"))

        cases: list[tuple[Exception, str, int]] = [
            (said(404, "unknown_execution"), "NOT_FOUND", -32008),
            (said(500, "internal"), "UPSTREAM", -32603),
            (RuntimeError("SECRET"), "UPSTREAM", -32603),
        ]
        for fault, code, rpc in cases:
            rig.gate.requests.document = AsyncMock(side_effect=fault)
            refusal = await ann.refused('{request(id: "1") {id}}')
            assert (refusal["code"], refusal["rpcCode"]) == (code, rpc)
            assert "SECRET" not in json.dumps(refusal)


async def test_operations_are_counted() -> None:
    async with gateway_rig() as rig:
        await rig.playbook(ONE_STEP)
        ann = await asker(rig)
        await ann.ask("{health}")
        await ann.ask(RUN, name="demo/it")
        await ann.refused('{execution(id: "12345") {id}}')
        await ann.post({"query": "{"})
        counted = rig.gate.metrics.graphql
        assert counted.value("query", "ok") == 1
        assert counted.value("mutation", "ok") == 1
        assert counted.value("query", "error") == 1
        assert counted.value("other", "refused") == 1


async def test_a_kit_that_could_not_be_loaded_is_loaded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with gateway_rig() as rig:
        kit = Kit(rig.gate)

        def fail() -> None:
            raise OSError("no file")

        with monkeypatch.context() as patch:
            patch.setattr("noetl.gateway.routes.graphql._load", fail)
            with pytest.raises(OSError, match="no file"):
                await kit.get()
        assert await kit.get() is await kit.get()
