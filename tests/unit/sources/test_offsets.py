"""Commits never pass what is not settled, whatever becomes of the offsets."""

from hypothesis import given
from hypothesis import strategies as st

from noetl.sources.offsets import NEVER, Offsets


def given_out(*offsets):
    made = Offsets()
    for offset in offsets:
        assert made.give(offset, NEVER)
    return made


def test_nothing_is_committed_before_the_first_is_settled():
    offsets = given_out(5, 6, 7)
    assert offsets.settle(6)
    assert offsets.to_commit() is None
    assert offsets.settle(5)
    assert offsets.to_commit() == 7
    offsets.committed = 7
    assert offsets.to_commit() is None


def test_holes_of_a_compacted_topic_are_no_gaps():
    offsets = given_out(5, 9)
    offsets.settle(5)
    offsets.settle(9)
    assert offsets.to_commit() == 10


def test_what_is_held_or_settled_is_not_given_again():
    offsets = given_out(1, 2, 3)
    offsets.settle(2)
    assert offsets.refuse(1)
    assert offsets.lowest_again == 1
    assert [offsets.give(offset, NEVER) for offset in (1, 2, 3, 4)] == [True, False, False, True]


def test_offsets_that_were_never_given_are_nobodys():
    offsets = given_out(5)
    assert not offsets.settle(4)
    assert not offsets.settle(6)
    assert not offsets.refuse(6)
    assert not offsets.extend(6, NEVER)


def test_settling_is_final():
    offsets = given_out(5)
    assert offsets.settle(5)
    assert offsets.to_commit() == 6
    assert offsets.settle(5)
    assert offsets.refuse(5)
    assert offsets.lowest_again is None


def test_what_is_held_for_too_long_is_told():
    offsets = Offsets()
    offsets.give(1, 10.0)
    offsets.give(2, 20.0)
    assert offsets.next_due == 10.0
    assert offsets.lapsed(10.0) == [1]
    offsets.extend(1, 30.0)
    assert offsets.lapsed(25.0) == [2]
    assert Offsets().next_due == NEVER


@given(st.lists(st.tuples(st.sampled_from(["settle", "refuse"]), st.integers(0, 9)), max_size=60))
def test_a_commit_never_passes_an_offset_that_is_not_settled(steps):
    offsets = given_out(*range(10))
    settled = set()
    for step, offset in steps:
        getattr(offsets, step)(offset)
        if step == "settle":
            settled.add(offset)
        at = offsets.to_commit()
        if at is not None:
            offsets.committed = at
        reached = offsets.committed or 0
        assert set(range(reached)) <= settled
        assert reached not in settled
