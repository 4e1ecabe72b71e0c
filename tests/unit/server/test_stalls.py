"""Runs that wait for nothing."""

from __future__ import annotations

import asyncio

import msgspec

from noetl.server.loops import stalls
from tests.unit.server.rig import ONE_STEP, rig, virtually

WAIT = "workflow:\n  - {step: start, tool: {kind: wait, seconds: 600}}\n"


async def forget_work(r, run: str) -> None:
    """Make a run wait for nothing: its only command vanishes."""
    state = (await r.plane.cache.get(run)).state
    state.commands.clear()
    state.command_ids.clear()
    rows = r.store.executions._tables.executions.rows  # noqa: SLF001 - no request does this
    rows[run] = msgspec.structs.replace(rows[run], pending_commands=0)


@virtually
async def test_a_run_that_waits_for_nothing_is_nudged_twice_and_then_fails() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        await forget_work(r, run)
        nudged: list[str] = []
        r.plane.ingest.nudge = nudged.append
        began = asyncio.get_running_loop().time()
        await r.server.finished(run)
        assert 80 <= asyncio.get_running_loop().time() - began <= 130
        told = await r.client.execution(run)
        assert (told.status, told.error["code"]) == ("FAILED", "stalled")
        assert nudged == [run, run]


@virtually
async def test_a_run_that_moves_after_a_nudge_is_left_alone() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        await forget_work(r, run)
        await asyncio.sleep(31)
        found = await stalls.look(r.plane, {run: (0, 2)})
        assert found[run][1] == 1  # it stands elsewhere than when it was nudged


@virtually
async def test_who_waits_for_a_command_or_a_timer_is_not_stalled() -> None:
    async with rig() as r:
        runs = [await r.start(WAIT), await r.start(ONE_STEP)]
        await asyncio.sleep(300)
        assert [await r.status(run) for run in runs] == ["RUNNING", "RUNNING"]
        assert await stalls.look(r.plane, {}) == {}


@virtually
async def test_a_run_that_cannot_be_read_keeps_nobody_waiting() -> None:
    async with rig() as r:
        broken, standing = await r.start(ONE_STEP), await r.start(ONE_STEP)
        await forget_work(r, broken)
        await forget_work(r, standing)
        state = r.plane.details.state

        async def damaged(row):
            if row.execution_id == broken:
                raise ValueError("the log of this run is not one")
            return await state(row)

        r.plane.details.state = damaged
        ended = await r.server.finished(standing)
        left = await r.plane.details.row(broken)
        assert (ended.status, left.status) == ("FAILED", "RUNNING")


@virtually
async def test_the_state_of_a_run_that_waits_is_read_once() -> None:
    async with rig() as r:
        run = await r.start(WAIT)
        rows = r.store.executions._tables.executions.rows  # noqa: SLF001 - as between two tries
        rows[run] = msgspec.structs.replace(rows[run], pending_commands=0)
        await asyncio.sleep(31)
        reads: list[str] = []
        state = r.plane.details.state

        async def counted(row):
            reads.append(row.execution_id)
            return await state(row)

        r.plane.details.state = counted
        waiting: dict[str, int] = {}
        for _ in range(3):
            assert await stalls.look(r.plane, {}, waiting) == {}
        assert reads == [run]
        assert waiting == {run: (await r.plane.details.row(run)).last_seq}
