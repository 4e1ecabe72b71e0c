"""Writes rows to a Parquet file, some thousand at a time."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from noetl.tools.base import ToolError, missing_extra
from noetl.tools.stored import put_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from noetl.tools.base import ToolContext
    from noetl.tools.tabular.columns import Column

MEDIA: Final = "application/vnd.apache.parquet"
GROUP_ROWS: Final = 16_384
EXTRA: Final = "duckdb"
JSON_MARK: Final = {b"noetl": b"json"}
"""On a column whose texts are JSON, because its values are maps or lists."""
_encode: Final = msgspec.json.encode


class ParquetFile:
    """A file in a folder of its own, which goes with it."""

    def __init__(self, columns: Sequence[Column], kind: str, first: Sequence[Any]) -> None:
        """Settle what each column holds; the first rows tell where nothing else does."""
        try:
            import pyarrow as pa  # type: ignore[import-untyped]  # noqa: PLC0415 - of an extra; no types
            import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415 - of an extra; no types
        except ImportError:
            raise missing_extra(kind, EXTRA) from None
        self._arrow, self._parquet = pa, pq
        self._names = [column.name for column in columns]
        self._kinds = [
            column.kind or _kind_of(_values(first, at, column.name))
            for at, column in enumerate(columns)
        ]
        self._waiting: list[Any] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._writer: Any = None

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._begin)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._clear)

    async def write(self, rows: Sequence[Any]) -> None:
        """Add rows: maps, or lists in the order of the columns."""
        self._waiting += rows
        if len(self._waiting) >= GROUP_ROWS:
            await self._flush()

    async def store(self, ctx: ToolContext) -> dict[str, Any]:
        """Close the file and store it; where it lies, and what it is."""
        await self._flush()
        await asyncio.to_thread(self._writer.close)
        return await put_file(self._path, MEDIA, ctx)

    @property
    def _path(self) -> Path:
        if self._folder is None:
            raise RuntimeError("the file was not begun")
        return Path(self._folder.name) / "rows.parquet"

    def _begin(self) -> None:
        arrow = self._arrow
        kinds = {
            "int": arrow.int64(),
            "float": arrow.float64(),
            "bool": arrow.bool_(),
            "text": arrow.string(),
            "json": arrow.string(),
        }
        fields = [
            arrow.field(name, kinds[kind], metadata=JSON_MARK if kind == "json" else None)
            for name, kind in zip(self._names, self._kinds, strict=True)
        ]
        self._folder = tempfile.TemporaryDirectory(prefix="noetl-rows-")
        self._schema = arrow.schema(fields)
        self._writer = self._parquet.ParquetWriter(self._path, self._schema, compression="zstd")

    def _clear(self) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._folder is not None:
            self._folder.cleanup()

    async def _flush(self) -> None:
        rows, self._waiting = self._waiting, []
        if rows:
            await asyncio.to_thread(self._take, rows)

    def _take(self, rows: Sequence[Any]) -> None:
        columns = [
            self._column(_values(rows, at, name), name, kind)
            for at, (name, kind) in enumerate(zip(self._names, self._kinds, strict=True))
        ]
        self._writer.write_table(self._arrow.table(columns, schema=self._schema))

    def _column(self, values: list[Any], name: str, kind: str) -> Any:  # noqa: ANN401 - no types
        if kind == "json":
            values = [None if value is None else _encode(value).decode() for value in values]
        try:
            return self._arrow.array(values, type=self._schema.field(name).type)
        except (self._arrow.ArrowException, TypeError, ValueError, OverflowError):
            message = f"column {name} holds values of several types: cast it in the statement"
            raise ToolError("schema", "not_serialisable", message) from None


def _values(rows: Sequence[Any], at: int, name: str) -> list[Any]:
    """The values of a column."""
    return [row[name] if isinstance(row, dict) else row[at] for row in rows]


def _kind_of(values: list[Any]) -> str:
    """What a column holds whose database does not say; what is mixed becomes JSON."""
    kinds = {type(value) for value in values if value is not None}
    for fits, kind in (
        ({str}, "text"), (set(), "text"), ({bool}, "bool"), ({int}, "int"), ({float}, "float"),
    ):  # fmt: skip
        if kinds == fits:
            return kind
    return "float" if kinds == {int, float} else "json"
