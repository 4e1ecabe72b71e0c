"""A downstream is away for long while messages come: each has one run, in order."""

from __future__ import annotations

from tests.reliability.scenario import play
from tests.reliability.scenarios.outage import LEAST_S, RATE


async def test_an_outage_loses_no_message_and_ends_at_the_rate_that_was_asked_for(plan):
    verdict = await play("outage", plan(0, seed=1))
    assert verdict.faults == []
    assert verdict.accepted == verdict.calls + 1 == LEAST_S * RATE
