"""R2: every part is killed within a tenth of a second; they start in any order."""

from __future__ import annotations

import asyncio
import os
import signal

from noetl.clock import SystemClock
from tests.reliability.guests import Guests
from tests.reliability.ledger import Ledger
from tests.reliability.oracle import ghosts, weigh
from tests.reliability.scenario import Verdict
from tests.reliability.scenarios.kills import PATIENCE

PARTS = ("server", "worker", "system", "nats", "postgres")
ROUND_S = 15.0
KILL_S = 0.1
STEADY_S = 30.0
STEADY = 20
"""So many calls that were not under way: work goes on as before."""


def drawn(random, seconds):
    """Rounds: after how long all is killed, and in which order and with which gaps it starts."""
    return [
        {
            "after_s": round(random.uniform(0.5, 3.0), 2),
            "order": random.sample(PARTS, len(PARTS)),
            "gaps_s": [round(random.uniform(0.0, 0.5), 2) for _ in PARTS],
        }
        for _ in range(max(1, int(seconds / ROUND_S)))
    ]


async def play(plan):
    """Kill all again and again while guests come and go."""
    verdict = Verdict(name="all_at_once", seed=plan.seed, is_mid_tool=True)
    verdict.schedule = drawn(plan.random, plan.seconds)
    verdict.measured = {"kill_ms": [], "steady_s": []}
    async with Ledger().open() as ledger, plan.stack() as stack:
        stack.add_server(NOETL_COMMAND_MAX_ATTEMPTS=PATIENCE)
        stack.add_worker(slots=4)
        stack.add_worker("system", slots=2, pool="system")
        await stack.start("server", "worker", "system")
        guests = Guests(stack, ledger, lasts_s=plan.seconds, shared=4)
        async with guests.here():
            await ledger.reaches(10)
            for fault in verdict.schedule:
                await asyncio.sleep(fault["after_s"])
                await _killed(stack, verdict)
                await _begun(stack, guests, ledger, fault, verdict)
        verdict.wrong += guests.wrong + await ghosts(stack, guests.runs)
        await weigh(stack, ledger, guests.runs, verdict)
    return verdict


async def _killed(stack, verdict):
    clock = SystemClock()
    began = clock.monotonic()
    for pid in [stack.pid(part) for part in PARTS]:
        os.kill(pid, signal.SIGKILL)
    took_s = clock.monotonic() - began
    verdict.measured["kill_ms"].append(round(took_s * 1000, 1))
    if took_s > KILL_S:
        verdict.wrong.append(f"the kills took {took_s:.3f} s")
    await asyncio.gather(*(stack.buried(part) for part in PARTS))


async def _begun(stack, guests, ledger, fault, verdict):
    """Start all in the order that was drawn; how long until work goes on, and goes on as before."""
    clock = SystemClock()
    began = clock.monotonic()
    async with asyncio.TaskGroup() as group:
        steady = group.create_task(_steady(ledger, clock, began))
        for part, gap_s in zip(fault["order"], fault["gaps_s"], strict=True):
            group.create_task(stack.start(part))
            await asyncio.sleep(gap_s)
        await guests.recovered(verdict, "worker", began)
    verdict.measured["steady_s"].append(steady.result())
    if steady.result() > STEADY_S:
        verdict.stuck.append(f"work was not steady after {STEADY_S:g} s: {fault}")


async def _steady(ledger, clock, began):
    try:
        async with asyncio.timeout(2 * STEADY_S):
            await ledger.anew(STEADY)
    except TimeoutError:
        pass
    return round(clock.monotonic() - began, 1)
