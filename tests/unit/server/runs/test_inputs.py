"""Secret inputs: taken out of the workload, sealed, handed on, and told nowhere."""

import json

import pytest

from noetl.api.catalog import Register
from noetl.api.commands import Claim
from noetl.api.executions import Execute, Fork, Rerun
from noetl.api.problems import Refused
from noetl.api.schedules import ScheduleBody
from noetl.clock import SystemClock
from noetl.dsl.secret_inputs import MASK
from noetl.local.credentials import wallet
from tests.unit.server.rig import rig

PASS = "s3cret-in-7f1"  # noqa: S105 - the canary of these tests
OTHER = "s3cret-in-7f2"
SHORT = "abc"
PARENT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: up, path: in/up}
inputs:
  token: {type: string, secret: true, required: true, min_length: 4}
  city: {type: string}
workload:
  header: "Bearer {{ input.token }}"
  pin: ""  # ui:secret
executor: {spec: {concurrency: {key: "{{ workload.token }}", limit: 5}}}
workflow:
  - step: start
    tool: {kind: python, input: {t: "{{ workload.token }}"}, code: "result = t"}
"""
CHILD = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: down, path: in/down}
inputs: {key: {type: string, secret: true}, note: {type: string}}
workflow:
  - step: start
    tool: {kind: python, input: {k: "{{ key }}"}, code: "result = k"}
"""


def calling(inputs):
    return f"""\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: call, path: in/call}}
inputs: {{token: {{type: string, secret: true}}}}
workflow:
  - step: start
    tool: {{kind: playbook, path: in/down, input: {inputs}}}
"""


def stage():
    return rig(clock=SystemClock(), wallet=wallet(SystemClock()))


async def started(at, text=PARENT, **payload):
    entry = await at.client.register(Register(content=text))
    body = Execute(catalog_id=entry.catalog_id, payload=payload)
    return (await at.client.execute(body)).execution_id


async def secrets_of(at, execution_id):
    return await at.plane.runs.inputs._secrets.of("default", execution_id)  # noqa: SLF001 - what a delivery reads


async def told(at, execution_id):
    """All that the server shows of a run."""
    rows = await at.client.events(execution_id, limit=1000)
    detail = await at.client.execution(execution_id)
    return json.dumps([rows.items, str(detail)], default=str)


async def test_a_secret_input_is_masked_in_all_that_is_stored_and_sealed_beside_it():
    async with stage() as at:
        run = await started(at, token=PASS, city="ZRH", pin=OTHER)
        row = await at.store.executions.get(run)

        assert row.workload == {
            "token": "***", "city": "ZRH", "pin": "***", "header": "Bearer ***",
        }  # fmt: skip
        assert await secrets_of(at, run) == {"token": PASS, "pin": OTHER}
        assert PASS not in await told(at, run)
        assert PASS not in str(await at.store.execution_secrets.get(run))
        command = (await at.claim())[0]
        assert command.context.bindings["workload"] == {"token": "***"}


async def test_the_real_value_is_checked_and_the_refusal_does_not_tell_it():
    async with stage() as at:
        with pytest.raises(Refused) as caught:
            await started(at, token=SHORT)
        assert caught.value.code == "invalid_input"
        assert [item["pointer"] for item in caught.value.problem.errors] == ["/token"]
        assert "abc" not in str(caught.value.problem)


async def test_what_is_empty_says_nothing_and_stays():
    async with stage() as at:
        run = await started(at, token=PASS)
        assert (await at.store.executions.get(run)).workload["pin"] == ""
        assert await secrets_of(at, run) == {"token": PASS}


async def test_a_rehearsal_shows_no_secret():
    async with stage() as at:
        entry = await at.client.register(Register(content=PARENT))
        body = Execute(catalog_id=entry.catalog_id, payload={"token": PASS}, dry_run=True)
        found = await at.client.rehearse(body)
        assert (found.valid, found.workload["token"]) == (True, "***")
        assert PASS not in str(found)


