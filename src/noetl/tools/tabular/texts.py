"""Covers secrets in the texts of a Parquet file that something else has written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]  # no types
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # no types

if TYPE_CHECKING:
    from pathlib import Path

    from noetl.telemetry.cover import Cover
    from noetl.telemetry.redact import Redactor

BATCH_ROWS: Final = 4096


def cleaned(path: Path, redactor: Redactor) -> Path | None:
    """A copy beside the file whose texts hold no secret; none when those of the file hold none."""
    cover = redactor.cover()
    if cover is None:
        return None
    with pq.ParquetFile(path) as file:
        if not any(_holds(batch, cover) for batch in file.iter_batches(BATCH_ROWS)):
            return None
        copy = path.with_name(f"{path.stem}.clean.parquet")
        schema = file.schema_arrow
        with pq.ParquetWriter(copy, schema) as writer:
            for batch in file.iter_batches(BATCH_ROWS):
                columns = [_clean(column, redactor) for column in batch.columns]
                writer.write_batch(pa.record_batch(columns, schema=schema))
    redactor.covered["result"] += 1
    return copy


def _holds(batch: Any, cover: Cover) -> bool:  # noqa: ANN401 - untyped module
    """Whether the bytes below the values may hold a secret; there no word stands alone."""
    if cover.has_words:
        return True
    buffers = (buffer for column in batch.columns for buffer in column.buffers() if buffer)
    return any(cover.is_in([buffer.to_pybytes()]) for buffer in buffers)


def _clean(column: Any, redactor: Redactor) -> Any:  # noqa: ANN401 - untyped module
    if not _has_text(column.type):
        return column
    values = column.to_pylist()
    clean = _walked(values, redactor)
    return column if clean == values else pa.array(clean, type=column.type)


def _has_text(kind: Any) -> bool:  # noqa: ANN401 - untyped module
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return True
    return any(_has_text(kind.field(at).type) for at in range(kind.num_fields))


def _walked(value: Any, redactor: Redactor) -> Any:  # noqa: ANN401 - any value
    """The value with its texts covered; what is no text keeps its type."""
    if isinstance(value, str):
        return redactor.redact(value)
    if isinstance(value, dict):
        return {name: _walked(item, redactor) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_walked(item, redactor) for item in value)
    return value
