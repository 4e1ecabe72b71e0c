"""Values and placeholders of Snowflake, without its connector."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace

import pytest

from noetl.tools.base import ToolError
from noetl.tools.snowflake.values import bound, columns_of, row_maker
from noetl.tools.statements import SNOWFLAKE, first_word, split


def column(code, name="C", precision=None, scale=None):
    return SimpleNamespace(name=name, type_code=code, precision=precision, scale=scale)


@pytest.mark.parametrize(
    ("code", "value", "made"),
    [
        (0, 5, 5),
        (0, 2**63 - 1, 2**63 - 1),
        (0, 2**63, "9223372036854775808"),
        (0, -(10**37), "-1" + "0" * 37),
        (0, Decimal("1.50"), "1.50"),
        (0, Decimal("1E+2"), "100"),
        (1, 1.5, 1.5),
        (2, "[1]", "[1]"),
        (3, date(2026, 1, 31), "2026-01-31"),
        (12, time(12, 30), "12:30:00"),
        (8, datetime(2026, 1, 31, 12), "2026-01-31T12:00:00Z"),  # noqa: DTZ001 - as it comes
        (7, datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00Z"),
        (7, datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2))),
         "2026-01-31T12:00:00+02:00"),
        (11, b"\x00\xff", "AP8="),
        (13, True, True),
        (5, '{"a": [1, null]}', {"a": [1, None]}),
        (10, "[undefined]", "[undefined]"),
        (16, [1, Decimal("2.5")], [1, "2.5"]),
        (17, {1: date(2026, 1, 1)}, {"1": "2026-01-01"}),
        (20, timedelta(minutes=1), 60.0),
        (0, None, None),
    ],
)  # fmt: skip
def test_a_value_is_json(code, value, made):
    assert row_maker([column(code)], None)((value,)) == [made]
    assert row_maker([column(code)], ["C"])((value,)) == {"C": made}


def test_columns_tell_what_they_hold():
    described = [
        column(0, "A", 18, 0), column(0, "B", 38, 0), column(0, "C", 10, 2), column(1, "D"),
        column(2, "E"), column(13, "F"), column(5, "G"), column(99, "H"),
    ]  # fmt: skip
    assert [(one.name, one.kind) for one in columns_of(described)] == [
        ("A", "int"), ("B", ""), ("C", "text"), ("D", "float"), ("E", "text"), ("F", "bool"),
        ("G", "json"), ("H", ""),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "params", "made", "values"),
    [
        ("select 1 % 2", None, "select 1 % 2", None),
        ("select ?, '?' -- ?", [1], "select ?, '?' -- ?", [1]),
        ("select %s, a %sum", [1], "select ?, a %sum", [1]),
        ("select 'it\\'s ?', ? // ?", [1], "select 'it\\'s ?', ? // ?", [1]),
        ("select %(a)s, %(b)s, %(a)s", {"a": 1, "b": 2}, "select ?, ?, ?", [1, 2, 1]),
        ("select parse_json(?)", [{"a": [1]}], "select parse_json(?)", ['{"a": [1]}']),
    ],
)
def test_placeholders_become_question_marks(text, params, made, values):
    assert bound(text, params) == (made, values)


@pytest.mark.parametrize(
    ("text", "params"),
    [("select ?", [1, 2]), ("select 1", [1]), ("select %(a)s", [1]), ("select ?", {"a": 1})],
)
def test_values_that_do_not_fit_are_refused(text, params):
    with pytest.raises(ToolError, match="/params"):
        bound(text, params)


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("select 'a\\';b'; select 2", ["select 'a\\';b'", "select 2"]),
        ("select 1 // ; no end\n; select 2", ["select 1 // ; no end", "select 2"]),
        ("execute immediate $$ a; b; $$; select 1", ["execute immediate $$ a; b; $$", "select 1"]),
        ("/* a /* b */ select 1; select 2", ["/* a /* b */ select 1", "select 2"]),
        ('select "a;b", $1, c:d from @stage; select 2', ['select "a;b", $1, c:d from @stage',
                                                         "select 2"]),
    ],
)  # fmt: skip
def test_statements_end_where_snowflake_ends_them(text, statements):
    assert split(text, SNOWFLAKE) == statements


def test_a_comment_hides_no_first_word():
    assert first_word("// a\n/* b */ put file:///x @~", SNOWFLAKE) == "PUT"
