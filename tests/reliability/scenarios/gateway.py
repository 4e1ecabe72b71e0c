"""R12: two gateways, clients with open streams, and every part behind them that is killed.

A gateway is killed or told to end, the broker and the server are killed, one after the other, while
people start runs and hear of their ends. Whoever loses his stream comes back at any gateway by his
last event id: nothing is missed, nothing is told twice, whatever was answered is kept.
"""

from __future__ import annotations

import asyncio
import os
import signal

from noetl.clock import SystemClock
from noetl.local.embedded.children import PartFailed
from tests.reliability.ledger import Ledger
from tests.reliability.scenario import Verdict
from tests.reliability.visitors import Visitors

GATEWAYS = ("gateway-1", "gateway-2")
FAULTS = ("kill gateway-1", "kill gateway-2", "end gateway-1", "end gateway-2", "kill nats",
          "kill server")  # fmt: skip
FIRST = ("kill gateway-1", "end gateway-2", "kill nats", "kill server")
"""Those that the shortest play has, in an order of its own."""
SHORT_S = 60.0
LEAST_S, MOST_S = 2.0, 8.0
ENDED_S = 30.0
"""What a gateway may take that was told to end."""
CLIENTS, SHORT_CLIENTS = 1_000, 16


def drawn(random, seconds):
    """What is done in so many seconds."""
    is_short = seconds < SHORT_S
    least_s, most_s = (0.1, 0.3) if is_short else (LEAST_S, MOST_S)
    schedule, passed = [], 0.0
    for words in random.sample(FIRST, len(FIRST)):
        schedule.append(_fault(random, words, least_s, most_s))
        passed += schedule[-1]["after_s"] + schedule[-1]["down_s"]
    while not is_short and passed < seconds:
        schedule.append(_fault(random, random.choice(FAULTS), least_s, most_s))
        passed += schedule[-1]["after_s"] + schedule[-1]["down_s"]
    return schedule


def _fault(random, words, least_s, most_s):
    what, part = words.split()
    return {
        "what": what, "part": part, "after_s": round(random.uniform(least_s, most_s), 2),
        "down_s": round(random.uniform(0.0, least_s / 2), 2),
    }  # fmt: skip


async def play(plan):
    """Do what was drawn while visitors are there."""
    verdict = Verdict(name="gateway", seed=plan.seed)
    verdict.schedule = drawn(plan.random, plan.seconds)
    is_short = plan.seconds < SHORT_S
    async with Ledger().open() as ledger, plan.stack() as stack:
        stack.add_server(NOETL_BACKLOG_MAX="1000000")
        stack.add_worker(slots=4)
        for name in GATEWAYS:
            stack.add_gateway(name)
        await stack.start("server", "worker", *GATEWAYS)
        count = SHORT_CLIENTS if is_short else CLIENTS
        visitors = Visitors(stack, ledger, GATEWAYS, count)
        async with visitors.here(workers=3 if is_short else 8, pause_s=0.0 if is_short else 0.1):
            await visitors.recovered(Verdict(name="", seed=0), 0.0)
            for number, fault in enumerate(verdict.schedule):
                try:
                    await _done(stack, visitors, fault, verdict)
                except (TimeoutError, PartFailed) as missed:
                    said = stack.last(fault["part"])
                    verdict.wrong.append(f"{number} {fault}: {missed!r}: {said}")
                    break
        visitors.judge(verdict)
        verdict.calls, verdict.repeats = ledger.calls.total(), ledger.repeats
        verdict.is_mid_tool = True  # a server that is killed has not heard of some results
    return verdict


async def _done(stack, visitors, fault, verdict):
    clock, part = SystemClock(), fault["part"]
    await asyncio.sleep(fault["after_s"])
    if fault["what"] == "kill":
        await stack.kill(part)
    else:
        began = clock.monotonic()
        os.kill(stack.pid(part), signal.SIGTERM)
        async with asyncio.timeout(ENDED_S + 10):
            code = await stack.parts[part].wait()
        took = clock.monotonic() - began
        verdict.measured["ended_s"] = max(took, verdict.measured.get("ended_s", 0.0))
        if code or took > ENDED_S:
            verdict.wrong.append(f"{fault}: it ended with {code} after {took:.1f} s")
    await asyncio.sleep(fault["down_s"])
    began = clock.monotonic()
    await stack.start(part)
    await visitors.recovered(verdict, began)
