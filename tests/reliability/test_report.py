"""What is published of verdicts."""

from __future__ import annotations

import pytest

from tests.reliability.report import markdown, written
from tests.reliability.scenario import Verdict

PLAYED = Verdict(
    name="kills", seed=7, accepted=1200, schedule=[{}, {}], lost=["one"], calls=2000, repeats=3,
    recovery_s=[1.0, 1.0],
).as_json()  # fmt: skip
SKIPPED = Verdict(name="power_cut", seed=7, skipped="no right to mount").as_json()
TABLE = """\
Played today, seed 7.

| scenario | faults | accepted | lost | wrong | stuck | repeated calls | recovery p99 |
| --- | --- | --- | --- | --- | --- | --- | --- |
| kills | 2 | 1,200 | 1 | 0 | 0 | 3 of 2,000 | 1.0 s |
| power_cut | - | - | - | - | - | - | skipped: no right to mount |
"""


def test_a_table_tells_what_was_played_and_what_came_of_it():
    assert markdown([PLAYED, SKIPPED], "today") == TABLE


def test_a_page_without_marks_is_left_alone():
    page = "before\n<!-- reliability -->\nold\n<!-- /reliability -->\nafter\n"
    new = written(page, [PLAYED, SKIPPED], "today")
    assert new == page.replace("old\n", TABLE)
    with pytest.raises(SystemExit, match="reliability"):
        written("nothing", [PLAYED], "today")
