"""Five hundred runs of two Python steps, started one by one by 24 clients, until all ended."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from bench import playbooks
from bench.limits import at_least
from bench.scenario import beside, counted, made, on_stack
from noetl.api.executions import Execute
from noetl.server.access.quota import RATE

if TYPE_CHECKING:
    from bench.stack import Stack

PATH = "bench/two"
RUNS = 500
STEPS = 2
CLIENTS = 24
OPEN = ("PENDING", "RUNNING")
LOOK_AGAIN_S = 0.03
MOST_S = 300.0


def records(repeat: int, *, size: int = RUNS) -> list[dict[str, Any]]:
    """Executions a second."""
    return on_stack(lambda stack: measure(stack, repeat, size))


async def measure(stack: Stack, repeat: int, size: int = RUNS) -> list[dict[str, Any]]:
    await stack.register(playbooks.chain(PATH, STEPS))
    correct = True

    async def sample(runs: int = size) -> float:
        nonlocal correct
        ids, taken = await burst(stack, runs, PATH)
        results = await asyncio.gather(*map(stack.result, ids))
        correct = correct and len(set(ids)) == runs and results == [STEPS - 1] * runs
        await asyncio.sleep(max(0.0, runs / RATE - taken))  # the next begins with a whole burst
        return runs / taken

    await sample(CLIENTS * 4)
    costs = await counted(stack, "run", size, sample)
    samples, share = await beside(stack, repeat, sample)
    best = max(samples)
    return [
        made(
            stack, "runs", samples, unit="executions/s", better="higher", correct=correct,
            limits=[at_least("p50", 250.0, 120.0)], counted=costs,
            params={"executions": size, "steps": STEPS, "clients": CLIENTS},
            ratios={
                "of_raw_commits_serial": share,
                "of_raw_commits_on_32": round(best / stack.raw.commits_on_32, 3),
                "of_raw_http_on_32": round(best / stack.raw.http_on_32, 3),
            },
        )
    ]  # fmt: skip


async def burst(stack: Stack, runs: int, path: str) -> tuple[list[str], float]:
    """Start them all and wait until none is open: their ids, and the seconds."""
    left = iter(range(runs))
    ids: list[str] = []

    async def client() -> None:
        for _ in left:
            ids.append((await stack.client.execute(Execute(path=path))).execution_id)  # noqa: PERF401 - the others take from the same iterator meanwhile

    before = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(client())
    async with asyncio.timeout(MOST_S):
        while (await stack.client.executions(status=OPEN, limit=1)).items:  # noqa: ASYNC110 - another process ends them
            await asyncio.sleep(LOOK_AGAIN_S)
    return ids, time.perf_counter() - before
