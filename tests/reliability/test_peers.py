"""A tool's target drips, a server stalls, a worker's answers are lost: every call ends."""

from __future__ import annotations

from tests.reliability.scenario import play


async def test_every_call_ends_and_nothing_is_left_open(plan):
    verdict = await play("peers", plan(seconds=1, seed=1110))
    assert verdict.faults == []
    assert verdict.schedule == [
        "tool-target: drip",
        "client-server: stall",
        "worker-server: lose back",
    ]
    assert verdict.measured["calls"] >= 2
