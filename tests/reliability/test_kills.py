"""Every part is killed, at failpoints and at random; the matrix and its schedule."""

from __future__ import annotations

from random import Random

import pytest

from noetl.telemetry.failpoint import POINTS
from tests.reliability.scenario import play
from tests.reliability.scenarios import all_at_once, kills, posts

LONG_S = 600.0


def test_the_matrix_kills_every_part_at_every_failpoint():
    cells = {(cell["kill"], cell["at"]) for cell in kills.matrix(Random(1))}
    for point in POINTS:
        for owner in kills.OWNERS[point.partition(".")[0]]:
            others = {"postgres"} if owner == "migration" else set(kills.PARTS)
            assert {(part, point) for part in others | {owner}} <= cells


def test_the_same_seed_gives_the_same_schedule_and_another_one_another():
    for drawn in (kills.drawn, all_at_once.drawn, lambda random, _: posts.drawn(random)):
        first, again, other = (drawn(Random(seed), LONG_S) for seed in (7, 7, 8))
        assert first == again
        assert first != other


def test_ten_minutes_hold_most_of_the_matrix_and_kills_at_random_between():
    schedule = kills.drawn(Random(1), LONG_S)
    own = {(cell["of"], cell["at"]) for cell in schedule if cell.get("of") == cell["kill"]}
    assert {point for _, point in own} == {one for one in POINTS if kills.OWNERS[one.split(".")[0]]}
    rest = [fault["after_s"] for fault in schedule if "after_s" in fault]
    assert len(rest) > 20
    assert all(2 <= after_s <= 10 for after_s in rest)


@pytest.mark.timeout(180)  # many starts of processes, on a machine that may be busy
async def test_parts_are_killed_at_failpoints_and_at_random(plan):
    verdict = await play("kills", plan(6.0))
    assert verdict.faults == []
    assert verdict.schedule == kills.drawn(Random(1), 6.0)
    assert len(verdict.recovery_s) == sum(
        fault["kill"] != "migration" for fault in verdict.schedule
    )
