"""Each store has no space left in turn: nothing is answered that is not kept, and work goes on."""

from __future__ import annotations

import pytest

from tests.reliability.scenario import play
from tests.reliability.scenarios.disk_full import TURNS

SEED = 625
"""Tables first, then the spool; the log of the database last."""


async def test_a_store_without_space_refuses_and_resumes(plan):
    verdict = await play("disk_full", plan(4, seed=SEED))
    if verdict.skipped:
        pytest.skip(verdict.skipped)
    assert verdict.faults == []
    assert verdict.accepted
    assert verdict.schedule[0] == "tables"
    assert set(verdict.schedule) <= set(TURNS)
