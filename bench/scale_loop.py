"""The time of one item in loops of 1,000, 10,000 and 100,000 items."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from bench import playbooks
from bench.limits import at_most
from bench.scenario import counted, made, on_stack

if TYPE_CHECKING:
    from bench.stack import Stack

PATH = "bench/loop"
SIZES = (1_000, 10_000, 100_000)
IN_FLIGHT = 100


def records(repeat: int) -> list[dict[str, Any]]:
    """The time of an item in larger loops over that in the smallest."""
    return on_stack(lambda stack: _measure(stack, repeat, SIZES))


async def _measure(stack: Stack, repeat: int, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    correct = True

    async def sample(items: int) -> float:
        nonlocal correct
        execution_id, taken = await stack.run(f"{PATH}{items}")
        expected = list(range(items))
        correct = correct and await stack.whole(execution_id, "start") == expected
        return taken / items * 1e6

    for items in sizes:
        await stack.register(playbooks.fan_out(f"{PATH}{items}", items, IN_FLIGHT))
    await sample(sizes[0])
    times: dict[int, list[float]] = {}
    costs: dict[int, dict[str, Any]] = {}
    for items in sizes:
        # Small loops are repeated more often, so that all sizes have about the same weight.
        often = repeat if items == sizes[0] else 1

        async def some(items: int = items, often: int = often) -> None:
            times[items] = [await sample(items) for _ in range(often)]

        costs[items] = await counted(stack, "item", items * often, some)
    medians = {items: statistics.median(one) for items, one in times.items()}
    first = medians[sizes[0]]
    return [
        made(
            stack, f"scale-loop-{items}", [value / first for value in times[items]],
            unit=f"of an item of {sizes[0]}", correct=correct, limits=[at_most("p50", 1.2, 1.5)],
            params={"items": items}, item_us=round(medians[items], 1),
            first_item_us=round(first, 1), counted=costs[items],
            ratios={"raw_commits": round(medians[items] / 1e6 * stack.raw.commits_serial, 3)},
        )
        for items in sizes[1:]
    ]  # fmt: skip
