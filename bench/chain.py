"""One execution of forty trivial Python steps in line, from the request to its end at the client.

Every step is a durable command of its own on a worker process; the child interpreters are warm.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from bench import playbooks
from bench.limits import at_most
from bench.scenario import LINE, counted, made, on_stack, paired

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.stack import Stack

PATH = "bench/chain"
STEPS = LINE
WARM_UP = 4
COUNTED = 5
SAMPLES = 5
"""Runs for each repeat: one takes a tenth of a second."""
MOST_PER_STEP = 1.15


def records(repeat: int, *, size: int = STEPS) -> list[dict[str, Any]]:
    """Milliseconds of a chain, against as many raw commits measured beside each run."""

    async def measure(stack: Stack) -> list[dict[str, Any]]:
        return [await chain(stack, repeat, size)]

    return on_stack(measure)


async def chain(stack: Stack, repeat: int, steps: int = STEPS) -> dict[str, Any]:
    """The record of a chain on a stack."""
    await stack.register(playbooks.chain(PATH, steps))
    return await record_of(
        stack, "chain", PATH, repeat, steps=steps, is_right=lambda result: result == steps - 1,
        limits=[
            at_most("ratios.raw_commits", 8.0, 20.0),
            at_most("counted.commits_per_step", MOST_PER_STEP),
            at_most("counted.round_trips_per_step", MOST_PER_STEP),
        ],
    )  # fmt: skip


async def record_of(  # noqa: PLR0913 - what differs between chains
    stack: Stack,
    name: str,
    path: str,
    repeat: int,
    *,
    is_right: Callable[[Any], bool],
    limits: list[Any],
    steps: int = STEPS,
) -> dict[str, Any]:
    """A record of a registered playbook of forty steps, or another number."""
    ids: list[str] = []

    async def sample() -> float:
        execution_id, taken = await stack.run(path)
        ids.append(execution_id)
        return taken * 1000

    async def some() -> None:
        for _ in range(COUNTED):
            await sample()

    for _ in range(WARM_UP):
        await sample()
    costs = await counted(stack, "step", COUNTED * steps, some)
    samples, lines = await paired(stack, repeat * SAMPLES, sample)
    correct = all([await _is_whole(stack, execution_id, steps, is_right) for execution_id in ids])
    commits = steps / LINE
    ratios = [taken / line / commits for taken, line in zip(samples, lines, strict=True)]
    return made(
        stack, name, samples, unit="ms", correct=correct, limits=limits, counted=costs,
        params={"steps": steps, "path": path},
        ratios={
            "raw_commits": round(statistics.median(ratios), 2),
            "raw_commits_best": round(min(samples) / min(lines) / commits, 2),
            "raw_round_trips": round(
                statistics.median(samples) / 1000 * stack.raw.http_serial / steps, 2
            ),
        },
        raw_line_ms=[round(line, 2) for line in lines],
    )  # fmt: skip


async def _is_whole(
    stack: Stack, execution_id: str, steps: int, is_right: Callable[[Any], bool]
) -> bool:
    """Whether a run ended well, with every step once and the right result."""
    found = await stack.client.execution(execution_id, with_state=False)
    all_once = {"total": steps, "completed": steps, "running": 0, "failed": 0, "skipped": 0}
    return found.status == "COMPLETED" and found.steps == all_once and is_right(found.result)
