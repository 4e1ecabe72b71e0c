"""Values of tools as JSON."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest

from noetl.dsl.views import StepResult, StepView
from noetl.tools.base import ToolError
from noetl.worker.results import encoded, plain

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HERE = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None), (True, True), (1, 1), (1.5, 1.5), ("é", "é"), ((1, (2,)), [1, [2]]),
        ({"a": [{"b": None}]}, {"a": [{"b": None}]}),
        (Decimal("1.10"), "1.10"), (WHEN, "2026-01-02T03:04:05Z"),
        (WHEN.astimezone(HERE), "2026-01-02T05:04:05+02:00"),
        (WHEN.replace(tzinfo=None), "2026-01-02T03:04:05Z"),
        (date(2026, 1, 2), "2026-01-02"), (b"\x00\xff", "AP8="), (bytearray(b"a"), "YQ=="),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (2**70, str(2**70)), ([-(2**63), 2**64 - 1], [-(2**63), 2**64 - 1]),
        ([StepView(StepResult(data={"x": 1}))], [{"x": 1}]),
    ],
)  # fmt: skip
def test_every_value_that_json_lacks_has_one_form(value, shown):
    assert plain(value, pytest.fail) == shown


def test_nan_and_infinity_become_null_and_are_told():
    told = []
    value = plain({"a": [float("nan"), 1.0], "b": float("-inf")}, lambda: told.append(1))
    assert (value, told) == ({"a": [None, 1.0], "b": None}, [1, 1])


def ring():
    made = []
    made.append(made)
    return made


@pytest.mark.parametrize("value", [object(), {1, 2}, {1: 2}, [{"a": lambda: 1}], ring()])
def test_what_has_no_form_fails_and_is_never_guessed(value):
    with pytest.raises(ToolError) as caught:
        plain(value, pytest.fail)
    assert (caught.value.kind, caught.value.code) == ("schema", "not_serialisable")


def test_text_that_is_no_unicode_has_no_form():
    with pytest.raises(ToolError, match="no form in JSON"):
        encoded({"a": "\ud800"})
