"""R15: a stack is backed up under load and restored elsewhere, where its runs go on.

The other stack has a database and a bus of its own. Runs that began before the backup go on from
what it holds: what they did since is done again, and the keyed ledger knows it already.
"""

from __future__ import annotations

import asyncio

import asyncpg

from noetl.server import admin
from tests.reliability.ledger import Ledger
from tests.reliability.load import Load
from tests.reliability.oracle import weigh
from tests.reliability.scenario import Verdict
from tests.reliability.work import chain, fanout

LEAST_S, MOST_S = 0.5, 2.0
PAUSE_S = 0.05
"""Runs begin faster than they end: at any time there are some that have not."""
PARTS = ("server", "worker")
_OPEN = "select count(*) from noetl.execution where completed_at is null"


async def play(plan):
    """Back up and restore, again and again."""
    verdict = Verdict(name="backup", seed=plan.seed)
    verdict.measured = {"open_at_backup": 0}
    while not verdict.schedule or plan.left_s > 0:
        before_s, after_s = (round(plan.random.uniform(LEAST_S, MOST_S), 3) for _ in range(2))
        verdict.schedule.append({"backup_after_s": before_s, "lost_after_s": after_s})
        async with Ledger().open() as ledger:
            runs, file = await _backed_up(plan, ledger, before_s, after_s)
            ledger.calls.clear()  # the other stack knows nothing of what came after the backup
            await _restored(plan, ledger, runs, file, verdict)
            file.unlink()
    return verdict


async def _started(stack):
    stack.add_server()
    stack.add_worker()
    await stack.start(*PARTS)


async def _backed_up(plan, ledger, before_s, after_s):
    """The runs that a backup holds, and its file; the stack is gone then."""
    file = plan.folder / "noetl.backup"
    async with plan.stack() as stack:
        await _started(stack)
        load = Load(stack, ledger, [chain(12), fanout(24, in_flight=4)])
        load.pause_s = PAUSE_S
        async with load.going():
            await asyncio.sleep(before_s)
            runs = dict(load.runs)
            await admin.backup(stack.postgres.url, file)
            await asyncio.sleep(after_s)
            await asyncio.gather(*(stack.kill(part) for part in PARTS))
    return runs, file


async def _open(url):
    """How many runs a database holds that have not ended; nobody works on them yet."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(_OPEN)
    finally:
        await connection.close()


async def _restored(plan, ledger, runs, file, verdict):
    """Another stack goes on with the runs of a backup."""
    async with plan.stack() as stack:
        await admin.restore(stack.postgres.url, file, is_forced=True)
        verdict.measured["open_at_backup"] += await _open(stack.postgres.url)
        await _started(stack)
        calls, repeats = verdict.calls, verdict.repeats
        await weigh(stack, ledger, runs, verdict)
        verdict.calls, verdict.repeats = verdict.calls + calls, verdict.repeats + repeats
        for one in await admin.check(stack.postgres.url):
            if not one.is_ok:
                verdict.wrong.append(f"after the restore: {one.name}: {one.meaning} {one.found}")
