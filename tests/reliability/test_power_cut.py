"""The power is cut under load: nothing that was answered is lost."""

from __future__ import annotations

import pytest

from tests.reliability.scenario import play


async def test_what_was_answered_before_a_power_cut_is_there_after_it(plan):
    verdict = await play("power_cut", plan(4))
    assert verdict.faults == []
    assert verdict.schedule
    assert verdict.accepted
    if verdict.measured["disk"] != "image":
        pytest.skip("no image can be mounted here: that it was synced was not shown")
