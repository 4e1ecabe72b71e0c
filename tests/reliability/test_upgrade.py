"""A stack of the release before is brought to this one under load: no run fails."""

from __future__ import annotations

import pytest

from tests.reliability.scenario import play
from tests.reliability.scenarios.upgrade import ORDERS, Missing, released


async def test_parts_of_two_releases_work_together(plan):
    try:
        await released()
    except Missing:
        # What is not released may change at will; `make test-reliability` plays a tree of the past.
        pytest.skip("there is no release before this one: the history has no tag")
    verdict = await play("upgrade", plan(1))
    if verdict.skipped:
        pytest.skip(verdict.skipped)
    assert verdict.faults == []
    assert {tuple(one["order"]) for one in verdict.schedule} == set(ORDERS)
