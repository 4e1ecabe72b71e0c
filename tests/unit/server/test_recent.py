"""What was committed a moment ago need not be read."""

from __future__ import annotations

import asyncio

from noetl.server.recent import MOST_EVENTS, MOST_RUNS
from tests.unit.server.rig import ONE_STEP, TWO_STEPS, many, rig, virtually


class Asked(Exception):
    """The store was asked."""


@virtually
async def test_a_run_that_began_here_is_known_without_a_question() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        await asyncio.sleep(1)  # whoever asked is answered first
        recent = r.plane.signals.recent
        stored = await r.plane.parts.store.log.read(run)
        assert recent.after(run, 0) == stored
        assert recent.after(run, 2) == stored[2:]
        assert recent.after(run, len(stored)) == []
        row = recent.first_row(run)
        assert row is not None
        assert (row.tenant_id, row.path) == await r.plane.owners.of(run)
        (work,) = await r.claim()
        await r.report(r.event(work, "call.done", result=1))
        await asyncio.sleep(1)
        assert recent.after(run, 0) == await r.plane.parts.store.log.read(run)


@virtually
async def test_a_stream_of_it_reads_nothing_until_its_end() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        await asyncio.sleep(1)

        def refuse(*_: object) -> None:
            raise Asked

        r.plane.parts.store.log.read = refuse  # type: ignore[method-assign]
        reader = r.plane.streams.open(run, 0, "me", is_lean=True)
        (work,) = await r.claim()
        await r.report(r.event(work, "call.done", result=1))
        told = b"".join([part async for part in reader.frames()])
        r.plane.streams.close(reader)
    assert told.count(b"event: playbook.started") == 1
    assert told.count(b"event: playbook.completed") == 1
    assert told.endswith(b'"status":"COMPLETED"}\n\n')
    assert told.count(b"event: end") == 1


@virtually
async def test_little_is_kept() -> None:
    async with rig() as r:
        recent = r.plane.signals.recent
        runs = [await r.start(ONE_STEP) for _ in range(MOST_RUNS + 1)]
        await asyncio.sleep(1)
        assert recent.after(runs[0], 0) is None
        assert recent.after(runs[1], 0) is not None
        run = await r.start(many(MOST_EVENTS, MOST_EVENTS))
        await asyncio.sleep(1)
        assert recent.after(run, 0) is None


@virtually
async def test_a_run_that_goes_on_for_long_is_forgotten() -> None:
    async with rig() as r:
        run = await r.start(many(MOST_EVENTS, 1))
        for _ in range(MOST_EVENTS // 2):
            (work,) = await r.claim()
            await r.done(work)
        await asyncio.sleep(1)
        assert r.plane.signals.recent.after(run, 0) is None
        assert await r.plane.owners.exists(run)
