"""NATS is stopped, its store is deleted, and it starts empty while many runs are under way.

The bus only tells where work is; whoever asks finds it without being told.
"""

from __future__ import annotations

import asyncio
import json
import shutil

from noetl.clock import SystemClock
from noetl.local.embedded.probe import ask
from tests.reliability.ledger import Ledger
from tests.reliability.oracle import weigh
from tests.reliability.scenario import Verdict
from tests.reliability.work import chain

MANY, FEW = 200, 40
LONG_S = 30.0
MOST_DELAY_S = 60.0
CLIENTS = 16


async def play(plan):
    """Wipe the store again and again, each time with as many runs in flight."""
    verdict = Verdict(name="bus_wiped", seed=plan.seed)
    count = MANY if plan.seconds >= LONG_S else FEW
    work, runs, delays = chain(4), {}, []
    async with Ledger().open() as ledger, plan.stack() as stack:
        stack.add_server()
        stack.add_worker(slots=16)
        await stack.start("server", "worker")
        while not delays or plan.left_s > 0:
            share, away_s = plan.random.uniform(0.1, 0.6), plan.random.choice((0.0, 0.5, 2.0))
            verdict.schedule.append(f"wiped at {share:.2f} of {count}, away for {away_s} s")
            before = len(ledger.rows)
            ledger.gate.clear()
            begun = await _many(stack, ledger, work, count)
            ledger.gate.set()
            await ledger.reaches(before + int(share * count * len(work.effects)))
            await stack.kill("nats")
            shutil.rmtree(stack.nats.store_dir)
            wiped = SystemClock().monotonic()
            begun |= {await stack.begin(work, ledger): work}  # nobody hints at it
            await asyncio.sleep(away_s)
            await stack.start("nats")
            begun |= {await stack.begin(work, ledger): work}
            runs |= begun
            delays.append(await _ended(stack, begun, wiped, verdict))
            verdict.recovery_s.append(await _restored(stack, verdict))
            if verdict.stuck:
                break
        await weigh(stack, ledger, runs, verdict, is_patient=count == MANY)
    verdict.measured = {"in_flight": count, "delays_s": delays}
    return verdict


async def _many(stack, ledger, work, count):
    """Begin so many runs, some of them side by side."""
    room = asyncio.Semaphore(CLIENTS)

    async def begin():
        async with room:
            return await stack.begin(work, ledger)

    return dict.fromkeys(await asyncio.gather(*(begin() for _ in range(count))), work)


async def _ended(stack, runs, since, verdict):
    """Wait for the ends; how long after the wipe the last one came."""
    clock = SystemClock()
    try:
        async with asyncio.timeout(MOST_DELAY_S):
            for run in runs:
                await stack.ended(run)
    except TimeoutError:
        verdict.stuck.append(f"not all of {len(runs)} runs ended within {MOST_DELAY_S:g} s")
    return round(clock.monotonic() - since, 3)


async def _restored(stack, verdict):
    """Wait until there are streams and consumers again; how long it took."""
    clock, page = SystemClock(), f"http://127.0.0.1:{stack.nats.http_port}/jsz"
    began = clock.monotonic()
    while clock.monotonic() < began + MOST_DELAY_S:
        answer = await ask(page)
        told = json.loads(answer[1]) if answer else {}
        if told.get("streams") and told.get("consumers"):
            return round(clock.monotonic() - began, 3)
        await asyncio.sleep(0.1)
    verdict.stuck.append(f"streams and consumers were not made again in {MOST_DELAY_S:g} s")
    return MOST_DELAY_S
