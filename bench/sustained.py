"""Mixed steps under a steady load: sixteen clients, each with one run at a time, for minutes.

A run has Python steps, a request to a local server, a branch and a loop; each client waits for the
end of its run by its event stream. What counts is that the last part is as good as the first.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench import playbooks
from bench.bare import bare
from bench.limits import at_least, at_most
from bench.sampling import percentile, spread
from bench.scenario import LINE, counted, made, on_stack

if TYPE_CHECKING:
    from bench.stack import Stack

PATH = "bench/mixed"
CLIENTS = 16
SECONDS = 30.0
LONG_S = 300.0
WARM_UP_S = 5.0
PARTS = 6
LEAST = (400.0, 200.0)
MOST_GROWTH = 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One run: when it had ended, and how long it took."""

    at_s: float
    ms: float


def records(repeat: int, *, is_long: bool = False) -> list[dict[str, Any]]:
    """Steps a second over half a minute, or five minutes, and the p99 of runs early and late."""
    del repeat  # time is its own repetition
    return on_stack(lambda stack: _measure(stack, LONG_S if is_long else SECONDS))


async def _measure(stack: Stack, seconds: float) -> list[dict[str, Any]]:
    async with bare() as url:
        await stack.register(playbooks.mixed(PATH, f"{url}/"))
        load = Load(stack)
        await load.run(WARM_UP_S)
        costs = await counted(stack, "run", CLIENTS, load.each)
        line_before = await stack.commits.line_ms()
        done = await load.run(seconds)
        line_after = await stack.commits.line_ms()
    size = seconds / PARTS
    parts = [
        [one for one in done if place * size <= one.at_s < (place + 1) * size]
        for place in range(PARTS)
    ]
    rates = [len(part) * playbooks.MIXED_STEPS / size for part in parts]
    tails = [percentile(sorted(one.ms for one in part), 0.99) for part in parts if part]
    commits_s = 2 * LINE * 1000 / (line_before + line_after)
    half = len(tails) // 2
    flat = min(tails[half:]) / min(tails[:half])
    return [
        made(
            stack, "sustained", rates, unit="steps/s", better="higher",
            correct=load.is_right and len(tails) == PARTS,
            limits=[at_least("p50", *LEAST), at_most("p99_late_over_early", MOST_GROWTH)],
            params={"clients": CLIENTS, "seconds": round(seconds), "parts": PARTS},
            counted=costs, run_ms=spread([one.ms for one in done]), runs=len(done),
            p99_late_over_early=round(flat, 3), p99_ms=[round(one, 1) for one in tails],
            ratios={"of_raw_commits_serial": round(sorted(rates)[PARTS // 2] / commits_s, 3)},
        )
    ]  # fmt: skip


class Load:
    """Clients that each start a run when theirs has ended."""

    def __init__(self, stack: Stack) -> None:
        self.is_right = True
        self._stack = stack

    async def one(self) -> float:
        """One run: the milliseconds that it took."""
        execution_id, taken = await self._stack.run(PATH)
        right = await self._stack.result(execution_id) == playbooks.MIXED_RESULT
        self.is_right = self.is_right and right
        return taken * 1000

    async def each(self) -> None:
        """One run of every client."""
        await asyncio.gather(*(self.one() for _ in range(CLIENTS)))

    async def run(self, seconds: float) -> list[Done]:
        """All of them, for so long."""
        began = time.perf_counter()
        done: list[Done] = []

        async def client() -> None:
            while time.perf_counter() - began < seconds:
                taken = await self.one()
                done.append(Done(at_s=time.perf_counter() - began, ms=taken))

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(client())
        return done
