"""Loops that are kept alive."""

from __future__ import annotations

import asyncio

import pytest

from noetl.clock import LoopClock
from noetl.gateway.metrics import GatewayMetrics
from noetl.gateway.tasks import Tasks
from tests.unit.server.rig import START, virtually


def made():
    metrics = GatewayMetrics()
    return Tasks(LoopClock(asyncio.get_running_loop(), START), metrics), metrics


@virtually
async def test_a_loop_that_fails_is_logged_counted_and_begun_again():
    tasks, metrics = made()
    tries = []

    async def shaky():
        tries.append(asyncio.get_running_loop().time())
        if len(tries) < 3:
            raise ValueError("once more")
        await asyncio.Event().wait()

    tasks.add("shaky", shaky)
    assert b'task_crashes_total{task="shaky"} 0.0' in metrics.render()
    tasks.start()
    await asyncio.sleep(10)
    assert len(tries) == 3
    assert metrics.task_crashes.value("shaky") == 2
    assert tasks.failing() == ()
    assert tries[2] - tries[1] > tries[1] - tries[0], "it waits longer each time"
    await tasks.stop()


@virtually
async def test_three_crashes_within_a_minute_are_told_until_a_minute_has_passed():
    tasks, _ = made()
    count = 0

    async def broken():
        nonlocal count
        count += 1
        if count > 3:
            await asyncio.Event().wait()
        raise ValueError("no")

    tasks.add("broken", broken)
    tasks.start()
    await asyncio.sleep(5)
    assert tasks.failing() == ("broken",)
    await asyncio.sleep(60)
    assert tasks.failing() == ()
    await tasks.stop()


@virtually
async def test_a_loop_that_ends_is_begun_again_and_stopping_ends_all():
    tasks, metrics = made()
    begun = 0

    async def short():
        nonlocal begun
        begun += 1

    tasks.add("short", short)
    tasks.start()
    await asyncio.sleep(1)
    assert begun > 1
    assert metrics.task_crashes.value("short") == 0
    await tasks.stop()
    before = begun
    await asyncio.sleep(60)
    assert begun == before


@virtually
async def test_two_loops_of_one_name_are_a_mistake():
    tasks, _ = made()
    tasks.add("one", asyncio.Event().wait)
    with pytest.raises(ValueError, match="one"):
        tasks.add("one", asyncio.Event().wait)
