"""Bodies without sense and handlers that kill: they are refused or fail, and the rest goes on."""

from __future__ import annotations

from tests.reliability.scenario import play


async def test_poison_ends_with_a_reason_and_harms_nobody(plan):
    verdict = await play("poison", plan(1, seed=0))
    assert verdict.faults == []
    assert verdict.schedule[0]["deadly"] == "kills_its_worker"
    assert verdict.accepted
