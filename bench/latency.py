"""A single run of two Python steps on an idle stack, from the request to its end at the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench import playbooks
from bench.limits import at_most
from bench.scenario import commits_ms, counted, made, on_stack

if TYPE_CHECKING:
    from bench.stack import Stack

PATH = "bench/two"
STEPS = 2
SAMPLES = 500
WARM_UP = 50
COUNTED = 50


def records(repeat: int) -> list[dict[str, Any]]:
    """Milliseconds of a run; five hundred of them, a hundred for each repeat when that is less."""
    return on_stack(lambda stack: _measure(stack, min(SAMPLES, repeat * 100)))


async def _measure(stack: Stack, count: int) -> list[dict[str, Any]]:
    await stack.register(playbooks.chain(PATH, STEPS))
    correct = True

    async def sample() -> float:
        nonlocal correct
        execution_id, taken = await stack.run(PATH)
        correct = correct and await stack.result(execution_id) == STEPS - 1
        return taken * 1000

    async def some() -> None:
        for _ in range(COUNTED):
            await sample()

    for _ in range(WARM_UP):
        await sample()
    costs = await counted(stack, "run", COUNTED, some)
    samples = [await sample() for _ in range(count)]
    one = made(
        stack, "latency", samples, unit="ms", correct=correct, counted=costs,
        limits=[at_most("p50", 7.0, 20.0), at_most("p99", 30.0, 100.0)],
        params={"steps": STEPS, "samples": count},
    )  # fmt: skip
    commits = costs["commits_per_run"]
    return [one | {"ratios": {"raw_commits": round(one["p50"] / commits_ms(stack, commits), 2)}}]
