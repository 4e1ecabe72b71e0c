"""Rows of Python values as Arrow: what type a column has, and values that do not fit it."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types

from noetl.tools.transfer.plan import type_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_WHOLE: Final = 1 << 63


class Observed:
    """What types the values of each column have, over all rows."""

    def __init__(self) -> None:
        self._kinds: dict[str, set[str]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The columns, in the order in which they were first seen."""
        return tuple(self._kinds)

    def column(self, name: str, values: Iterable[Any]) -> None:
        """See values of a column."""
        kinds = self._kinds.setdefault(name, set())
        for cls in {value.__class__ for value in values}:
            kinds.add(_KIND.get(cls, "text"))
        if "int" in kinds and any(
            value.__class__ is int and not -_WHOLE <= value < _WHOLE for value in values
        ):
            kinds.add("text")

    def schema(self) -> pa.Schema:
        """A type for every column that all of its values have."""
        return pa.schema([(name, _type(kinds)) for name, kinds in self._kinds.items()])


_KIND: Final[dict[type, str]] = {
    bool: "bool", int: "int", float: "float", bytes: "bytes", str: "text", type(None): "null",
}  # fmt: skip


def _type(kinds: set[str]) -> Any:  # noqa: ANN401 - an Arrow type
    found = kinds - {"null"}
    if found == {"bool"}:
        return pa.bool_()
    if found == {"int"}:
        return pa.int64()
    if found and found <= {"int", "float"}:
        return pa.float64()
    if found == {"bytes"}:
        return pa.binary()
    return pa.string()


def batch_of(
    columns: Sequence[Sequence[Any]], schema: pa.Schema, *, is_lenient: bool
) -> pa.RecordBatch:
    """Columns of values as a batch."""
    arrays = [
        array_of(values, field, is_lenient=is_lenient)
        for values, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def array_of(values: Sequence[Any], field: pa.Field, *, is_lenient: bool) -> pa.Array:
    """Values as an array of their column's type."""
    if pa.types.is_string(field.type):
        values = [value if value.__class__ is str or value is None else text_of(value)
                  for value in values]  # fmt: skip
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as fault:
        if not is_lenient:
            raise type_error(f"column {field.name}: {fault}", column=field.name) from None
    return pa.array([_or_null(value, field.type) for value in values], type=field.type)


def _or_null(value: Any, kind: pa.DataType) -> Any:  # noqa: ANN401 - any value
    try:
        pa.array([value], type=kind)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return None
    return value


def text_of(value: Any) -> str:  # noqa: ANN401 - any value
    """A value as text: JSON for lists and maps, hexadecimal for bytes."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":"))
    if isinstance(value, Decimal):
        return format(value, "f")
    return str(value)


def plain(array: pa.Array) -> pa.Array:
    """An array without parts, for stores that know only texts and numbers."""
    kind = array.type
    if pa.types.is_decimal(kind):
        return array.cast(pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or _has_parts(kind):
        texts = [None if value is None else text_of(value) for value in array.to_pylist()]
        return pa.array(texts, type=pa.string())
    return array


def _has_parts(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_nested(kind) or pa.types.is_dictionary(kind) or pa.types.is_duration(kind)
        or pa.types.is_interval(kind)
    )  # fmt: skip
