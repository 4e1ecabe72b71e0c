"""Throughput with 1, 2 and 4 workers, and with a second server on the same database.

Two things are measured: how fast commands are handed out to so many pretended workers, which do
nothing else, and how fast real worker processes work through a loop. On fewer than eight cores
everything shares the same processors, so that the shares of a linear growth are told only. Shards
are not built yet: the second server stands on the same database.
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from bench import playbooks
from bench.limits import at_least
from bench.more import server, worker
from bench.pretend import Pretender
from bench.scenario import beside, made, on_stack
from noetl.api.executions import Execute
from noetl.local.embedded.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.stack import Stack
    from noetl.api.client import Client

PATH = "bench/out"
COUNTS = (1, 2, 4)
ITEMS = 1_000
IN_FLIGHT = 100
SLOTS = 8
RUNS = 4
"""Loops at once in the run through two servers."""
MOST_S = 120.0
LEAST_SHARE = 0.8
ENOUGH_CORES = 8


def records(repeat: int) -> list[dict[str, Any]]:
    """Commands claimed a second, and items done a second."""
    first, second = free_port(), free_port()
    both = ",".join(f"http://127.0.0.1:{port}" for port in (first, second))
    told = {"NOETL_SHARD_SERVERS": both}
    return on_stack(lambda stack: _measure(stack, second, repeat), told, first)


async def _measure(stack: Stack, second: int, repeat: int) -> list[dict[str, Any]]:
    await stack.register(playbooks.open_loop(f"{PATH}_open", ITEMS))
    await stack.register(playbooks.fan_out(PATH, ITEMS, IN_FLIGHT))
    claims = [await _claims(stack, count, repeat) for count in COUNTS]
    works = [await _works(stack, count, repeat) for count in COUNTS]
    servers = [await _servers(stack, None, repeat), await _servers(stack, second, repeat)]
    return [*_shares(claims), *_shares(works), *servers]


def _shares(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each with its share of what so many times the first would be, held to it on enough cores."""
    first = found[0]["p50"]
    limit = at_least("linear_share", LEAST_SHARE)
    is_held = (os.cpu_count() or 1) >= ENOUGH_CORES
    for one in found:
        one["linear_share"] = round(one["p50"] / first / one["params"]["workers"], 3)
        one["limits"] = [limit.judge(one)] if is_held else []
    return found


async def _claims(stack: Stack, count: int, repeat: int) -> dict[str, Any]:
    """Commands handed out to so many who ask, a slot's worth at a time."""
    pool = f"claims{count}"
    given: list[str] = []

    async def sample() -> float:
        given.clear()
        asked = Execute(path=f"{PATH}_open", execution_pool=pool)
        started = await stack.client.execute(asked)
        before = time.perf_counter()

        async def claim(number: int) -> None:
            one = Pretender(f"bench-{number}", pool)
            found = await one.claim(stack.client, ITEMS // count, slots=SLOTS)
            given.extend(command.command_id for command in found)

        async with asyncio.timeout(MOST_S), asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(claim(number))
        taken = time.perf_counter() - before
        await stack.cancel(started.execution_id)
        return ITEMS / taken

    await sample()
    samples, share = await beside(stack, repeat, sample)
    return made(
        stack, f"scale-out-claims-{count}", samples, unit="commands/s", better="higher",
        correct=len(given) == len(set(given)) == ITEMS,
        params={"workers": count, "commands": ITEMS, "slots": SLOTS},
        ratios={"of_raw_commits_serial": share},
    )  # fmt: skip


async def _works(stack: Stack, count: int, repeat: int) -> dict[str, Any]:
    """Items done by so many worker processes of a pool."""
    pool = f"works{count}"
    correct = True

    async def sample() -> float:
        nonlocal correct
        async with asyncio.timeout(MOST_S):
            execution_id, taken = await stack.run(PATH, execution_pool=pool)
        correct = correct and await stack.result(execution_id) == list(range(ITEMS))
        return ITEMS / taken

    async with AsyncExitStack() as held:
        for number in range(count):
            await held.enter_async_context(worker(stack, pool, f"{pool}-{number}", SLOTS))
        await sample()
        samples, share = await beside(stack, repeat, sample)
    return made(
        stack, f"scale-out-{count}", samples, unit="items/s", better="higher", correct=correct,
        params={"workers": count, "items": ITEMS, "slots": SLOTS},
        ratios={"of_raw_commits_serial": share},
    )  # fmt: skip


async def _servers(stack: Stack, port: int | None, repeat: int) -> dict[str, Any]:
    """Loops that run at once on one server, or on two."""
    correct = True

    async with _clients(stack, port) as clients:

        async def one(number: int) -> None:
            nonlocal correct
            client = clients[number % len(clients)]
            started = (await client.execute(Execute(path=PATH))).execution_id
            async for _ in client.stream(started):
                pass
            correct = correct and await stack.result(started) == list(range(ITEMS))

        async def sample() -> float:
            before = time.perf_counter()
            async with asyncio.timeout(MOST_S):
                await asyncio.gather(*map(one, range(RUNS)))
            return RUNS * ITEMS / (time.perf_counter() - before)

        await one(0)
        samples, share = await beside(stack, repeat, sample)
    count = len(clients)
    return made(
        stack, f"scale-out-servers-{count}", samples, unit="items/s", better="higher",
        correct=correct, params={"servers": count, "runs": RUNS, "items": ITEMS},
        ratios={"of_raw_commits_serial": share},
    )  # fmt: skip


@asynccontextmanager
async def _clients(stack: Stack, port: int | None) -> AsyncIterator[list[Client]]:
    if port is None:
        yield [stack.client]
        return
    async with server(stack, port) as other:
        yield [stack.client, other]
