"""Reports that come twice, late and in another order change nothing."""

from __future__ import annotations

import pytest

from tests.reliability.scenario import play
from tests.reliability.scenarios.posts import KINDS


@pytest.mark.timeout(180)  # on a machine that may be busy
async def test_reports_that_come_twice_late_and_out_of_order_change_nothing(plan):
    verdict = await play("posts", plan(4.0))
    assert verdict.faults == []
    assert set(verdict.measured["reports"]) == set(KINDS)
