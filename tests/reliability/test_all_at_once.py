"""Everything is killed at once and starts in any order."""

from __future__ import annotations

import pytest

from tests.reliability.scenario import play


@pytest.mark.timeout(180)  # on a machine that may be busy
async def test_everything_is_killed_at_once_and_starts_in_any_order(plan):
    verdict = await play("all_at_once", plan(5.0))
    assert verdict.faults == []
    assert len(verdict.schedule) == len(verdict.recovery_s) == 1
