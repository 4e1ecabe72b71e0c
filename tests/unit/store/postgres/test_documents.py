import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.store.postgres.documents import (
    document,
    shown,
    shown_or_none,
    stored,
    value_of,
    written,
)

TEXTS = st.text(st.sampled_from('ab\0\uf8f001\\u"é'), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_a_value_comes_back_as_it_was_in_its_own_order(value):
    text = written(value)
    assert "\\u0000" not in text.replace("\\\\", "")
    if "inf" not in repr(value):
        assert msgspec.json.encode(value_of(text)) == msgspec.json.encode(value)


@given(TEXTS)
def test_a_text_comes_back_as_it_was(text):
    assert "\0" not in stored(text)
    assert shown(stored(text)) == text


def test_texts_stay_apart():
    assert len({stored(text) for text in ("\0", "\uf8f0", "\uf8f00", "\uf8f01", "0")}) == 5


@pytest.mark.parametrize("value", [0, False, "", [], {}])
def test_only_none_is_nothing(value):
    assert value_of(document(value)) == value
    assert document(None) is None
    assert value_of(None) is None
    assert value_of(written(None)) is None


def test_nothing_stays_nothing():
    assert shown_or_none(None) is None
    assert shown_or_none(stored("a\0")) == "a\0"
