"""Runs that answer a client's request: what the gateway puts in, and what nobody is shown."""

from __future__ import annotations

import asyncio
import json
from hashlib import sha256

import msgspec
import pytest

from noetl.api.catalog import Register
from noetl.api.commands import Claim
from noetl.api.events import Report, Reports
from noetl.api.executions import Execute, Rerun
from noetl.api.http import AsgiTransport
from noetl.api.identity import Login
from noetl.api.problems import Refused
from noetl.api.runtime import WorkerEntry
from noetl.clock import SystemClock
from noetl.dsl.secret_inputs import MASK
from noetl.local.credentials import wallet
from noetl.secrets.sealed import KeyPair
from noetl.secrets.signed import HEADER, key_of, sign
from tests.unit.server.identity.people import CHEAP, account, caller, client_of, refusal
from tests.unit.server.rig import rig, virtually

INNER = "the-internal-token"
TOKEN = "callback-canary-77f1"  # noqa: S105 - the canary of these tests
OTHER = "callback-canary-77f2"
URL = "http://gateway.example:8090"
PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: answer, path: ask/answer}
inputs: {city: {type: string}}
workload: {shown: "to {{ input.callback_token }}"}
executor: {spec: {strict_inputs: true}}
workflow:
  - step: start
    tool: {kind: python, input: {t: "{{ workload.callback_token }}"}, code: "result = t"}
"""
CHILD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: child, path: ask/child}
workflow:
  - step: start
    tool: {kind: http, url: "{{ workload.gateway_url }}/x"}
"""
PARENT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: parent, path: ask/parent}
workflow:
  - step: start
    tool:
      kind: playbook
      path: ask/child
      input: {gateway_url: "{{ workload.gateway_url }}", INPUT: "{{ workload.callback_token }}"}
