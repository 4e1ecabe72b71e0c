"""One loop of a thousand trivial Python items, a hundred at once, results collected in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench import playbooks
from bench.limits import at_least
from bench.scenario import beside, counted, made, on_stack

if TYPE_CHECKING:
    from bench.stack import Stack

PATH = "bench/fanout"
ITEMS = 1_000
IN_FLIGHT = 100
WARM_UP = 2


def records(repeat: int, *, size: int = ITEMS) -> list[dict[str, Any]]:
    """Items a second."""
    return on_stack(lambda stack: measure(stack, repeat, size))


async def measure(stack: Stack, repeat: int, items: int = ITEMS) -> list[dict[str, Any]]:
    await stack.register(playbooks.fan_out(PATH, items, IN_FLIGHT))
    correct = True

    async def sample() -> float:
        nonlocal correct
        execution_id, taken = await stack.run(PATH)
        correct = correct and await stack.whole(execution_id, "start") == list(range(items))
        return items / taken

    for _ in range(WARM_UP):
        await sample()
    costs = await counted(stack, "item", items, sample)
    samples, share = await beside(stack, repeat, sample)
    return [
        made(
            stack, "fanout", samples, unit="items/s", better="higher", correct=correct,
            limits=[at_least("p50", 1_000.0, 400.0)], counted=costs,
            params={"items": items, "max_in_flight": IN_FLIGHT},
            ratios={
                "of_raw_commits_serial": share,
                "of_raw_commits_on_32": round(max(samples) / stack.raw.commits_on_32, 3),
            },
        )
    ]  # fmt: skip
