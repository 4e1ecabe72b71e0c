"""What a start is made of."""

from __future__ import annotations

import asyncio

import pytest

from noetl.api.catalog import Register
from noetl.api.executions import Control, Dedup, Execute, Fork, Rerun
from noetl.api.problems import Refused
from tests.unit.server.rig import HEAD, ONE_STEP, TWO_STEPS, rig, virtually

INPUTS = "inputs: {n: {type: integer, required: true}, s: {type: string, default: x}}\n"

PARENT = f"00-{'1' * 32}-{'2' * 16}-01"


@virtually
async def test_a_payload_is_merged_over_the_defaults_and_rendered_once() -> None:
    body = "workload: {a: {x: 1, y: 2}, b: '{{ a.x + 1 }}', id: '{{ execution.id }}'}\n"
    async with rig() as r:
        run = await r.start(body + ONE_STEP.lstrip(), payload={"a": {"y": 3}, "c": "{{ no }}"})
        told = await r.client.execution(run)
        assert told.workload == {"a": {"x": 1, "y": 3}, "b": 2, "id": run, "c": "{{ no }}"}


@virtually
async def test_a_payload_that_breaks_the_inputs_is_refused_with_pointers() -> None:
    async with rig() as r:
        with pytest.raises(Refused) as refused:
            await r.start(INPUTS + ONE_STEP.lstrip(), payload={"n": "many"})
        problem = refused.value.problem
        assert (problem.status, problem.code) == (422, "invalid_input")
        assert [item["pointer"] for item in problem.errors] == ["/n"]
        run = await r.start(INPUTS + ONE_STEP.lstrip(), payload={"n": 3})
        assert (await r.client.execution(run)).workload == {"n": 3, "s": "x"}


@virtually
async def test_a_default_that_cannot_be_rendered_is_the_callers_to_fix() -> None:
    async with rig() as r:
        with pytest.raises(Refused) as refused:
            await r.start("workload: {a: 'id {{ nowhere }}'}\n" + ONE_STEP.lstrip())
        assert (refused.value.code, refused.value.problem.status) == ("invalid_input", 422)


@virtually
async def test_a_version_is_named_in_three_ways() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        await r.start(TWO_STEPS)
        for asked in (
            Execute(path="demo/it", version=1),
            Execute(path="demo/it", version="1"),
            Execute(path="demo/it@1"),
            Execute(catalog_id=(await r.client.resolve("demo/it", 1)).catalog_id),
        ):
            assert (await r.client.execute(asked)).version == 1
        assert (await r.client.execute(Execute(path="demo/it", version="latest"))).version == 2


@virtually
async def test_a_minted_id_is_used_once() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP, execution_id="4711")
        assert run == "4711"
        again = await r.client.execute(Execute(path="demo/it", execution_id="4711"))
        assert (again.execution_id, again.status) == ("4711", "duplicate")


@virtually
async def test_a_run_under_another_inherits_and_an_ended_parent_takes_none() -> None:
    async with rig() as r:
        parent = await r.start(ONE_STEP, trace={"traceparent": PARENT})
        asked = Execute(path="demo/it", parent_execution_id=parent, dedup=Dedup(key="k"))
        child = await r.client.execute(asked)
        assert (await r.client.execute(asked)).status == "duplicate"
        state = (await r.plane.cache.get(child.execution_id)).state
        assert (state.parent_execution_id, state.depth, state.trace) == (
            parent, 1, {"traceparent": PARENT},
        )  # fmt: skip
        await r.client.cancel(parent, Control())
        with pytest.raises(Refused) as refused:
            await r.client.execute(Execute(path="demo/it", parent_execution_id=parent))
        assert refused.value.code == "already_terminal"


@virtually
async def test_only_playbooks_run() -> None:
    document = (
        "apiVersion: noetl.io/v2\nkind: Credential\nmetadata: {name: c, path: demo/c}\n"
        "spec: {type: bearer, data: {token: x}}\n"
    )
    async with rig() as r:
        await r.client.register(Register(content=document))
        with pytest.raises(Refused) as refused:
            await r.client.execute(Execute(path="demo/c"))
        assert refused.value.code == "not_executable"


@virtually
async def test_a_rerun_may_have_another_payload_and_version() -> None:
    async with rig() as r:
        run = await r.start("workload: {a: 1}\n" + ONE_STEP.lstrip(), payload={"b": 2})
        await r.client.register(Register(content=HEAD + "workload: {a: 5}\n" + TWO_STEPS.lstrip()))
        same = await r.client.rerun(run, Rerun(payload={"c": 3}))
        assert (await r.client.execution(same.execution_id)).workload == {"a": 1, "c": 3}
        newest = await r.client.rerun(run, Rerun(payload={}, version="latest"))
        assert (newest.version, (await r.client.execution(newest.execution_id)).workload) == (
            2, {"a": 5},
        )  # fmt: skip


@virtually
async def test_a_fork_has_what_its_caller_changed() -> None:
    async with rig() as r:
        run = await r.start("workload: {a: 1}\n" + TWO_STEPS.lstrip())
        (first,) = await r.claim()
        await r.done(first, 1)
        made = await r.client.fork(
            run, Fork(from_step="end", payload={"a": 9}, set={"ctx.x": 5}, version="same")
        )
        told = await r.client.execution(made.execution_id)
        assert (told.workload, told.ctx, told.current_steps) == ({"a": 9}, {"x": 5}, ("end",))
        await r.client.register(Register(content=HEAD + ONE_STEP.replace("start", "other")))
        with pytest.raises(Refused) as refused:
            await r.client.fork(run, Fork(from_step="end", version="latest"))
        assert (refused.value.code, refused.value.problem.status) == ("version_conflict", 409)


@virtually
async def test_a_queued_run_is_admitted_when_the_one_before_is_cancelled() -> None:
    body = "executor: {spec: {concurrency: {key: one}}}\nworkload: {}\n" + ONE_STEP.lstrip()
    async with rig() as r:
        first = await r.start(body)
        second = await r.start(body)
        third = await r.start(body)
        assert (await r.types(second)) == ["playbook.started", "execution.queued"]
        with pytest.raises(Refused) as refused:
            await r.client.pause(second, Control())
        assert refused.value.code == "not_running"
        await r.client.cancel(first, Control())
        await asyncio.sleep(1)
        assert [await r.status(run) for run in (second, third)] == ["RUNNING", "PENDING"]
        await r.client.cancel(third, Control())
        assert await r.status(third) == "CANCELLED"
