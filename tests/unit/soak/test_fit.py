"""The fit of a soak, and what it makes of one."""

from __future__ import annotations

import random

import pytest

from tests.soak.bounds import bloated, incarnations, judged_slope, risen
from tests.soak.fit import slope


def line(per_hour, *, start=100.0, seconds=3600, noise=0.0, since=0.0, seed=1):  # noqa: PLR0913 - a line and its noise
    drawn = random.Random(seed)
    return [
        (since + at, start + per_hour * at / 3600 + drawn.gauss(0, noise))
        for at in range(0, seconds, 5)
    ]


def test_a_line_has_its_slope_and_no_error():
    found = slope([line(3.0)])
    assert found.per_hour == pytest.approx(3.0, abs=0.05)
    assert found.error < 0.05


def test_incarnations_that_begin_at_other_heights_have_one_slope():
    found = slope([line(2.0, start=80.0), line(2.0, start=140.0, since=4000.0)])
    assert found.per_hour == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize("seed", range(20))
def test_the_interval_holds_the_true_slope_under_noise(seed):
    found = slope([line(5.0, noise=2.0, seed=seed)])
    assert abs(found.per_hour - 5.0) <= 2 * found.error


def test_steps_that_last_make_the_fit_less_sure_than_as_many_independent_samples():
    steps = [(at, 100.0 + (at // 600) % 2) for at in range(0, 3600, 5)]
    found = slope([steps])
    assert found.error > 0.5


@pytest.mark.parametrize("groups", [[], [[]], [[(0, 1.0), (1, 1.0)]], [[(5, 1.0)] * 10]])
def test_too_few_samples_have_no_slope(groups):
    assert slope(groups) is None


def test_a_long_quiet_run_is_judged_by_its_slope():
    found, word, fault = judged_slope([line(0.5, seconds=8 * 3600, noise=0.5)])
    assert (word, fault) == ("slope", None)
    assert found.error <= 1.0
    assert judged_slope([line(1.5, seconds=8 * 3600, noise=0.5)])[2] is not None


def test_a_short_run_is_judged_by_the_lower_end_and_says_so():
    noisy = [line(3.0, seconds=300, noise=2.0)]
    found, word, fault = judged_slope(noisy)
    assert found.error > 1.0
    assert (word, fault) == ("lower bound: too short for the slope", None)
    assert judged_slope([line(20.0, seconds=300)])[2] is None  # it settles
    leak = judged_slope([line(400.0, seconds=300, noise=2.0)])
    assert leak[1] == word
    assert leak[2].startswith("grows by")


def test_each_process_id_is_an_incarnation_with_a_warm_up_of_its_own():
    samples = [
        {"at": at, "processes": {"server": {"pid": 1 if at < 50 else 2, "fds": at}}}
        for at in range(0, 100, 10)
    ]
    groups = incarnations(samples, "server", "fds", 20)
    assert groups == [[(20, 20), (30, 30), (40, 40)], [(70, 70), (80, 80), (90, 90)]]
    assert incarnations(samples, "worker", "fds", 20) == []


def test_a_count_may_sway_and_not_rise():
    assert risen([(at, 40 + at % 3) for at in range(40)], "fds") is None
    assert risen([(at, 40 + 2 * at) for at in range(40)], "fds") == "fds rose from 49 to 109"
    assert risen([(0, 1), (1, 100)], "fds") is None


def test_dead_rows_are_judged_where_there_are_many():
    tables = {"event": (10_000, 100), "execution": (5_000, 3_000), "timer": (1, 99)}
    assert bloated(tables) == ["execution has 3000 dead rows beside 5000"]
