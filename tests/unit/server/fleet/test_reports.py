"""Reports that are odd, large, doubled or wrong."""

from __future__ import annotations

import asyncio

import pytest

from noetl.api.commands import Held, Release
from noetl.api.executions import Control
from noetl.api.problems import Refused
from noetl.engine.snapshot import dump
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import ONE_STEP, TWO_STEPS, many, rig, virtually


@virtually
async def test_two_reports_under_one_id_are_one_also_when_they_differ() -> None:
    async with rig() as r:
        run = await r.start(many(2, 2))
        first, second = await r.claim(slots=2)
        doubled = [r.event(item, "call.done", "4711", result=1) for item in (first, second)]
        reported = await r.report(*doubled)
        assert [item.outcome for item in reported.results] == ["stored", "duplicate"]
        again = await r.report(doubled[1])
        assert [item.outcome for item in again.results] == ["duplicate"]
        await r.done(second)
        assert await r.status(run) == "COMPLETED"


@virtually
async def test_a_payload_that_is_no_such_event_is_rejected_alone() -> None:
    async with rig() as r:
        await r.start(many(2, 2))
        first, second = await r.claim(slots=2)
        reported = await r.report(
            r.event(first, "call.error", error="boom"), r.event(second, "call.done", result=1)
        )
        assert [(item.outcome, item.code) for item in reported.results] == [
            ("rejected", "bad_value"), ("stored", None),
        ]  # fmt: skip


@virtually
async def test_a_failure_without_a_reason_is_a_failure() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        await r.report(r.event(work, "command.failed"))
        told = await r.client.execution(run)
        assert (told.status, told.error["code"]) == ("FAILED", "no_error")


@virtually
async def test_the_closing_event_of_a_report_is_a_duplicate_also_while_the_run_is_paused() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        await r.client.pause(run, Control())
        reported = await r.report(
            r.event(work, "call.done", result=1), r.event(work, "command.completed", result=1)
        )
        assert [item.outcome for item in reported.results] == ["stored", "duplicate"]
        await asyncio.sleep(60)
        await r.client.resume(run, Control())
        assert (await r.types(run))[-5:] == [
            "call.done", "execution.resumed", "command.completed", "step.exit",
            "playbook.completed",
        ]  # fmt: skip


@virtually
async def test_how_often_a_command_may_lose_its_worker_is_a_setting() -> None:
    async with rig(max_attempts=1) as r:
        run = await r.start(ONE_STEP)
        (mine,) = await r.claim()
        assert mine.max_attempts == 1
        await asyncio.sleep(60)
        assert (await r.types(run)).count("command.lost") == 1
        assert (await r.client.execution(run)).error["code"] == "lease_exhausted"


@virtually
async def test_a_lost_lease_of_a_paused_run_is_told_once() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        for _ in range(3):
            while not await r.claim(wait_seconds=20):
                """The loss lets go of a request that waits: nobody may be at its other end."""
        await r.client.pause(run, Control())
        await asyncio.sleep(120)
        assert (await r.types(run)).count("command.lost") == 3
        await r.client.resume(run, Control())
        assert (await r.client.execution(run)).error["code"] == "lease_exhausted"


@virtually
async def test_a_late_report_is_kept_and_a_large_one_only_by_its_size() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        await r.done(work)
        await r.report(r.event(work, "call.done", result="small"))
        await r.report(r.event(work, "call.done", result="x" * 70_000))
        rows = (await r.client.events(run)).items
        kept = [row["context"]["report"] for row in rows if row["event_type"] == "command.late"]
        assert kept == [
            {"event_type": "call.done", "result": "small"},
            {"event_type": "call.done", "dropped_bytes": 70_038},
        ]


@virtually
async def test_a_command_is_known_by_all_its_names() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        (work,) = await r.claim()
        text = f"{run}:start:{work.command_id}"
        reports = [
            type(item)(**{name: getattr(item, name) for name in item.__struct_fields__}
                       | {"command_id": command_id})
            for item, command_id in (
                (r.event(work, "command.started"), text),
                (r.event(work, "call.done", result=1), work.command_key),
            )
        ]  # fmt: skip
        reported = await r.report(*reports)
        assert [item.outcome for item in reported.results] == ["stored", "stored"]


@virtually
async def test_an_id_that_is_none_refuses_the_batch() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        (work,) = await r.claim()
        report = r.event(work, "call.done", result=1)
        wrong = type(report)(
            **{name: getattr(report, name) for name in report.__struct_fields__}
            | {"execution_id": "0x1"}
        )
        with pytest.raises(Refused) as refused:
            await r.report(wrong)
        assert refused.value.code == "invalid_id"


@virtually
async def test_an_empty_batch_with_free_slots_is_a_poll() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        assert (await r.report()).claimed == ()
        assert [item.node_name for item in (await r.report(slots=3)).claimed] == ["start"]


@virtually
async def test_what_is_given_back_by_someone_else_stays_where_it_is() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        (work,) = await r.claim()
        for worker_id, attempt, command_id in (
            ("other", 1, work.command_id), ("w", 7, work.command_id), ("w", 1, "99"),
        ):  # fmt: skip
            held = Held(command_id=command_id, attempt=attempt)
            await r.client.release(Release(worker_id=worker_id, commands=(held,)))
        assert await r.claim("other") == []
        given = Held(command_id=work.command_id, attempt=1, checkpoint={"task": "b"})
        await r.client.release(Release(worker_id="w", commands=(given,)))
        (again,) = await r.claim("other")
        assert (again.attempt, again.context.checkpoint) == (2, {"task": "b"})


@virtually
async def test_a_new_server_on_the_same_store_goes_on_where_the_old_one_was() -> None:
    store = MemoryStore()
    loop = asyncio.get_running_loop()
    async with rig(store) as r:
        waiting = await r.start("workflow:\n  - {step: start, tool: {kind: wait, seconds: 60}}\n")
        run = await r.start(TWO_STEPS)
        (work,) = await r.claim()
        before = dump((await r.plane.cache.get(run)).state)
        rows = await r.rows(run)
    began = loop.time()
    async with rig(store, machine=2) as r:
        assert dump((await r.plane.cache.get(run)).state) == before
        reported = await r.done(work, slots=1)
        assert [item.node_name for item in reported.claimed] == ["end"]
        assert (await r.rows(run))[: len(rows)] == rows
        await r.server.finished(waiting)
        assert 59 < loop.time() - began <= 61
        assert (await r.types(waiting)).count("timer.fired") == 1


@virtually
async def test_a_worker_of_a_dead_server_is_found_by_the_next_one() -> None:
    store = MemoryStore()
    async with rig(store) as r:
        await r.start(ONE_STEP)
        await r.claim("gone")
    async with rig(store, machine=2) as r:
        began = asyncio.get_running_loop().time()
        (work,) = await r.claim(wait_seconds=20)
        assert asyncio.get_running_loop().time() - began <= 17
        assert work.attempt == 2


@virtually
async def test_a_report_that_comes_again_is_told_the_work_it_brought_and_brings_no_more() -> None:
    async with rig() as r:
        await r.start(many(4, 4))
        (mine,) = await r.claim()
        reports = [r.event(mine, "command.started"), r.event(mine, "call.done", result=1)]
        first = await r.report(*reports, slots=1)
        again = await r.report(*reports, slots=1)
        assert [item.command_id for item in again.claimed] == [first.claimed[0].command_id]
        await r.done(first.claimed[0])
        assert (await r.report(*reports, slots=1)).claimed == ()
