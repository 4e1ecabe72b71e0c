"""Drains by the clock: one run per tick, skipped while one runs, caught up with once."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from noetl.api.catalog import Register
from noetl.api.commands import Claim
from noetl.api.executions import Control
from noetl.clock import LoopClock
from noetl.store.memory.store import MemoryStore
from noetl.worker.playbooks import Playbooks
from tests.unit.server.rig import START, Rig, rig, virtually
from tests.unit.server.subscriptions.stage import NATS, PATH, document, facts, registered, told

EVERY_2S = f"{NATS}, activation: scheduled, cadence: 2s, runtime: {{pool: meters}}"


async def drains(r: Rig, sub: str) -> list[str]:
    rows = await r.store.executions.children(sub)
    return [row.execution_id for row in rows]


async def drained(r: Rig, seconds: float = 20.0, worker: str = "w") -> list:
    """Work as the pool of the drains does; the commands that came."""
    commands = []
    until = r.plane.parts.clock.monotonic() + seconds
    while (rest := until - r.plane.parts.clock.monotonic()) > 0:
        asked = Claim(worker_id=worker, pool="meters", free_slots=1, wait_seconds=min(rest, 5))
        for command in (await r.client.claim(asked)).claimed:
            commands.append(command)
            await r.done(command, worker_id=worker)
    return commands


@virtually
async def test_a_cadence_of_2s_for_20s_is_9_to_11_ticks_with_one_drain_each() -> None:
    async with rig() as r:
        sub = await registered(r, spec=EVERY_2S)
        await r.client.steer_subscription(sub, "activate")
        commands = await drained(r)
        assert 9 <= len(commands) <= 11
        assert len(await drains(r, sub)) == len(commands)
        command = commands[0]
        assert (command.path, command.action) == (PATH, "subscription")
        known = await Playbooks(r.client).get(command.catalog_id)
        (tool,) = known.steps["drain"].tools
        assert (tool.operation, tool.source, tool.stream) == ("drain", "nats", "PLANT")
        assert (tool.auth, tool.batch) == ("nats_plant", 100)
        row = await r.store.executions.get(command.execution_id)
        assert (row.parent_execution_id, row.pool) == (sub, "meters")
        assert row.workload["drain"]["subscription_id"] == sub
        assert row.workload["drain"]["max_drains"] == 20
        rows = (await r.client.events(command.execution_id, limit=1)).items
        assert rows[0]["context"]["trigger"]["kind"] == "schedule"
        due = [row.workload["drain"]["due_at"] for row in await r.store.executions.children(sub)]
        assert due == sorted(set(due))
        names = await told(r, sub)
        assert names[:4] == ["registered", "activated", "timer.set", "timer.fired"]
        assert names.count("timer.fired") == len(commands)


@virtually
async def test_a_tick_is_never_early_and_within_a_second() -> None:
    async with rig() as r:
        sub = await registered(r, spec=EVERY_2S)
        await r.client.steer_subscription(sub, "activate")
        await drained(r)
        for row in await r.store.executions.children(sub):
            told_at = row.workload["drain"]
            assert told_at["due_at"] <= told_at["fired_at"]
            assert told_at["fired_at"] < told_at["due_at"][:-8] + "999999Z"


@virtually
async def test_a_tick_during_a_drain_is_skipped_and_told() -> None:
    async with rig() as r:
        sub = await registered(r, spec=EVERY_2S)
        await r.client.steer_subscription(sub, "activate")
        asked = Claim(worker_id="w", pool="meters", free_slots=1, wait_seconds=5)
        (command,) = (await r.client.claim(asked)).claimed
        await asyncio.sleep(5)
        assert await drains(r, sub) == [command.execution_id]
        skipped = await facts(r, sub, "tick.skipped")
        assert len(skipped) in {2, 3}
        assert {one["execution_id"] for one in skipped} == {command.execution_id}
        await r.done(command)
        await drained(r, 3)
        assert len(await drains(r, sub)) == 2


@virtually
async def test_ten_ticks_missed_while_no_server_was_there_are_caught_up_with_once() -> None:
    store = MemoryStore()
    loop = asyncio.get_running_loop()
    async with rig(store, clock=LoopClock(loop, START)) as r:
        sub = await registered(r, spec=EVERY_2S)
        await r.client.steer_subscription(sub, "activate")
        assert len(await drained(r, 4.5)) == 2
    async with rig(store, clock=LoopClock(loop, START + timedelta(seconds=20)), machine=2) as r:
        assert len(await drained(r, 1.0)) == 1
        assert len(await drains(r, sub)) == 3
        assert "tick.skipped" not in await told(r, sub)
        assert len(await drained(r, 4.0)) == 2


@pytest.mark.parametrize("action", ["pause", "drain", "deactivate"])
def test_pause_drain_and_deactivate_cancel_the_timer(action: str) -> None:
    @virtually
    async def check() -> None:
        async with rig() as r:
            sub = await registered(r, spec=EVERY_2S)
            assert (await r.client.subscription(sub)).next_tick_at is None
            made = await r.client.steer_subscription(sub, "activate")
            assert made.next_tick_at is not None
            made = await r.client.steer_subscription(sub, action)
            assert made.next_tick_at is None
            await asyncio.sleep(10)
            assert await drains(r, sub) == []
            assert (await told(r, sub))[-1] == "timer.cancelled"

    check()


@virtually
async def test_a_new_cadence_is_that_of_the_next_tick() -> None:
    async with rig() as r:
        sub = await registered(r, spec=EVERY_2S)
        await r.client.steer_subscription(sub, "activate")
        slow = EVERY_2S.replace("2s", '"*/5 * * * *", timezone: Europe/Zurich')
        await r.client.register(Register(content=document(spec=slow)))
        found = await r.client.subscription(sub)
        assert (found.version, found.next_tick_at) == (2, "2026-01-01T00:05:00.000000Z")
        assert found.state == "ACTIVE"
        plain = EVERY_2S.replace("activation: scheduled, cadence: 2s, ", "")
        await r.client.register(Register(content=document(spec=plain)))
        assert (await r.client.subscription(sub)).next_tick_at is None


@virtually
async def test_two_servers_that_fire_one_tick_start_one_run() -> None:
    store = MemoryStore()
    loop = asyncio.get_running_loop()
    clock = LoopClock(loop, START)
    async with rig(store, clock=clock) as one, rig(store, clock=clock, machine=2) as two:
        sub = await registered(one, spec=EVERY_2S)
        await one.client.steer_subscription(sub, "activate")
        await asyncio.sleep(2.5)
        row = await store.subscriptions.get(sub)
        assert len(await drains(one, sub)) == 1
        await asyncio.gather(one.plane.ticking.fire(row), two.plane.ticking.fire(row))
        assert len(await drains(one, sub)) == 1


@virtually
async def test_the_run_of_a_tick_cannot_be_run_again_by_hand_and_can_be_cancelled() -> None:
    async with rig() as r:
        sub = await registered(r, spec=EVERY_2S)
        await r.client.steer_subscription(sub, "activate")
        await asyncio.sleep(2.5)
        (run,) = await drains(r, sub)
        await r.client.cancel(run, Control())
        assert await r.status(run) == "CANCELLED"
        assert (await r.client.outcomes(sub, wait_ms=0)).outcomes == ()
