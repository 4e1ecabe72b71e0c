"""Places in a log: named in one way, found, or refused."""

from __future__ import annotations

import pytest

from noetl.api.executions import Fork
from noetl.api.problems import Refused
from noetl.engine import events as ev
from noetl.engine.fork import BadPosition
from noetl.server.runs.positions import place_of
from tests.unit.server.rig import TWO_STEPS, rig, virtually

WRONG = (
    {}, {"seq": 1, "step": "end"}, {"seq": 0}, {"seq": 999}, {"event_id": "7"},
    {"step": "nowhere"}, {"step": "failed"},
)  # fmt: skip


@virtually
async def test_a_position_is_named_in_one_way_and_exists() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        for _ in range(2):
            (work,) = await r.claim()
            await r.done(work)
        log, row = r.store.log, await r.plane.details.row(run)
        events = await log.read(run)
        assert await place_of(log, row, seq=3) == 3
        assert await place_of(log, row, event_id=events[4].event_id) == 5
        at = await place_of(log, row, step="end")
        assert isinstance(events[at].event, ev.StepEntered)
        for wrong in WRONG:
            with pytest.raises(BadPosition):
                await place_of(log, row, **wrong)


@virtually
async def test_a_version_without_the_steps_that_are_done_is_refused() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        (work,) = await r.claim()
        await r.done(work)
        await r.start("\nworkflow:\n  - {step: other, tool: {kind: noop}}\n")
        with pytest.raises(Refused) as refused:
            await r.client.fork(run, Fork(from_step="end", version="latest"))
        problem = refused.value.problem
        assert (problem.status, problem.code) == (409, "version_conflict")
        assert [error["pointer"] for error in problem.errors] == ["/steps/start", "/steps/end"]
