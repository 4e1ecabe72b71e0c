"""Events of other installations, and read models that are made anew."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from noetl.api.executions import Control
from noetl.api.internal import Advance, Project
from noetl.api.problems import Refused
from noetl.server.operations.foreign import folded
from noetl.store.base import Listing
from tests.unit.server.rig import ONE_STEP, TWO_STEPS, many, rig, virtually


async def log_of(body: str, *, is_done: bool = True) -> list[dict[str, Any]]:
    """The log of a run elsewhere, as it was published: without claims."""
    async with rig(machine=9) as r:
        run = await r.start(body)
        (work,) = await r.claim()
        reported = await r.done(work, {"x": 1}, slots=10)
        for item in reported.claimed if is_done else ():
            await r.done(item, {"y": 2})
        rows = (await r.client.events(run, limit=1000)).items
        return [row for row in rows if row["event_type"] != "command.claimed"]


async def project(r, events) -> tuple[int, int, list[tuple[int, str]]]:
    told = await r.client.project(Project(events=tuple(events)))
    return told.projected, told.duplicates, [(bad.index, bad.code) for bad in told.rejected]


@virtually
async def test_a_foreign_run_is_readable_and_replayable_and_counts_once() -> None:
    rows = await log_of(TWO_STEPS)
    run = rows[0]["execution_id"]
    async with rig() as r:
        assert await project(r, rows[:5]) == (5, 0, [])
        assert (await r.client.status(run)).status == "RUNNING"
        assert await project(r, rows) == (len(rows) - 5, 5, [])
        assert await project(r, rows) == (0, len(rows), [])
        told = await r.client.execution(run)
        assert (told.status, told.path, told.result) == ("COMPLETED", "demo/it", {"y": 2})
        assert told.step_states["start"]["result"] == {"x": 1}
        page = await r.client.events(run, limit=1000)
        assert [row["event_id"] for row in page.items] == [row["event_id"] for row in rows]
        assert [row["seq"] for row in page.items] == list(range(1, len(rows) + 1))
        (row,) = await r.store.executions.listed(Listing())
        assert row.kind == "imported"
        half = await folded(r.store.log, run, 5)
        assert half.terminal is None
        assert await r.client.step_result(run, "end") == {"y": 2}


@virtually
async def test_a_foreign_run_is_never_driven() -> None:
    rows = await log_of(TWO_STEPS, is_done=False)
    run = rows[0]["execution_id"]
    async with rig() as r:
        await project(r, rows)
        before = (await r.client.status(run)).last_seq
        for act in (r.client.cancel, r.client.pause):
            with pytest.raises(Refused):
                await act(run, Control())
        await asyncio.sleep(600)
        assert await r.claim(slots=10) == []
        told = await r.client.status(run)
        assert (told.status, told.last_seq) == ("RUNNING", before)


@virtually
async def test_it_is_not_driven_when_its_playbook_is_known_here() -> None:
    rows = await log_of(TWO_STEPS, is_done=False)
    run = rows[0]["execution_id"]
    async with rig() as r:
        await r.start(TWO_STEPS)
        (own,) = await r.store.executions.listed(Listing())
        rows = [{**row, "catalog_id": own.catalog_id} for row in rows]
        await project(r, rows)
        assert (await r.client.execution(run)).catalog_id == own.catalog_id
        with pytest.raises(Refused) as refusal:
            await r.client.cancel(run, Control())
        assert refusal.value.code == "not_running"
        await asyncio.sleep(600)
        assert {work.execution_id for work in await r.claim(slots=10)} == {own.execution_id}


@virtually
async def test_a_bad_envelope_fails_alone() -> None:
    rows = await log_of(ONE_STEP)
    bad = [
        "text",
        {**rows[1], "event_id": "x"},
        {**rows[1], "event_id": None},
        {**rows[1], "execution_id": True},
        {**rows[1], "event_type": "custom.thing"},
        {**rows[1], "created_at": "soon", "event_id": "5"},
        {**rows[1], "context": [], "event_id": "6"},
        {**rows[-1], "event_id": "7", "seq": 99},
    ]
    async with rig() as r:
        projected, duplicates, rejected = await project(r, [*bad, *rows])
        assert (projected, duplicates) == (len(rows), 0)
        assert rejected == [
            (0, "validation_failed"), (1, "invalid_id"), (2, "invalid_id"), (3, "invalid_id"),
            (4, "unknown_event_type"), (5, "bad_time"), (6, "bad_value"), (7, "already_terminal"),
        ]  # fmt: skip
        for events in ((), (1,) * 1001):
            with pytest.raises(Refused) as refusal:
                await r.client.project(Project(events=events))
            assert refusal.value.code == "batch_size_invalid"


@virtually
async def test_a_run_whose_start_nobody_told_is_readable_too() -> None:
    rows = await log_of(ONE_STEP)
    older = {
        **{key: rows[1][key] for key in ("event_id", "execution_id", "event_type", "meta")},
        "node_name": "start", "timestamp": "2026-01-01T10:00:00", "tenant_id": "default",
        "status": "STARTED", "duration": 0.5, "colour": "blue",
    }  # fmt: skip
    async with rig() as r:
        assert await project(r, [older]) == (1, 0, [])
        told = await r.client.status(rows[0]["execution_id"])
        assert (told.status, told.last_seq) == ("RUNNING", 1)
        (row,) = (await r.client.events(rows[0]["execution_id"])).items
        assert (row["step"], row["created_at"]) == ("start", "2026-01-01T10:00:00.000000Z")


@virtually
async def test_events_of_our_own_runs_are_duplicates_or_reports() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        rows = (await r.client.events(run)).items
        assert await project(r, rows) == (0, len(rows), [])
        done = {
            "event_id": r.ids.new(), "execution_id": run, "event_type": "call.done",
            "step": "start", "command_id": work.command_id, "attempt": 1, "worker_id": "w",
            "status": "COMPLETED", "result": {"status": "COMPLETED", "context": {"data": 5}},
            "meta": {"command_key": rows[2]["meta"]["command_key"]},
        }  # fmt: skip
        forged = {**rows[0], "event_id": r.ids.new()}
        assert await project(r, [done, forged]) == (1, 0, [(1, "forbidden_event")])
        assert (await r.client.execution(run)).result == 5
        assert await project(r, [done]) == (0, 1, [])


@virtually
async def test_a_read_model_is_made_anew_from_its_log() -> None:
    async with rig() as r:
        run = await r.start(many(30, 5))
        for work in await r.claim(slots=5):
            await r.done(work)
        right = await r.store.executions.get(run)
        wrong = msgspec.structs.replace(
            right, status="FAILED", current_steps=(), progress={}, pending_commands=77
        )
        await r.store.projections.refresh(wrong)
        told = await r.client.advance(Advance(execution_ids=(run, "77", run)))
        assert told.advanced == (run,)
        assert [(bad.execution_id, bad.code) for bad in told.failed] == [
            ("77", "unknown_execution")
        ]
        assert await r.store.executions.get(run) == right


@virtually
async def test_the_read_model_of_a_foreign_run_is_made_anew_too() -> None:
    rows = await log_of(TWO_STEPS)
    run = rows[0]["execution_id"]
    async with rig() as r:
        await project(r, rows)
        right = await r.store.executions.get(run)
        await r.store.projections.refresh(msgspec.structs.replace(right, status="RUNNING"))
        assert (await r.client.advance(Advance(execution_ids=(run,)))).advanced == (run,)
        assert await r.store.executions.get(run) == right
