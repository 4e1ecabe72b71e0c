"""Runs of one pool while messages flood another: 20,000 of them, for the pool `iot`.

One run after another goes through the pool `shared`, first in quiet, then while a listener turns
the messages into runs of `iot`, which has a worker of its own. All of it shares the same cores, the
server and the database. A second, shorter flood is held back by the limit of its subscription.
The same runs beside processes that only burn every core tell how much of it is the machine's part.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from bench import playbooks
from bench.limits import at_most
from bench.listening import cost_ms, site, spent, until
from bench.more import worker
from bench.sampling import spread
from bench.scenario import made, on_stack

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bench.listening import Site
    from bench.stack import Stack

MESSAGES: Final = 20_000
PATH: Final = "bench/quiet"
POOL: Final = "iot"
SLOTS: Final = 8
WARM_UP: Final = 50
QUIET: Final = 2_000
"""Runs before the flood."""
STARVED: Final = 200
"""Runs beside the burners."""
BURN: Final = "while True: pass"
BATCH: Final = 100
LIMITED: Final = 5_000
"""Messages of the flood that is held back."""
RATE: Final = 200.0
"""What it may have of messages a second."""
TURN: Final = 5
"""Runs between two looks at what is left of the flood."""
MOST_S: Final = 60.0
"""So long runs go on beside a flood; then it has the server for itself."""
MOST: Final = 1.5
"""What the flood may make of the time of the slowest runs."""


def records(repeat: int) -> list[dict[str, Any]]:
    """How much longer the slowest runs take in a flood; one round, whatever `repeat` says."""
    del repeat
    return on_stack(_measure)


async def _measure(stack: Stack) -> list[dict[str, Any]]:
    await stack.register(playbooks.chain(PATH, 1))
    await _ms(stack, WARM_UP)
    return [
        await _isolation(stack, "isolation", MESSAGES, {}),
        await _isolation(stack, "isolation-limited", LIMITED, {"max_dispatch_per_sec": RATE}),
    ]


async def _isolation(
    stack: Stack, name: str, count: int, limits: dict[str, float]
) -> dict[str, Any]:
    """Runs in quiet, then in a flood."""
    async with worker(stack, POOL, f"bench-{name}", SLOTS), site(stack, name) as here:
        await here.register(
            {
                "runtime": {"pool": POOL, "batch": BATCH, "timeout_ms": 1000},
                "dispatch": {"batch_dispatch": True, "execution_pool": POOL},
                "limits": limits,
            }
        )
        await here.send(count)
        async with burners():
            starved = await _ms(stack, STARVED)
        quiet = await _ms(stack, QUIET)
        before = spent(await here.pids())
        await here.activate()
        flood = await _flooded(stack, here, count)
        beside = count - await here.left()
        await until(lambda: _have_ended(here, count))
        after = spent(await here.pids())
        runs = await here.runs()
    quiet_ms, flood_ms, starved_ms = spread(quiet), spread(flood), spread(starved)
    return made(
        stack, name, [flood_ms["p99"] / quiet_ms["p99"]], unit="x",
        correct=runs["runs"] == runs["messages"] == count, limits=[at_most("p50", MOST)],
        params={"messages": count, "batch": BATCH, "slots": SLOTS, **limits},
        quiet_ms=quiet_ms, flood_ms=flood_ms, starved_ms=starved_ms, runs_in_flood=len(flood),
        messages_per_s=round(count / runs["seconds"], 1), messages_beside=beside,
        cpu_ms_per_message=cost_ms(before, after, count),
        ratios={
            "p50": round(flood_ms["p50"] / quiet_ms["p50"], 2),
            "starved_p99": round(starved_ms["p99"] / quiet_ms["p99"], 2),
        },
    )  # fmt: skip


@asynccontextmanager
async def burners() -> AsyncIterator[None]:
    """One process for each core that does nothing but use it."""
    words = (sys.executable, "-c", BURN)
    burning = [await asyncio.create_subprocess_exec(*words) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for process in burning:
            process.kill()
            await process.wait()


async def _ms(stack: Stack, count: int) -> list[float]:
    return [(await stack.run(PATH))[1] * 1000 for _ in range(count)]


async def _flooded(stack: Stack, here: Site, count: int) -> list[float]:
    """The times of runs from the first message of the flood to the last, or long enough."""
    found: list[float] = []
    until_s = time.perf_counter() + MOST_S
    while (left := await here.left()) > 0 and time.perf_counter() < until_s:
        times = await _ms(stack, TURN)
        found += times if left < count else []
    return found


async def _have_ended(here: Site, count: int) -> bool:
    return await here.ended() >= count
