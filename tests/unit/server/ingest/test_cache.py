"""States at hand: those of runs under way, and of those that have just ended."""

from __future__ import annotations

from noetl.server.ingest.cache import MOST_ENDED, Cache
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


@virtually
async def test_states_are_bounded_in_bytes_and_the_last_one_used_stays():
    async with rig() as r:
        runs = [await r.start(ONE_STEP, payload={"text": "x" * 5_000}) for _ in range(3)]
        sizes = [await _size_of(r, run) for run in runs]
        cache = Cache(r.store, r.plane.programs, most_bytes=sum(sizes[:2]))
        for run in runs:
            await cache.get(run)
        assert min(sizes) > 5_000
        assert [cache.peek(run) is not None for run in runs] == [False, True, True]
        assert cache.bytes == sum(sizes[1:])
        cache.grew(await cache.get(runs[1]), by=sum(sizes))
        assert [cache.peek(run) is not None for run in runs] == [False, True, False]
        cache.drop(runs[1])
        assert cache.bytes == 0


@virtually
async def test_what_a_run_reports_is_counted():
    async with rig() as r:
        await r.start(ONE_STEP)
        before = r.plane.cache.bytes
        (command,) = await r.claim()
        await r.done(command, result="y" * 20_000)
        assert r.plane.cache.bytes >= before + 20_000


async def _size_of(r, run):
    cache = Cache(r.store, r.plane.programs)
    await cache.get(run)
    return cache.bytes
