"""The database is killed and frozen under load; what was answered 2xx is there."""

from __future__ import annotations

from tests.reliability.scenario import play


async def test_no_accepted_run_is_lost_whatever_happens_to_the_database(plan):
    verdict = await play("database", plan(seconds=6, seed=22))
    assert verdict.faults == []
    assert verdict.schedule[:2] == ["kill", "freeze"]
    assert verdict.accepted > len(verdict.schedule)
