from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.sources.governor import LEAST_WAIT_S, Governor


def test_without_a_rate_only_what_is_under_way_bounds_a_fetch():
    governor = Governor(None, 5, 0.0)
    assert governor.plan_fetch(100, 0.0) == 5
    governor.fetched(5, 0.0)
    assert (governor.plan_fetch(100, 0.0), governor.wait_s(0.0)) == (0, LEAST_WAIT_S)
    governor.settled(2)
    assert (governor.plan_fetch(100, 0.0), governor.wait_s(0.0)) == (2, 0.0)


def test_the_bucket_starts_full_and_refills_with_time():
    governor = Governor(2, 100, 0.0)
    assert governor.plan_fetch(10, 0.0) == 2
    governor.fetched(2, 0.0)
    assert (governor.plan_fetch(10, 0.0), governor.wait_s(0.0)) == (0, 0.5)
    assert governor.plan_fetch(10, 0.5) == 1
    assert governor.plan_fetch(10, 99.0) == 2


def test_a_slow_rate_lets_one_message_pass():
    governor = Governor(0.1, 100, 0.0)
    governor.fetched(governor.plan_fetch(10, 0.0), 0.0)
    assert (governor.in_flight, governor.wait_s(0.0)) == (1, 10.0)
    assert governor.plan_fetch(10, 10.0) == 1


def test_at_a_high_rate_messages_are_fetched_together():
    governor = Governor(200, 1000, 0.0)
    governor.fetched(governor.plan_fetch(500, 0.0), 0.0)
    assert (governor.plan_fetch(500, 0.01), governor.wait_s(0.01, 500)) == (0, pytest.approx(0.04))
    assert governor.plan_fetch(500, 0.05) == 10
    assert governor.plan_fetch(3, 0.02) == 3  # all that somebody wants
    governor.settled(200)
    governor.fetched(999, 9.0)
    assert governor.plan_fetch(500, 99.0) == 1  # all that there is room for


@given(st.floats(0.1, 2_000.0), st.integers(1, 500), st.integers(1, 30))
def test_after_the_wait_some_may_be_fetched(rate, base, count):
    governor, now = Governor(rate, 100_000, 0.0), 0.0
    for _ in range(count):
        now += governor.wait_s(now, base)
        found = governor.plan_fetch(base, now)
        assert 1 <= found <= base
        governor.fetched(found, now)


def test_17_a_burst_of_10_at_2_a_second_is_10_fetches_and_one_word_of_it():
    governor, now, left = Governor(2, 100, 0.0), 0.0, 10
    told, at = [], []
    while left:
        count = governor.plan_fetch(left, now)
        governor.fetched(count, now)
        governor.settled(count)
        told.append(governor.edge(now))
        at += [now] * count
        left -= count
        now += governor.wait_s(now)
    assert [word for word in told if word] == ["dispatch_rate"]
    assert len(at) == 10
    assert at[-1] == 4.0
    within(at, 2.0)


def test_the_edge_is_told_again_after_a_minute_only_when_it_was_off_between():
    governor = Governor(None, 1, 0.0)
    governor.fetched(1, 0.0)
    assert [governor.edge(0.0), governor.edge(1.0), governor.edge(100.0)] == [
        "max_in_flight", None, None,
    ]  # fmt: skip
    governor.settled(1)
    assert governor.edge(101.0) is None
    governor.fetched(1, 101.0)
    assert governor.edge(102.0) == "max_in_flight"
    governor.settled(1)
    governor.edge(103.0)
    governor.fetched(1, 103.0)
    assert governor.edge(104.0) is None


def test_a_clock_that_stands_still_gives_nothing():
    governor = Governor(5, 100, 10.0)
    governor.fetched(5, 10.0)
    assert (governor.plan_fetch(9, 9.0), governor.plan_fetch(9, 10.0)) == (0, 0)


def within(at, rate):
    """No window has more than its rate allows, but for the first bucket."""
    for first in range(len(at)):
        for last in range(first, len(at)):
            span = at[last] - at[first]
            assert last - first + 1 <= rate * span + max(1.0, rate) + 1e-6


@given(
    st.floats(0.1, 50.0),
    st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(1, 60)), max_size=20),
)
def test_in_no_window_there_are_more_than_the_rate_allows(rate, polls):
    governor, now, at = Governor(rate, 10_000, 0.0), 0.0, []
    for passed, wanted in polls:
        now += passed
        count = governor.plan_fetch(wanted, now)
        governor.fetched(count, now)
        at += [now] * count
    within(at, rate)


@given(st.integers(1, 20), st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), max_size=20))
def test_18_there_are_never_more_under_way_than_may_be(most, turns):
    governor = Governor(None, most, 0.0)
    for wanted, done in turns:
        governor.fetched(governor.plan_fetch(wanted, 0.0), 0.0)
        assert 0 <= governor.in_flight <= most
        governor.settled(min(done, governor.in_flight))


@given(st.floats(0.05, 50.0), st.integers(1, 20))
def test_after_the_wait_one_may_be_fetched(rate, count):
    governor, now = Governor(rate, 1000, 0.0), 0.0
    for _ in range(count):
        wait = governor.wait_s(now)
        now += wait
        assert governor.plan_fetch(1, now) == 1
        governor.fetched(1, now)
