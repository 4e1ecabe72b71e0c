"""The store of the bus is wiped with runs in flight, and all of them end."""

from __future__ import annotations

from tests.reliability.scenario import play


async def test_the_store_of_the_bus_is_wiped_and_every_run_ends(plan):
    verdict = await play("bus_wiped", plan(seconds=1, seed=2))
    assert verdict.faults == []
    assert len(verdict.schedule) == 1
    assert verdict.accepted == verdict.measured["in_flight"] + 2
