"""Rows of Python values as Arrow."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from noetl.tools.base import ToolError
from noetl.tools.transfer.shape import Observed, array_of, batch_of, plain, text_of


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, None], pa.bool_()),
        ([1, 2], pa.int64()),
        ([1, 2.5], pa.float64()),
        ([1, True], pa.string()),
        ([1, "x"], pa.string()),
        ([b"a"], pa.binary()),
        ([{"a": 1}], pa.string()),
        ([1 << 63], pa.string()),
        ([None], pa.string()),
    ],
)
def test_a_column_has_a_type_that_all_its_values_have(values, kind):
    seen = Observed()
    seen.column("v", values)
    assert seen.schema() == pa.schema([("v", kind)])


def test_types_are_seen_over_all_chunks():
    seen = Observed()
    seen.column("v", [1])
    seen.column("v", ["x"])
    assert (seen.names, seen.schema().field("v").type) == (("v",), pa.string())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"), (False, "false"), (b"\x00\xff", "\\x00ff"), ({"a": [1]}, '{"a":[1]}'),
        (Decimal("1.50"), "1.50"), (3, "3"), (dt.date(2024, 1, 2), "2024-01-02"),
    ],
)  # fmt: skip
def test_a_value_as_text(value, text):
    assert text_of(value) == text


def test_a_value_that_does_not_fit_fails_or_becomes_null():
    field = pa.field("n", pa.int64())
    with pytest.raises(ToolError) as caught:
        array_of([1, "x"], field, is_lenient=False)
    assert (caught.value.kind, caught.value.code) == ("schema", "type_error")
    assert array_of([1, "x"], field, is_lenient=True).to_pylist() == [1, None]


def test_columns_become_a_batch():
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    made = batch_of([[1], [{"x": 2}]], schema, is_lenient=False)
    assert made.to_pylist() == [{"a": 1, "b": '{"x":2}'}]


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (pa.array([Decimal("1.50"), None]), ["1.50", None]),
        (pa.array([b"\x01", None]), ["\\x01", None]),
        (pa.array([[1, 2], None]), ["[1,2]", None]),
        (pa.array(["a"]).dictionary_encode(), ["a"]),
        (pa.array([1]), [1]),
    ],
)
def test_an_array_without_parts(array, values):
    assert plain(array).to_pylist() == values
