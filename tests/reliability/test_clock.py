"""The wall clock of each process jumps; timers and time tables keep the time of the database."""

from __future__ import annotations

import pytest

from tests.reliability.scenario import play
from tests.reliability.scenarios.clock import PROCESSES


async def test_nothing_fires_early_or_twice_whatever_a_wall_clock_says(plan):
    verdict = await play("clock", plan(seconds=5, seed=1))
    if verdict.skipped:
        pytest.skip(verdict.skipped)
    assert verdict.faults == []
    assert {item.split()[0] for item in verdict.schedule} == set(PROCESSES)
    assert verdict.measured["ticks"] > 0
