"""What an idle stack costs: processor time of all its processes, their memory, and their disk.

The processes that are told together are ours without tool children: the server and two workers.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from bench import playbooks
from bench.install import records_of
from bench.limits import at_most
from bench.processes import cpu_s, pss_mib, rss_mib, trees
from bench.scenario import made, on_stack

if TYPE_CHECKING:
    from bench.stack import Stack

PATH = "bench/hello"
IDLE_S = 30.0
LONG_S = 300.0
QUIET_S = 3.0
MOST_PERCENT = (2.0, 5.0)
MOST_MIB = {
    "server": (120.0, 180.0),
    "worker-shared": (90.0, 135.0),
    "worker-system": (90.0, 135.0),
}
MOST_TOGETHER_MIB = 350.0


def records(repeat: int, *, is_long: bool = False) -> list[dict[str, Any]]:
    """Percent of a core over half a minute, or five minutes; MiB of each process."""
    del repeat  # time is its own repetition
    idle = on_stack(lambda stack: _measure(stack, LONG_S if is_long else IDLE_S))
    return [*idle, *records_of()]


async def _measure(stack: Stack, idle_s: float) -> list[dict[str, Any]]:
    await stack.register(playbooks.chain(PATH, 1))
    for _ in range(20):
        await stack.run(PATH)
    await stack.transport.close()
    await asyncio.sleep(QUIET_S)
    began = trees(stack.pids)
    before = {name: cpu_s(pids) for name, pids in began.items()}
    start = time.perf_counter()
    await asyncio.sleep(idle_s)
    passed = time.perf_counter() - start
    used = {name: cpu_s(pids) - before[name] for name, pids in began.items()}
    percent = {name: round(value / passed * 100, 3) for name, value in used.items()}
    now = trees(stack.pids)
    shares = {name: round(sum(map(pss_mib, pids)), 1) for name, pids in now.items()}
    held = [
        made(
            stack, "footprint-cpu", [sum(percent.values())], unit="% of a core",
            limits=[at_most("p50", *MOST_PERCENT)],
            params={"idle_s": round(passed)}, by_process=percent, seconds=round(passed, 1),
        )
    ]  # fmt: skip
    for name, bounds in MOST_MIB.items():
        held.append(
            made(
                stack, f"footprint-{name}", [rss_mib(stack.pids[name])], unit="MiB",
                limits=[at_most("p50", *bounds)], params={},
                pss_with_children_mib=shares[name], processes=len(now[name]),
            )
        )  # fmt: skip
    own = {name: round(rss_mib(stack.pids[name]), 1) for name in MOST_MIB}
    together = made(
        stack, "footprint-together", [sum(own.values())], unit="MiB", params={},
        limits=[at_most("p50", MOST_TOGETHER_MIB)], by_process=own,
    )  # fmt: skip
    whole = made(
        stack, "footprint-stack", [sum(shares.values())], unit="MiB", params={}, by_process=shares
    )
    return [*held, together, whole]
