"""Schedules in worlds full of trouble: every tick has one run, whoever leads or dies."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from noetl.api.catalog import Register
from noetl.store.base import Listing
from tests.simulation.faults import Rates, plan_of
from tests.simulation.loop import run_shuffled
from tests.simulation.world import Script, World

TEXT = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: timed, path: sim/timed}
triggers:
  - {name: often, interval: 10s, overlap: allow, catchup: all, jitter_s: 3}
  - {name: minutes, cron: '* * * * *', overlap: allow, catchup: all}
workflow:
  - step: start
    tool: {kind: wait, seconds: 1}
"""
RATES = Rates(
    store_fails=0.04, store_answer_lost=0.04, store_slow=0.2, crash_in_store=0.004, role_lost=0.1,
    slowest_s=2.0,
)  # fmt: skip
CHAOS_S = 300.0
CALM_S = 60.0


async def ticks_of(seed: int) -> list[str]:
    """The ticks that had a run, one word for each run."""
    plan = replace(plan_of(seed), rates=RATES, servers=3, workers=0, chaos_s=CHAOS_S)
    world = World(Script(seed=seed, playbooks={}, runs=0), plan)
    try:
        for _ in range(plan.servers):
            world.start_server()
        await world.insist(lambda: world.client.register(Register(content=TEXT)))
        began = world.loop.time()
        await asyncio.sleep(CHAOS_S - began)
        world.faults.end()
        await asyncio.sleep(CALM_S + 5)
        assert world.faulted == []
        assert world.witness.crashes > 0
        assert world.faults.count["role_lost"] > 0
        rows = await world.store.executions.listed(Listing(limit=10_000))
        assert {row.status for row in rows} == {"COMPLETED"}
        told = [row.workload["schedule"] for row in rows]
        return [f"{item['name']} {item['due_at'][14:19]}" for item in told]
    finally:
        await world.end()


@pytest.mark.parametrize("seed", range(6))
def test_every_tick_has_one_run(seed: int) -> None:
    found = run_shuffled(ticks_of(seed), f"schedules/{seed}")
    assert len(found) == len(set(found))
    last = int(CHAOS_S + CALM_S)
    wanted = {f"minutes {second // 60:02}:00" for second in range(60, last + 1, 60)}
    wanted |= {f"often {second // 60:02}:{second % 60:02}" for second in range(10, last + 1, 10)}
    # The first ticks may have passed before the playbook was registered.
    assert {item for item in wanted if item[-5:] > "00:30"} <= set(found) <= wanted
