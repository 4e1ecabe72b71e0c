"""How many runs one commit may begin."""

from __future__ import annotations

from noetl.server.ingest.pace import LEAST_STARTS, MOST_STARTS, Pace


def taught(bare_s: float, each_s: float) -> int:
    """What is learned on a machine where an empty commit and one run take so long."""
    pace = Pace()
    for posts in (1, 64, 2, 32, 64):
        pace.took(posts, bare_s + (posts * each_s if posts > 2 else 0.0))
    return pace.starts


def test_slices_are_large_until_something_is_known():
    assert Pace().starts == MOST_STARTS


def test_a_slice_adds_no_more_than_others_should_wait():
    assert taught(0.002, 0.0004) == 25


def test_a_store_that_is_far_away_makes_no_small_slices():
    assert taught(0.010, 0.0004) == 50


def test_slices_have_bounds():
    assert taught(0.002, 0.010) == LEAST_STARTS
    assert taught(0.002, 0.00001) == MOST_STARTS
    assert taught(0.002, 0.0) == MOST_STARTS


def test_a_commit_that_is_neither_small_nor_large_tells_nothing():
    pace = Pace()
    pace.took(8, 5.0)
    assert pace.starts == MOST_STARTS
