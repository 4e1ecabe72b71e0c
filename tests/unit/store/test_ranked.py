from hypothesis import given
from hypothesis import strategies as st

from noetl.store.ranked import Ranked

ACTIONS = st.lists(
    st.tuples(st.sampled_from(["put", "drop", "take"]), st.integers(0, 9), st.integers(0, 5))
)


@given(ACTIONS)
def test_it_is_a_sorted_table_whatever_was_put_dropped_and_taken(actions):
    ranked, model = Ranked(), {}
    for order, (action, key, rank) in enumerate(actions):
        if action == "put":
            ranked.put(key, rank)
            model[key] = ((rank,), order)
        elif action == "drop":
            ranked.drop(key)
            model.pop(key, None)
        else:
            expected = min(model.items(), key=lambda item: item[1], default=None)
            taken = ranked.take()
            assert taken == (None if expected is None else (expected[1][0], expected[0]))
            if expected is not None:
                del model[expected[0]]
        keys = sorted(model, key=model.__getitem__)
        assert ranked.keys(100) == keys
        assert ranked.keys(2) == keys[:2]
        assert ranked.keys(100, (3,)) == [key for key in keys if model[key][0] < (3,)]
        assert ranked.first() == ((model[keys[0]][0], keys[0]) if keys else None)
        assert len(ranked) == len(model)
        assert [key in ranked for key in range(10)] == [key in model for key in range(10)]


def test_what_was_dropped_does_not_pile_up():
    ranked = Ranked()
    for number in range(10_000):
        ranked.put(number, number)
        ranked.put(number, number + 1)
        if number >= 10:
            ranked.drop(number - 10)
    assert len(ranked) == 10
    assert len(ranked._heap) < 200  # noqa: SLF001 - its size is what is promised
    assert ranked.keys(2) == [9990, 9991]


def test_a_walk_leaves_the_order_as_it_was():
    ranked = Ranked()
    for number in (3, 1, 2):
        ranked.put(str(number), number)
    assert ranked.lowest(2) == [((1,), 2, "1"), ((2,), 3, "2")]
    assert ranked.keys(3) == ["1", "2", "3"]
