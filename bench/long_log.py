"""The cost of one event in each tenth of one very long log."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

from bench import playbooks
from bench.limits import at_most
from bench.pretend import POOL, Pretender
from bench.processes import rss_mib
from bench.scenario import made
from noetl.api.commands import Claim
from noetl.api.executions import Execute

if TYPE_CHECKING:
    from bench.stack import Stack
    from noetl.api.commands import Command

PATH = "bench/events"
EVENTS = 1_000_000
PER_ITEM = 5
"""Events of an item: issued, claimed, started, done, completed."""
LANES = 8
HELD = 50
"""Commands that a pretended worker holds."""
MOST_S = 1_800.0
PARTS = 100
_MARKS = """
select seq, extract(epoch from created_at)::float8 as at from noetl.event
where execution_id = $1 and seq % $2 = 0 order by seq"""
_OPEN = ("PENDING", "RUNNING")


async def long_log(stack: Stack) -> dict[str, Any]:
    """The time of an event in the last tenth over that in the second, which is warm.

    One commit has many events with one time, so that only long parts can be compared.
    """
    items = EVENTS // PER_ITEM
    await stack.register(playbooks.open_loop(PATH, items, LANES * HELD))
    server = stack.pids["server"]
    memory = rss_mib(server)
    started = await stack.client.execute(Execute(path=PATH, execution_pool=POOL))
    run = started.execution_id
    async with asyncio.timeout(MOST_S):
        done = await asyncio.gather(*(_work(stack, run, lane) for lane in range(LANES)))
    found = await stack.client.status(run)
    last = found.last_seq
    rows = await stack.connection.fetch(_MARKS, int(run), last // PARTS)
    edges = [rows[0], *rows[PARTS // 10 - 1 : PARTS : PARTS // 10]]
    tenths = [
        (after["at"] - before["at"]) / (after["seq"] - before["seq"]) * 1e6
        for before, after in itertools.pairwise(edges)
    ]
    return made(
        stack, "scale-log-events", [tenths[-1] / tenths[1]], unit="last tenth / second tenth",
        correct=found.status == "COMPLETED" and sum(done) == items,
        limits=[at_most("p50", 1.2, 1.5)], params={"items": items}, events=last,
        tenths_us=[round(one, 1) for one in tenths],
        server_grew_mib=round(rss_mib(server) - memory, 1),
        ratios={"raw_commits": round(tenths[-1] / 1e6 * stack.raw.commits_serial, 3)},
    )  # fmt: skip


async def _work(stack: Stack, run: str, lane: int) -> int:
    """Report until the run has ended; how many commands this worker had."""
    worker = Pretender(f"bench-{lane}")
    held: tuple[Command, ...] = ()
    done = 0
    while True:
        if held:
            events = [event for command in held for event in worker.done(command)]
            answer = await stack.client.report(worker.batch(events, free_slots=HELD))
            if any(one.outcome != "stored" for one in answer.results):
                raise RuntimeError(f"an event was not stored: {answer.results}")
            done += len(held)
            held = answer.claimed
        else:
            ask = Claim(worker_id=worker.name, pool=POOL, free_slots=HELD, wait_seconds=1.0)
            held = (await stack.client.claim(ask)).claimed
            if not held and (await stack.client.status(run)).status not in _OPEN:
                return done
