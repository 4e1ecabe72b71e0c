"""Running trees are cancelled at random moments: nothing of them starts afterwards."""

from __future__ import annotations

from tests.reliability.scenario import play
from tests.reliability.scenarios.cancel_storm import TREES


async def test_no_command_of_a_cancelled_tree_starts(plan):
    verdict = await play("cancel_storm", plan(4))
    assert verdict.faults == []
    assert verdict.accepted == TREES * len(verdict.schedule)
