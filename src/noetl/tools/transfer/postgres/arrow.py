"""Values between PostgreSQL and Arrow: the types of both, and batches as CSV."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # it has no types
import pyarrow.csv as arrow_csv  # type: ignore[import-untyped]  # as above

from noetl.tools.transfer.shape import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.tools.transfer.plan import Pair
    from noetl.tools.transfer.postgres.column import Column

_TYPES: Final[dict[int, Any]] = {
    16: pa.bool_(), 20: pa.int64(), 21: pa.int16(), 23: pa.int32(), 700: pa.float32(),
    701: pa.float64(), 17: pa.binary(), 1082: pa.date32(), 1083: pa.time64("us"),
    1114: pa.timestamp("us"), 1184: pa.timestamp("us", "UTC"),
}  # fmt: skip
_NUMERIC: Final = 1700
_MOST_DIGITS: Final = 38


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """The columns of a query as Arrow; what has no type there is text."""
    return pa.schema([(column.name, _arrow(column)) for column in columns])


def is_plain(column: Column) -> bool:
    """Whether the driver gives values that Arrow takes as they are."""
    return column.oid in _TYPES or bool(pa.types.is_decimal(_arrow(column)))


def _arrow(column: Column) -> Any:  # noqa: ANN401 - an Arrow type
    if column.oid == _NUMERIC and 0 < column.precision <= _MOST_DIGITS:
        return pa.decimal128(column.precision, column.scale)
    return _TYPES.get(column.oid, pa.string())


def csv_of(batch: pa.RecordBatch, pairs: Sequence[Pair]) -> bytes:
    """Rows in the order of their columns, as the server reads them."""
    sink = io.BytesIO()
    arrays = [plain(batch.column(pair.field)) for pair in pairs]
    rows = pa.RecordBatch.from_arrays(arrays, names=[pair.column for pair in pairs])
    arrow_csv.write_csv(rows, sink, arrow_csv.WriteOptions(include_header=False))
    return sink.getvalue()


def sql_types(schema: pa.Schema) -> dict[str, str]:
    """The types of columns that are made for Arrow's."""
    return {field.name: _sql_type(field.type) for field in schema}


_SQL_TYPES: Final = (
    (pa.types.is_boolean, "boolean"), (pa.types.is_int8, "smallint"),
    (pa.types.is_int16, "smallint"), (pa.types.is_int32, "integer"),
    (pa.types.is_uint64, "numeric(20)"), (pa.types.is_integer, "bigint"),
    (pa.types.is_float32, "real"), (pa.types.is_floating, "double precision"),
    (pa.types.is_date, "date"), (pa.types.is_time, "time"), (pa.types.is_binary, "bytea"),
    (pa.types.is_large_binary, "bytea"), (pa.types.is_nested, "jsonb"),
)  # fmt: skip


def _sql_type(kind: Any) -> str:  # noqa: ANN401 - an Arrow type
    """The type of a column that is made for an Arrow type."""
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    return next((name for is_it, name in _SQL_TYPES if is_it(kind)), "text")
