from datetime import UTC, datetime

import pytest

from noetl.store.postgres.values import id_of, moment, text_of, told


@pytest.mark.parametrize("text", ["0", "1", "331204559102443520", "9223372036854775807"])
def test_an_id_is_the_same_both_ways(text):
    assert text_of(id_of(text)) == text


@pytest.mark.parametrize(
    "text", [None, "", "x", "-1", "1.0", "9223372036854775808", "1" * 5000, "٣"]
)
def test_what_is_no_id_is_none(text):
    assert id_of(text) is None
    assert text_of(None) is None


def test_a_time_is_the_same_both_ways_to_the_microsecond():
    for text in ("2026-01-01T00:00:00.000000Z", "2026-12-31T23:59:59.999999Z"):
        assert told(moment(text)) == text
    assert moment("2026-01-01T00:00:00.000001Z") == datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert (moment(""), moment(None), told(None)) == (None, None, None)
