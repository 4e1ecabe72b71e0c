"""Cursors belong to their list, and to a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from noetl.edge.cursor import Cursors
from noetl.errors import NoetlError

FILTERS = {"status": "FAILED", "path": None}


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.moment = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return 0.0


def refused(cursors: Cursors, text: str, filters=FILTERS) -> str:
    with pytest.raises(NoetlError) as refusal:
        cursors.decode(text, filters)
    return refusal.value.code


def test_a_cursor_gives_back_its_position() -> None:
    cursors = Cursors(b"key", Hands())
    text = cursors.encode(FILTERS, ["12", 3])
    assert cursors.decode(text, dict(reversed(FILTERS.items()))) == ["12", 3]
    assert text.isascii()
    assert "=" not in text


def test_another_list_another_key_and_another_text_are_refused() -> None:
    cursors = Cursors(b"key", Hands())
    text = cursors.encode(FILTERS, "12")
    flipped = text[:-1] + ("A" if text[-1] != "A" else "B")
    assert refused(cursors, text, {"status": "COMPLETED", "path": None}) == "bad_cursor"
    assert refused(Cursors(b"other", Hands()), text) == "bad_cursor"
    for wrong in (flipped, "", "x", "ä", "%%%", text * 2):
        assert refused(cursors, wrong) == "bad_cursor"


def test_a_cursor_is_good_for_a_day() -> None:
    clock = Hands()
    cursors = Cursors(b"key", clock)
    text = cursors.encode({}, 1)
    clock.moment += timedelta(days=1)
    assert cursors.decode(text, {}) == 1
    clock.moment += timedelta(seconds=1)
    assert refused(cursors, text, {}) == "bad_cursor"
