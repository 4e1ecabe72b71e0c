"""Reports come twice, late, behind each other and slowly, on two servers with one database.

What a report says is stored once, whatever comes after it: no copy changes a run, none is kept as
late. Copies of worker `a` come to the server that knows the first: they are given no work. Those
of worker `b` come to the other one, which may learn too late that they are copies; what it gave to
nobody comes back with its lease.
"""

from __future__ import annotations

import asyncio

from tests.reliability.courier import Mischief
from tests.reliability.guests import Guests
from tests.reliability.ledger import Ledger
from tests.reliability.oracle import ghosts, keep, weigh
from tests.reliability.rig import LEASE_S
from tests.reliability.scenario import Verdict

KINDS = ("twice", "beside", "late", "behind", "slow", "alone")
MOST = 500
"""What is drawn, before it begins again."""
LOST, LATE = "command.lost", "command.late"
LATE_S, SLOW_S = LEASE_S + 1.0, 0.5
LEAST_REPORTS = 60


def drawn(random):
    """What is done to each report."""
    return [
        (name, round(random.uniform(0.0, SLOW_S if name == "slow" else LATE_S), 3))
        for name in random.choices(KINDS, k=MOST)
    ]


async def play(plan):
    """Carry the reports of two workers to two servers with all kinds of mischief."""
    verdict = Verdict(name="posts", seed=plan.seed)
    verdict.schedule = drawn(plan.random)
    async with Ledger().open() as ledger, plan.stack() as stack:
        stack.add_server("first")
        stack.add_server("second")
        first, second = (stack.parts[name].port for name in ("first", "second"))
        told = [verdict.schedule, verdict.schedule[::-1]]
        async with (
            Mischief(first, first, lambda at: told[0][at % MOST]).open() as one,
            Mischief(second, first, lambda at: told[1][at % MOST]).open() as other,
        ):
            for name, server, way in (("a", "first", one), ("b", "second", other)):
                stack.add_worker(name, server, slots=4, NOETL_SERVER_URL=way.url)
            await stack.start("first", "second", "a", "b")
            guests = Guests(stack, ledger, lasts_s=plan.seconds, shared=4, system=0, server="first")
            async with guests.here():
                await asyncio.sleep(plan.left_s)
                for way in (one, other):
                    await way.carried(LEAST_REPORTS // 2)
            for way in (one, other):
                await way.settled()
            verdict.wrong += guests.wrong + await ghosts(stack, guests.runs)
            await weigh(stack, ledger, guests.runs, verdict, "second")
            await _logs(stack, guests.runs, verdict)
        done, answers = one.done + other.done, one.answers + other.answers
        verdict.measured |= {"reports": dict(done), "answers": dict(answers)}
        if set(answers) != {200}:
            verdict.wrong.append(f"copies were answered with {dict(answers)}")
    return verdict


async def _logs(stack, runs, verdict):
    """Nothing is kept as late, and worker `a` has lost no work."""
    came_back = 0
    for run in runs:
        rows = await stack.rows(run, "second")
        holders = {
            (row["node_id"], row["attempt"]): row["worker_id"]
            for row in rows
            if row["event_type"] == "command.claimed"
        }
        lost = [(row["node_id"], row["attempt"]) for row in rows if row["event_type"] == LOST]
        came_back += len(lost)
        wrong = [f"{key} was given to nobody" for key in lost if holders[key] == "a"]
        wrong += [row["node_id"] for row in rows if row["event_type"] == LATE]
        if wrong:
            verdict.wrong.append(f"{run}: {wrong}")
            await keep(stack, run, "second")
    verdict.measured["came_back"] = came_back
