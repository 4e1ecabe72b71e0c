"""Listeners and all they need are killed while messages come: each has one run, in order."""

from __future__ import annotations

from random import Random

import pytest

from noetl.telemetry.failpoint import POINTS
from tests.reliability.scenario import play
from tests.reliability.scenarios import kills, subscriptions

LONG_S = 600.0


def test_a_schedule_is_that_of_its_seed_and_has_every_failpoint_of_messages():
    first, again, other = (subscriptions.drawn(Random(seed), LONG_S) for seed in (7, 7, 8))
    assert first == again != other
    assert {fault["at"] for fault in first if "at" in fault} == set(subscriptions.CELLS)
    harmed = {fault["kill"] for fault in first if "kill" in fault}
    assert harmed == {*subscriptions.PARTS, "downstream"}


def test_every_failpoint_is_one_of_a_scenario():
    owned = {point for point in POINTS if kills.OWNERS[point.partition(".")[0]]}
    assert owned | set(subscriptions.CELLS) == set(POINTS)


@pytest.mark.timeout(120)  # many starts of processes, on a machine that may be busy
async def test_whoever_is_killed_each_message_has_one_run(plan):
    verdict = await play("subscriptions", plan(6.0))
    assert verdict.faults == []
    told = verdict.measured
    assert verdict.accepted == told["messages"] + told["letters"] > 20
    assert len(verdict.recovery_s) == len(verdict.schedule)
