"""Gateways, their broker and their server are killed under clients that hold streams."""

from __future__ import annotations

from random import Random

import pytest

from tests.reliability.scenario import play
from tests.reliability.scenarios import gateway

LONG_S = 600.0


def test_a_schedule_is_that_of_its_seed_and_has_every_fault():
    first, again, other = (gateway.drawn(Random(seed), LONG_S) for seed in (7, 7, 8))
    assert first == again != other
    assert {f"{one['what']} {one['part']}" for one in first} == set(gateway.FAULTS)
    short = {f"{one['what']} {one['part']}" for one in gateway.drawn(Random(1), 6.0)}
    assert short == set(gateway.FIRST)


@pytest.mark.timeout(120)  # many starts of processes, on a machine that may be busy
async def test_21_38_whoever_is_killed_or_ended_every_result_is_told_once(plan):
    verdict = await play("gateway", plan(6.0))
    assert verdict.faults == []
    assert verdict.accepted > 20
    assert verdict.measured["called"] > 5
    assert len(verdict.recovery_s) == len(gateway.FIRST)