async def test_one_key_with_another_secret_is_another_wish():
    async with stage() as at:
        entry = await at.client.register(Register(content=PARENT))

        async def execute(value):
            body = Execute(catalog_id=entry.catalog_id, payload={"token": value})
            return await at.plane.starts.execute(body, key="k-1")

        first = await execute(PASS)
        assert (await execute(PASS)).execution_id == first.execution_id
        with pytest.raises(Exception, match="another request") as caught:
            await execute(OTHER)
        assert caught.value.code == "dedup_conflict"


async def test_items_of_a_batch_have_secrets_of_their_own():
    async with stage() as at:
        entry = await at.client.register(Register(content=PARENT))
        answer = await at.client.execute_batch([
            Execute(catalog_id=entry.catalog_id, payload={"token": value})
            for value in (PASS, OTHER)
        ])  # fmt: skip
        runs = [item.execution_id for item in answer.results]
        assert [await secrets_of(at, run) for run in runs] == [{"token": PASS}, {"token": OTHER}]


async def test_a_rerun_and_a_fork_take_the_secrets_over():
    async with stage() as at:
        run = await started(at, token=PASS, city="ZRH")
        again = await at.client.rerun(run, Rerun())
        other = await at.client.rerun(run, Rerun(payload={"token": "***", "city": "GRZ"}))
        new = await at.client.rerun(run, Rerun(payload={"token": OTHER}))
        fork = await at.client.fork(run, Fork(from_seq=1))

        for one, value in ((again, PASS), (other, PASS), (new, OTHER), (fork, PASS)):
            assert await secrets_of(at, one.execution_id) == {"token": value}
            assert (await at.store.executions.get(one.execution_id)).workload["token"] == MASK
        assert (await at.store.executions.get(other.execution_id)).workload["city"] == "GRZ"


async def settled(at, run, holds):
    for _ in range(200):
        if await holds():
            return
        await at.client.claim(_waiting())
    raise AssertionError(await at.rows(run))


def _waiting():
    return Claim(worker_id="none", pool="none", free_slots=1, wait_seconds=0.05)


@pytest.mark.parametrize("inputs", ['{key: "{{ workload.token }}"}', '{key: "{{ token }}"}'])
async def test_a_child_gets_a_secret_that_its_parent_names(inputs):
    async with stage() as at:
        await at.client.register(Register(content=CHILD))
        run = await started(at, calling(inputs), token=PASS)

        async def begun():
            return bool(await at.store.executions.children(run))

        await settled(at, run, begun)
        child = (await at.store.executions.children(run))[0]
        assert child.workload == {"key": "***"}
        assert await secrets_of(at, child.execution_id) == {"key": PASS}
        assert PASS not in await told(at, run) + await told(at, child.execution_id)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ('{note: "{{ workload.token }}"}', "declare it `secret: true`"),
        ('{key: "Bearer {{ workload.token }}"}', "name it alone"),
    ],
)
async def test_a_child_that_cannot_keep_a_secret_gets_none(inputs, says):
    async with stage() as at:
        await at.client.register(Register(content=CHILD))
        run = await started(at, calling(inputs), token=PASS)

        async def failed():
            return await at.status(run) == "FAILED"

        await settled(at, run, failed)
        assert says in await told(at, run)
        assert await at.store.executions.children(run) == []


async def test_a_schedule_keeps_the_secrets_of_its_payload_sealed():
    async with stage() as at:
        await at.client.register(Register(content=PARENT))
        body = ScheduleBody(
            name="nightly", path="in/up", cron="0 0 * * *", payload={"token": PASS, "city": "ZRH"}
        )
        made = await at.client.add_schedule(body)
        assert made.payload == {"token": "***", "city": "ZRH"}
        assert PASS not in str(await at.store.schedules.get(made.schedule_id))

        fired = await at.client.trigger_schedule(made.schedule_id)
        assert await secrets_of(at, fired.execution_id) == {"token": PASS}
