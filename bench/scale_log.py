"""The cost of one step visit in a cyclic run of 10,000, and of one event in one very long log.

The long log is that of a loop whose items pretended workers report: a million events.
"""

from __future__ import annotations

import itertools
import statistics
from datetime import datetime
from typing import TYPE_CHECKING, Any

from bench import playbooks
from bench.limits import at_most
from bench.long_log import long_log
from bench.scenario import commits_ms, made, on_stack

if TYPE_CHECKING:
    from bench.stack import Stack

PATH = "bench/cycle"
VISITS = 10_000
EARLY, LATE = 100, 9_900
AROUND = 95
PAGE = 1_000


def records(repeat: int) -> list[dict[str, Any]]:
    """The time of a visit around the 9,900th over that around the 100th; the same of events."""

    async def both(stack: Stack) -> list[dict[str, Any]]:
        visits = await _measure(stack, max(1, repeat // 3))
        return [*visits, await long_log(stack)]

    return on_stack(both)


async def _measure(stack: Stack, repeat: int) -> list[dict[str, Any]]:
    await stack.register(playbooks.cycle(f"{PATH}_warm", AROUND))
    await stack.register(playbooks.cycle(PATH, VISITS))
    ratios, tenths, early, late = [], [], [], []
    correct = True
    for _ in range(repeat):
        await stack.run(f"{PATH}_warm")
        execution_id, _ = await stack.run(PATH)
        exits = await _exits(stack, execution_id)
        correct = correct and len(exits) == VISITS
        gaps = [(after - before) * 1000 for before, after in itertools.pairwise(exits)]
        early.append(statistics.median(gaps[EARLY - AROUND : EARLY + AROUND]))
        late.append(statistics.median(gaps[LATE - AROUND : LATE + AROUND]))
        ratios.append(late[-1] / early[-1])
        size = len(gaps) // 10
        tenths = [statistics.median(gaps[size * n : size * (n + 1)]) for n in range(10)]
    return [
        made(
            stack, "scale-log", ratios, unit="late / early", correct=correct,
            limits=[at_most("p50", 1.2, 1.5)], params={"visits": VISITS},
            early_ms=round(statistics.median(early), 3), late_ms=round(statistics.median(late), 3),
            tenths_ms=[round(one, 3) for one in tenths],
            ratios={"raw_commits": round(statistics.median(late) / commits_ms(stack, 1), 2)},
        )
    ]  # fmt: skip


async def _exits(stack: Stack, execution_id: str) -> list[float]:
    """When each visit ended, in the log's order."""
    found: list[float] = []
    after = 0
    while True:
        page = await stack.client.events(execution_id, after, PAGE, event_type="step.exit")
        found += [datetime.fromisoformat(row["created_at"]).timestamp() for row in page.items]
        if not page.items or page.next_cursor is None:
            return found
        after = page.items[-1]["seq"]
