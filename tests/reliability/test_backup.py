"""A stack is backed up under load and restored elsewhere, where its runs go on."""

from __future__ import annotations

from tests.reliability.scenario import play


async def test_runs_of_a_backup_go_on_elsewhere(plan):
    verdict = await play("backup", plan(1))
    assert verdict.faults == []
    assert verdict.measured["open_at_backup"]
    assert verdict.accepted
