"""A single run of two Python steps on an idle stack, from the request to its end at the client."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from bench import playbooks
from bench.limits import at_most
from bench.scenario import LINE, counted, made, on_stack, paired

if TYPE_CHECKING:
    from bench.stack import Stack

PATH = "bench/two"
STEPS = 2
SAMPLES = 500
WARM_UP = 50
COUNTED = 50
TURN = 20
"""Samples between two looks at the raw commits."""


def records(repeat: int, *, size: int | None = None) -> list[dict[str, Any]]:
    """Milliseconds of a run; five hundred of them, a hundred for each repeat when that is less."""
    return on_stack(lambda stack: measure(stack, size or min(SAMPLES, repeat * 100)))


async def measure(stack: Stack, count: int) -> list[dict[str, Any]]:
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
    samples: list[float] = []

    async def turn() -> float:
        samples.extend([await sample() for _ in range(TURN)])
        return statistics.median(samples[-TURN:])

    medians, lines = await paired(stack, max(1, count // TURN), turn)
    commits = STEPS / LINE
    ratios = [taken / line / commits for taken, line in zip(medians, lines, strict=True)]
    return [
        made(
            stack, "latency", samples, unit="ms", correct=correct, counted=costs,
            limits=[at_most("p50", 7.0, 20.0), at_most("p99", 30.0, 100.0)],
            params={"steps": STEPS, "samples": count},
            ratios={"raw_commits": round(statistics.median(ratios), 2)},
        )
    ]  # fmt: skip
