"""A worker is cut off for longer than its leases, and other ways are cut for a moment."""

from __future__ import annotations

from tests.reliability.scenario import play
from tests.reliability.scenarios.partitions import HELD


async def test_what_a_zombie_did_is_stored_and_changes_nothing(plan):
    verdict = await play("partitions", plan(seconds=9, seed=1))
    assert verdict.faults == []
    assert verdict.measured["late"] >= HELD
    assert verdict.measured["schedules"] >= 2
