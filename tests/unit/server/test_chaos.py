"""Two servers, bad workers, and no harm done."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from noetl.api.commands import Held, Release
from noetl.api.executions import Control
from noetl.api.problems import Refused
from noetl.edge.moments import seconds_until
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import PYTHON, Rig, rig, run_virtually

BODY = f"""
workflow:
  - step: start
    tool: {PYTHON}
    next: {{spec: {{mode: inclusive}}, arcs: [{{step: many}}, {{step: one}}]}}
  - step: many
    loop: {{in: 12, iterator: n, spec: {{mode: parallel, max_in_flight: 5}}}}
    tool: {PYTHON}
    next: {{arcs: [{{step: join}}]}}
  - step: one
    tool: {PYTHON}
    next: {{arcs: [{{step: join}}]}}
  - step: join
    tool: {PYTHON}
"""


CLOSING = {"command.completed", "command.failed", "command.cancelled"}


async def misbehave(r: Rig, name: str, rng: random.Random, stop: asyncio.Event) -> None:
    """A worker that repeats, forgets, gives back and reports late."""
    while not stop.is_set():
        for work in await r.claim(name, slots=rng.randint(1, 4), wait_seconds=2):
            fate = rng.random()
            if fate < 0.1:
                continue
            if fate < 0.2:
                held = Held(command_id=work.command_id, attempt=work.attempt)
                await r.client.release(Release(worker_id=name, commands=(held,)))
                continue
            reports = [
                r.event(work, "command.started"),
                r.event(work, "call.done", result=work.iteration),
            ]
            if fate < 0.3:
                await asyncio.sleep(rng.choice((1, 20)))
            for _ in range(rng.randint(1, 3)):
                await r.report(*reports, worker_id=name)


async def meddle(r: Rig, runs: list[str], rng: random.Random, stop: asyncio.Event) -> None:
    """Somebody who pauses and resumes."""
    while not stop.is_set():
        run = rng.choice(runs)
        with suppress(Refused):
            await r.client.pause(run, Control())
            await asyncio.sleep(rng.random() * 5)
            await r.client.resume(run, Control())
        await asyncio.sleep(1)


async def ended(run: str, *servers: Rig) -> None:
    """Wait until a run has ended, by the commit of either server."""
    waiting = [asyncio.create_task(r.server.finished(run)) for r in servers]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()


async def story(seed: int) -> None:
    rng = random.Random(seed)
    store = MemoryStore()
    stop = asyncio.Event()
    async with rig(store) as a, rig(store, machine=2) as b:
        runs = [await rng.choice((a, b)).start(BODY) for _ in range(4)]
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                server = rng.choice((a, b))
                group.create_task(misbehave(server, f"w{number}", rng, stop))
            group.create_task(meddle(a, runs, rng, stop))
            async with asyncio.timeout(3600):
                for run in runs:
                    await ended(run, a, b)
            stop.set()
        for run in runs:
            await check(a, run)
        assert await store.commands.pending("shared", 100) == []
        assert await store.commands.expired("9999") == []


async def check(r: Rig, run: str) -> None:
    """What holds of every log: dense, chained, each thing done once."""
    told = await r.client.execution(run)
    log = (await r.client.events(run, limit=1000)).items
    assert [row["seq"] for row in log] == list(range(1, len(log) + 1))
    assert [row["prev_event_id"] for row in log[1:]] == [row["event_id"] for row in log[:-1]]
    keys = [row["node_id"] for row in log if row["event_type"] == "command.issued"]
    done = [row["node_id"] for row in log if row["event_type"] in CLOSING]
    assert sorted(done) == sorted(keys)
    assert len(set(keys)) == len(keys)
    types = [row["event_type"] for row in log]
    assert sum(name.startswith("playbook.") for name in types) == 2
    entered = [row["step"] for row in log if row["event_type"] == "step.enter"]
    assert len(set(entered)) == len(entered)
    if told.status == "COMPLETED":
        assert sorted(entered) == ["join", "many", "one", "start"]
        assert await r.client.step_result(run, "many") == list(range(12))
    else:
        assert told.error["code"] == "lease_exhausted"
    replayed = (await r.plane.cache.read(run)).state
    assert replayed.terminal == told.status
    assert seconds_until(r.plane.parts.clock, told.started_at) <= 0


@pytest.mark.parametrize("seed", range(6))
def test_bad_workers_two_servers_and_a_meddler_end_every_run_well(seed: int) -> None:
    run_virtually(story(seed))
