"""States at hand: those of runs under way, and of those that have just ended."""

from __future__ import annotations

from noetl.server.ingest.cache import MOST_ENDED
from tests.unit.server.rig import ONE_STEP, rig, virtually


@virtually
async def test_of_runs_that_have_ended_only_the_latest_are_kept():
    async with rig() as r:
        runs = []
        for _ in range(MOST_ENDED + 3):
            runs.append(await r.start(ONE_STEP))
            (command,) = await r.claim()
            await r.done(command)
        open_run = await r.start(ONE_STEP)
        kept = [run for run in runs if r.plane.cache.peek(run) is not None]
        assert kept == runs[3:]
        assert r.plane.cache.peek(open_run) is not None
        assert (await r.plane.cache.get(runs[0])).state.terminal is not None
