"""A hundred steps in line that pass a value of 5 MB by reference.

The first step makes it, every other one is given it and reads it, the last returns its size. The
value itself goes from worker to server once, and comes back as often as a worker has to fetch it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench import playbooks
from bench.limits import at_most
from bench.processes import peak_mib, rss_mib
from bench.scenario import LINE, counted, made, on_stack, paired

if TYPE_CHECKING:
    from bench.stack import Stack

PATH = "bench/large"
STEPS = 100
SIZE = 5_000_000
WARM_STEPS = 5
MOST_MS = (5_000.0, 10_000.0)
MOST_MIB = 50.0


def records(repeat: int) -> list[dict[str, Any]]:
    """Milliseconds of such a run, and by how much the server grew."""
    return on_stack(lambda stack: _measure(stack, repeat))


async def _measure(stack: Stack, repeat: int) -> list[dict[str, Any]]:
    server = stack.pids["server"]
    correct = True

    async def sample(path: str = PATH) -> float:
        nonlocal correct
        execution_id, taken = await stack.run(path)
        correct = correct and await stack.result(execution_id) == SIZE
        return taken * 1000

    await stack.register(playbooks.passing(f"{PATH}_warm", WARM_STEPS, 1_000))
    await stack.register(playbooks.passing(PATH, STEPS, SIZE))
    await stack.run(f"{PATH}_warm")
    before = rss_mib(server)
    costs = await counted(stack, "step", STEPS, sample)
    samples, lines = await paired(stack, repeat, sample)
    ratios = [taken / line / (STEPS / LINE) for taken, line in zip(samples, lines, strict=True)]
    return [
        made(
            stack, "large", samples, unit="ms", correct=correct, counted=costs,
            limits=[at_most("p50", *MOST_MS), at_most("server_grew_mib", MOST_MIB)],
            params={"steps": STEPS, "bytes": SIZE},
            server_grew_mib=round(max(0.0, rss_mib(server) - before), 1),
            server_peak_grew_mib=round(max(0.0, peak_mib(server) - before), 1),
            ratios={"raw_commits": round(sorted(ratios)[len(ratios) // 2], 2)},
        )
    ]  # fmt: skip
