import io
from datetime import UTC, datetime

import pytest

from noetl.cli.failures import CommandFailed
from noetl.cli.listing import Look, show_list, show_one, table
from noetl.cli.output import Output
from noetl.cli.times import At
from noetl.settings import CliSettings

ITEMS = [
    {"id": "1", "at": "2026-01-01T00:00:00Z", "labels": {"team": "etl"}, "steps": ["a", "b"]},
    {"id": "2", "at": None, "labels": {}, "steps": []},
]
LOOK = Look(head=("ID", "AT"), row=lambda i: (i["id"], At(i["at"])), name=lambda i: i["id"])


@pytest.fixture
def out():
    return Output(io.StringIO(), io.StringIO(), CliSettings())


def test_a_table_has_the_columns_that_a_command_chose(out):
    out.time = "iso"

    assert table(out, ITEMS, LOOK) == [("ID", "AT"), ("1", "2026-01-01T00:00:00Z"), ("2", "-")]


def test_columns_are_fields_under_their_own_names(out):
    out.columns, out.time = ("steps", "labels.team", "at"), "unix"

    assert table(out, ITEMS, LOOK) == [
        ("STEPS", "LABELS.TEAM", "AT"),
        ("a, b", "etl", "1767225600.000"),
        ("-", "-", "-"),
    ]


def test_wide_shows_every_field(out):
    out.is_wide, out.time = True, "iso"

    assert table(out, ITEMS, LOOK)[1] == ("1", "2026-01-01T00:00:00Z", '{"team":"etl"}', "a, b")


def test_a_column_that_is_not_there_names_the_nearest(out):
    out.columns = ("labels.tem",)

    with pytest.raises(CommandFailed, match=r"there is no column `labels\.tem`") as refused:
        show_list(out, ITEMS, LOOK)
    assert refused.value.hint == "did you mean `labels.team`?"


def test_one_thing_shows_the_fields_that_are_asked_for(out):
    out.columns = ("id",)
    show_one(out, ITEMS[0], "x")

    assert out._stdout.getvalue() == 'id: "1"\n'  # noqa: SLF001 - what was written


@pytest.mark.parametrize(
    ("at", "style", "shown"),
    [
        (At("2026-01-01T00:00:00Z"), None, "1 h 0 ago"),
        (At("2026-01-01T02:00:00Z"), None, "in 1 h"),
        (At("2026-01-01T00:59:30Z"), "relative", "30 s ago"),
        (At("2026-01-01T01:00:00Z"), None, "now"),
        (At("2025-12-01T01:00:00Z"), None, "31 d ago"),
        (At("2026-01-01T00:00:01.250Z", is_of_day=True), None, "00:00:01.250"),
        (At("2026-01-01T00:00:01.250Z", is_of_day=True), "unix", "1767225601.250"),
        (At(None), "iso", "-"),
    ],
)
def test_a_moment_is_shown_as_it_is_asked_for(at, style, shown):
    now = datetime(2026, 1, 1, 1, tzinfo=UTC)
    told = at.shown(style, now)

    assert told == shown.replace("1 h 0 ago", "1 h ago")