"""


def stage(**more):
    return rig(
        clock=SystemClock(), wallet=wallet(SystemClock()), is_open=False,
        internal_tokens=(INNER,), password_kib=CHEAP, **more,
    )  # fmt: skip


def asked(path="ask/answer", token=TOKEN, request_id="r-1", **more):
    return Execute(
        path=path,
        workload={
            **({"city": "ZRH"} if path == "ask/answer" else {}),
            "request_id": request_id,
            "gateway_url": URL,
            "callback_token": token,
        },
        request={"request_id": request_id, "client_id": "client-01", "callback_hash": "h"},
        **more,
    )  # fmt: skip


async def secrets_of(at, run):
    return await at.plane.runs.inputs._secrets.of("default", run)  # noqa: SLF001 - what a delivery reads


async def shown(client, run):
    rows = await client.events(run, limit=1000)
    lists = [
        await client.executions(**wanted)
        for wanted in ({"request_id": "r-1"}, {"client_id": "client-01"})
    ]
    detail = await client.execution(run)
    return json.dumps([rows.items, str(detail), str(lists)], default=str)


async def test_the_token_of_a_callback_is_sealed_and_shown_nowhere():
    async with stage() as at:
        door = client_of(at, INNER)
        await door.register(Register(content=PLAYBOOK))
        run = (await door.execute(asked())).execution_id
        row = await at.store.executions.get(run)
        assert row.workload == {
            "city": "ZRH", "request_id": "r-1", "gateway_url": URL, "callback_token": "***",
            "shown": "to ***",
        }  # fmt: skip
        assert await secrets_of(at, run) == {"callback_token": TOKEN}
        assert TOKEN not in await shown(door, run)
        assert TOKEN not in str(await at.store.log.read(run, 0, 100))
        first = (await door.events(run, limit=1)).items[0]
        assert first["meta"]["request"] == {
            "request_id": "r-1", "client_id": "client-01", "callback_hash": "h",
        }  # fmt: skip
        command = (await _claimed(door))[0]
        assert command.meta["callback"] == URL
        assert command.context.bindings["workload"] == {"callback_token": "***"}


async def _claimed(client):
    return (await client.claim(Claim(worker_id="w", pool="shared", free_slots=5))).claimed


async def test_without_a_request_nothing_is_secret_and_no_command_says_so():
    async with stage() as at:
        door = client_of(at, INNER)
        await door.register(Register(content=CHILD))
        body = {"gateway_url": URL, "callback_token": "plain"}
        run = (await door.execute(Execute(path="ask/child", payload=body))).execution_id
        assert (await at.store.executions.get(run)).workload == body
        (command,) = await _claimed(door)
        assert "callback" not in command.meta


async def test_a_rehearsal_and_a_refusal_do_not_tell_it():
    async with stage() as at:
        door = client_of(at, INNER)
        await door.register(Register(content=PLAYBOOK))
        found = await door.rehearse(asked(dry_run=True))
        assert (found.valid, found.workload["callback_token"]) == (True, "***")
        body = msgspec.structs.replace(asked(), workload={"city": 5, "callback_token": TOKEN})
        with pytest.raises(Refused) as caught:
            await door.execute(body)
        assert TOKEN not in str(caught.value.problem)


async def test_a_repeat_with_the_same_id_is_the_same_run():
    async with stage() as at:
        door = client_of(at, INNER)
        await door.register(Register(content=PLAYBOOK))
        run = at.ids.new()
        assert (await door.execute(asked(execution_id=run))).status == "started"
        assert (await door.execute(asked(execution_id=run))).status == "duplicate"
        other = msgspec.structs.replace(asked(execution_id=run), workload={"city": "GVA"})
        assert await refusal(door.execute(other)) == (409, "dedup_conflict")


async def test_a_rerun_keeps_it_secret_and_may_answer_another_request():
    async with stage() as at:
        door = client_of(at, INNER)
        await door.register(Register(content=PLAYBOOK))
        run = (await door.execute(asked())).execution_id
        again = (await door.rerun(run, Rerun())).execution_id
        assert await secrets_of(at, again) == {"callback_token": TOKEN}
        assert (await at.store.executions.get(again)).workload["callback_token"] == MASK
        minted = at.ids.new()
        body = Rerun(
            execution_id=minted,
            request={"request_id": "r-2", "client_id": "client-02"},
            added={"request_id": "r-2", "gateway_url": URL, "callback_token": OTHER},
        )
        assert (await door.rerun(run, body)).execution_id == minted
        assert (await door.rerun(run, body)).status == "duplicate"
        row = await at.store.executions.get(minted)
        assert (row.request_id, row.client_id, row.rerun_of) == ("r-2", "client-02", run)
        assert (row.workload["request_id"], row.workload["city"]) == ("r-2", "ZRH")
        assert row.workload["callback_token"] == MASK
        assert await secrets_of(at, minted) == {"callback_token": OTHER}
        changed = msgspec.structs.replace(body, execution_id=None, payload={"city": "GVA"})
        third = (await door.rerun(run, changed)).execution_id
        assert (await at.store.executions.get(third)).workload["city"] == "GVA"
        assert await secrets_of(at, third) == {"callback_token": OTHER}
        user = await caller(at, "root", "admin")
        for body in (
            Rerun(execution_id="12"),
            Rerun(request={"request_id": "x"}),
            Rerun(added={"a": 1}),
        ):
            assert await refusal(user.rerun(run, body)) == (403, "field_not_allowed")


@pytest.mark.parametrize("name", ["callback_token", "other"])
async def test_a_child_is_handed_it_under_its_own_name_only(name):
    async with stage() as at:
        door = client_of(at, INNER)
        await door.register(Register(content=CHILD))
        await door.register(Register(content=PARENT.replace("INPUT", name)))
        run = (await door.execute(asked("ask/parent"))).execution_id
        children = await _children(at, door, run, is_there=name == "callback_token")
        if name == "other":
            assert children == []
            assert TOKEN not in str(await at.store.log.read(run, 0, 100))
            return
        (child,) = children
        assert child.workload == {"gateway_url": URL, "callback_token": "***"}
        assert child.request_id is None
        assert await secrets_of(at, child.execution_id) == {"callback_token": TOKEN}
        commands = await _claimed(door)
        assert [one.meta["callback"] for one in commands] == [URL]


async def _children(at, door, run, *, is_there):
    """The children of a run, once there are some or the run has failed."""
    watcher = at.server.watch(run)
    try:
        async with asyncio.timeout(20):
            while True:
                watcher.clear()
                page = await door.executions(parent_execution_id=run)
                if page.items:
                    return [await at.store.executions.get(one.execution_id) for one in page.items]
                row = await at.store.executions.get(run)
                if not is_there and row.completed_at is not None:
                    return []
                await asyncio.wait([asyncio.ensure_future(watcher.wait())], timeout=0.5)
    finally:
        at.server.unwatch(run, watcher)


@virtually
async def test_runs_are_found_by_request_and_client_of_any_tenant_by_a_gateway() -> None:
    async with rig(is_open=False, internal_tokens=(INNER,), password_kib=CHEAP) as at:
        door = client_of(at, INNER)
        robot = await caller(at, "gw", "gateway", kind="service")
        theirs = await caller(at, "boss", "admin", tenant_id="acme")
        for client in (door, theirs):
            await client.register(Register(content=CHILD))
        anna = await account(at, "anna", "developer", tenant_id="acme")
        made = await door.login(Login(account_id=anna.account_id))
        claims = {
            "sub": anna.account_id, "name": "anna", "roles": ["developer"], "tenant": "acme",
            "sid": made.session_id, "own": True,
        }  # fmt: skip
        word = sign(claims, key_of(INNER), at.plane.parts.clock.now().timestamp(), "j")
        answer = await AsgiTransport(at.server.asgi).request(
            "POST", "/api/execute", msgspec.json.encode(asked("ask/child")),
            {"authorization": f"Bearer {INNER}", HEADER.lower(): word},
        )  # fmt: skip
        run = msgspec.json.decode(answer.body)["execution_id"]
        mine = client_of(at, made.session_token)
        for client in (door, robot, mine, theirs):
            for found in ({"request_id": "r-1"}, {"client_id": "client-01"}):
                page = await client.executions(**found)
                assert [one.execution_id for one in page.items] == [run]
        for client in (door, robot):
            assert (await client.execution(run)).created_by == "anna"
            assert (await client.executions()).items == ()
            assert (await client.executions(request_id="r-2")).items == ()
        stranger = await caller(at, "eve", "admin")
        assert (await stranger.executions(request_id="r-1")).items == ()


@virtually
async def test_a_request_has_names_that_can_be_names() -> None:
    async with rig(is_open=False, internal_tokens=(INNER,)) as at:
        door = client_of(at, INNER)
        await door.register(Register(content=CHILD))
        for request in (
            {}, {"request_id": 5}, {"request_id": ""}, {"request_id": "a b"},
            {"request_id": "r\n"}, {"request_id": "r", "client_id": 5},
            {"request_id": "r", "client_id": []}, {"request_id": "r", "client_id": "x" * 65},
        ):  # fmt: skip
            asked_for = door.execute(Execute(path="ask/child", request=request))
            assert await refusal(asked_for) == (422, "validation_failed")
        body = Execute(path="ask/child", request={"request_id": "r", "client_id": ""})
        row = await at.store.executions.get((await door.execute(body)).execution_id)
        assert (row.request_id, row.client_id) == ("r", None)


@virtually
async def test_a_gateway_makes_itself_known_with_its_key() -> None:
    async with rig(is_open=False, internal_tokens=(INNER,)) as at:
        robot = await caller(at, "gw", "gateway", kind="service")
        entry = WorkerEntry(
            name="gateway-1", component_type="gateway", uri=URL,
            runtime={"worker_public_key": KeyPair.make().public},
        )  # fmt: skip
        for client in (robot, client_of(at, INNER)):
            assert (await client.register_worker(entry)).name == "gateway-1"
        rows = (await robot.pools(kind="gateway")).items
        assert [(row.name, row.kind, row.uri) for row in rows] == [("gateway-1", "gateway", URL)]
        wrong = msgspec.structs.replace(entry, runtime={"worker_public_key": "x"})
        assert (await refusal(robot.register_worker(wrong)))[0] == 422
        other = msgspec.structs.replace(entry, component_type="worker_pool")
        assert await refusal(robot.register_worker(other)) == (403, "forbidden")


@virtually
async def test_the_first_result_of_a_request_counts_for_a_gateway() -> None:
    async with rig(is_open=False, internal_tokens=(INNER,)) as at:
        robot = await caller(at, "gw", "gateway", kind="service")
        await robot.put_request_result("r-1", b'{"n": 1}')
        await robot.put_request_result("r-1", b'{"n": 1}')
        asked_for = robot.put_request_result("r-1", b'{"n": 2}')
        assert await refusal(asked_for) == (409, "digest_mismatch")
        found = await robot.get_request_result("r-1")
        assert found == b'{"n": 1}'
        user = await caller(at, "root", "admin")
        refused = await refusal(user.get_request_result("r-1"))
        assert refused == (403, "internal_token_mismatch")


@virtually
async def test_a_gateway_reads_the_result_of_a_run_or_where_it_lies() -> None:
    async with rig(is_open=False, internal_tokens=(INNER,), inline_bytes=1_000) as at:
        door, robot = client_of(at, INNER), await caller(at, "gw", "gateway", kind="service")
        await door.register(Register(content=CHILD))
        for value in ({"n": 1}, {"text": "x" * 5_000}):
            run = (await door.execute(asked("ask/child"))).execution_id
            (command,) = (await _claimed(door))[:1]
            report = Report(
                execution_id=run, event_id=at.ids.new(), event_type="call.done",
                step=command.node_name, command_id=command.command_id, attempt=command.attempt,
                payload={"result": value},
            )  # fmt: skip
            await door.report(Reports(worker_id="w", pool="shared", events=(report,)))
            found = await robot.execution(run)
            assert found.status == "COMPLETED"
            if found.reference is None:
                assert found.result == value
                continue
            body = msgspec.json.encode(value)
            assert (found.reference["size"], found.reference["sha256"]) == (
                len(body), sha256(body).hexdigest(),
            )  # fmt: skip
            assert await robot.get_result(found.reference["ref"]) == body
        assert found.reference is not None
