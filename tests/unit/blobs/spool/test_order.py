"""Order against a naive model, and what it costs."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.blobs.spool.item import name_of
from noetl.blobs.spool.order import GLOBAL, NONE, PER_KEY, Entry, Order

MOST_BYTES_PER_ITEM = 256


def entry(seq, lane="a", downstream="x", size=10):
    return Entry(seq, name_of(str(seq), f"id-{seq}"), downstream, lane, size)


def taken(order, *downstreams):
    found = order.take(downstreams or ("x",))
    return None if found is None else found.seq


def drained(order, *downstreams):
    found = []
    while (one := order.take(downstreams or ("x",))) is not None:
        found.append(one.seq)
        order.settle(one)
    return found


def test_messages_come_in_receive_order_whatever_order_they_were_added_in():
    order = Order()
    for seq in (5, 3, 9, 1, 7):
        assert order.add(entry(seq, lane=str(seq % 2)))
    assert not order.add(entry(5))
    assert (len(order), order.size_bytes, 5 in order, 6 in order) == (5, 50, True, False)
    assert drained(order) == [1, 3, 5, 7, 9]
    assert (len(order), order.size_bytes, order.take(["x"])) == (0, 0, None)


def test_an_entry_comes_back_as_it_was():
    order = Order()
    order.add(entry(7, lane="m:9", downstream="tsdb", size=1234))
    assert order.take(["tsdb"]) == entry(7, lane="m:9", downstream="tsdb", size=1234)


def test_a_lane_is_worked_on_by_one_at_a_time():
    order = Order()
    for seq, lane in ((1, "a"), (2, "a"), (3, "b")):
        order.add(entry(seq, lane))
    first = order.take(["x"])
    assert (first.seq, taken(order), taken(order)) == (1, 3, None)
    order.settle(first)
    assert taken(order) == 2


def test_who_has_taken_the_first_of_a_lane_may_take_those_behind_it():
    order = Order()
    for seq, lane in ((1, "a"), (2, "a"), (3, "b"), (4, "a"), (5, "a")):
        order.add(entry(seq, lane))
    first = order.take(["x"])
    second = order.take_behind(first)
    third = order.take_behind(second)
    assert [one.seq for one in (first, second, third)] == [1, 2, 4]
    assert (taken(order), taken(order)) == (3, None)
    order.settle(first)
    order.settle(third)
    assert taken(order) is None
    order.give_back(second)
    assert taken(order) is None
    order.next_pass()
    assert (taken(order), taken(order)) == (2, None)
    assert order.take_behind(entry(6, "c")) is None


def test_one_that_is_as_good_as_settled_lets_the_next_go():
    order = Order()
    for seq in (1, 2, 3):
        order.add(entry(seq))
    first = order.take(["x"])
    order.release(first)
    second = order.take(["x"])
    assert (second.seq, len(order), order.oldest().seq) == (2, 3, 3)
    order.settle(first)
    assert (len(order), taken(order)) == (2, None)
    order.release(second)
    third = order.take(["x"])
    order.give_back(second)
    order.settle(third)
    assert (len(order), order.has_lane("x", "a"), taken(order)) == (1, True, None)
    order.next_pass()
    assert drained(order) == [2]
    assert (len(order), order.has_lane("x", "a"), order.size_bytes) == (0, False, 0)


def test_nothing_is_taken_that_something_on_its_way_has_to_go_before():
    order = Order()
    for seq in (1, 4):
        order.add(entry(seq))
    order.expect(entry(3))
    first = order.take(["x"])
    assert order.take_behind(first) is None
    order.arrived(entry(3), is_there=True)
    assert order.take_behind(first).seq == 3


def test_a_failure_stalls_its_lane_alone_until_the_next_pass():
    order = Order()
    for seq, lane in ((1, "a"), (2, "a"), (3, "b"), (4, "b")):
        order.add(entry(seq, lane))
    order.give_back(order.take(["x"]))
    assert drained(order) == [3, 4]
    order.next_pass()
    assert drained(order) == [1, 2]


def test_without_an_order_failures_are_passed_over():
    order = Order(NONE)
    for seq in (1, 2, 3):
        order.add(entry(seq, "a"))
    first, second = order.take(["x"]), order.take(["x"])
    order.give_back(first)
    order.settle(second)
    assert not order.has_lane("x", "a")
    assert drained(order) == [3]
    order.next_pass()
    assert drained(order) == [1]


def test_a_global_order_is_one_lane_over_all_downstreams():
    order = Order(GLOBAL)
    for seq, downstream in ((1, "x"), (2, "y"), (3, "x")):
        order.add(entry(seq, str(seq), downstream))
    first = order.take(["x"])
    assert (first.seq, taken(order, "x", "y")) == (1, None)
    order.settle(first)
    assert taken(order, "x") is None  # what is next waits for another downstream
    assert drained(order, "x", "y") == [2, 3]


def test_only_messages_of_the_given_downstreams_come():
    order = Order()
    for seq, downstream in ((1, "x"), (2, "y"), (3, "x"), (4, "y")):
        order.add(entry(seq, "a", downstream))
    assert (order.count("x"), order.count("y"), order.count("z")) == (2, 2, 0)
    assert drained(order, "y") == [2, 4]
    assert (order.has_lane("x", "a"), order.has_lane("y", "a")) == (True, False)
    assert drained(order, "y", "x") == [1, 3]


def test_what_came_later_does_not_pass_what_is_on_its_way():
    order = Order()
    order.expect(entry(1))
    order.expect(entry(2))
    assert order.has_lane("x", "a")
    order.arrived(entry(2), is_there=True)
    assert taken(order) is None
    order.arrived(entry(1), is_there=True)
    assert drained(order) == [1, 2]
    order.expect(entry(3))
    order.arrived(entry(3), is_there=False)
    assert (len(order), order.has_lane("x", "a")) == (0, False)


def test_the_oldest_is_found_also_among_those_that_failed():
    order = Order()
    for seq, lane in ((1, "a"), (2, "b"), (3, "a")):
        order.add(entry(seq, lane))
    order.give_back(order.take(["x"]))
    assert order.oldest().seq == 1
    oldest = order.take_oldest()
    order.settle(oldest)
    assert (oldest.seq, len(order), order.oldest().seq) == (1, 2, 2)
    assert drained(order) == [2, 3]
    assert order.take_oldest() is None


def test_the_oldest_of_a_lane_that_somebody_works_on_may_go_and_the_lane_still_waits():
    order = Order()
    for seq in (1, 2, 3):
        order.add(entry(seq))
    working = order.take(["x"])
    order.settle(order.take_oldest())
    assert taken(order) is None
    order.settle(working)
    assert drained(order) == [3]


def test_what_is_gone_is_forgotten_unless_somebody_works_on_it():
    order = Order()
    for seq, lane in ((1, "a"), (2, "a"), (3, "b"), (4, "c")):
        order.add(entry(seq, lane))
    working = order.take(["x"])
    order.give_back(order.take(["x"]))
    assert order.prune({1, 2, 3}) == 2
    assert (len(order), order.size_bytes) == (2, 20)
    order.settle(working)
    assert drained(order) == [4]
    assert not order.has_lane("x", "b")


def test_a_changed_size_is_counted():
    order = Order()
    order.add(entry(1, size=10))
    order.give_back(order.take(["x"]), 12)
    assert order.size_bytes == 12
    order.next_pass()
    assert order.take(["x"]).size == 12


def test_a_long_name_of_a_lane_is_still_one_lane():
    order = Order()
    order.add(entry(1, "x" * 5000))
    order.add(entry(2, "x" * 5000))
    assert order.has_lane("x", "x" * 5000)
    assert not order.has_lane("x", "x" * 4999)
    assert drained(order) == [1, 2]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "take", "settle", "fail", "begin", "oldest"]),
        st.integers(1, 40),
        st.sampled_from("ab"),
        st.sampled_from("xy"),
    ),
    max_size=60,
)


class Model:
    """The same, without any care for what it costs."""

    def __init__(self, ordering):
        self.ordering = ordering
        self.order = Order(ordering)
        self.waiting, self.working, self.failed, self.all = {}, {}, {}, {}

    def lane(self, seq):
        one = self.all[seq]
        return {PER_KEY: (one.downstream, one.lane), GLOBAL: 0, NONE: seq}[self.ordering]

    def add(self, seq, lane, downstream):
        one = entry(seq, lane, downstream)
        is_new = seq not in {*self.waiting, *self.working, *self.failed}
        assert self.order.add(one) == is_new
        if is_new:
            self.waiting[seq] = self.all[seq] = one

    def take(self, _seq, _lane, downstream):
        busy = {self.lane(one) for one in (*self.working, *self.failed)}
        heads = {}
        for one in sorted(self.waiting):
            heads.setdefault(self.lane(one), one)
        free = [one for lane, one in heads.items() if lane not in busy]
        self._took(
            self.order.take([downstream]),
            [one for one in free if self.all[one].downstream == downstream],
        )

    def oldest(self, *_):
        self._took(self.order.take_oldest(), [*self.waiting, *self.failed])

    def _took(self, found, expected):
        assert (found and found.seq) == min(expected, default=None)
        if found is not None:
            self.waiting.pop(found.seq, None)
            self.failed.pop(found.seq, None)
            self.working[found.seq] = found

    def settle(self, *_):
        if self.working:
            self.order.settle(self.working.pop(min(self.working)))

    def fail(self, *_):
        if self.working:
            one = min(self.working)
            self.failed[one] = self.working.pop(one)
            self.order.give_back(self.failed[one])

    def begin(self, *_):
        self.order.next_pass()
        self.waiting |= self.failed
        self.failed = {}

    def agree(self):
        assert len(self.order) == len(self.waiting) + len(self.working) + len(self.failed)
        assert self.order.size_bytes == 10 * len(self.order)
        oldest = self.order.oldest()
        assert (oldest and oldest.seq) == min([*self.waiting, *self.failed], default=None)


@settings(max_examples=150)
@given(ordering=st.sampled_from([PER_KEY, GLOBAL, NONE]), steps=STEPS)
def test_any_steps_leave_it_as_a_naive_model_has_it(ordering, steps):
    model = Model(ordering)
    for step, seq, lane, downstream in steps:
        getattr(model, step)(seq, lane, downstream)
        model.agree()


@pytest.mark.parametrize("lanes", [1, 1000])
def test_an_item_costs_at_most_256_bytes(lanes):
    count = 20_000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        order = Order()
        for number in range(count):
            name = name_of(str(number + (1 << 58)), f"plant.meters:3:{number}")
            order.add(Entry(number + (1 << 58), name, "tsdb", f"m-{number % lanes}", 1200))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(order) == count
    assert (after - before) / count <= MOST_BYTES_PER_ITEM
