"""Collects the rows of statements, and moves those that are too many to the blobs."""

from __future__ import annotations

from contextlib import AsyncExitStack
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.tools.base import Plain, ToolError, remedied
from noetl.tools.tabular.columns import Column, unique

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from noetl.dsl.tasks.data import Sql
    from noetl.tools.base import ToolContext
    from noetl.tools.tabular.parquet import ParquetFile

PREVIEW_ROWS: Final = 3
_PLAIN: Final = frozenset({"int", "bool", "text", "float"})
_measure: Final = msgspec.json.Encoder(decimal_format="string").encode


class Budget:
    """What all statements of a task together may return in place."""

    def __init__(self, config: Sql, ctx: ToolContext, kind: str) -> None:
        self.as_objects = config.as_objects
        self.max_rows = int(config.max_rows)
        self.max_bytes = int(config.max_bytes)
        self.is_plain = True
        """Whether all that was returned is JSON as it is."""
        self.bytes_left = self.max_bytes
        self.ctx = ctx
        self.kind = kind


class Part:
    """The result of one statement, filled as its rows come."""

    def __init__(self, budget: Budget, columns: Sequence[Column] = ()) -> None:
        self._budget = budget
        self._open = AsyncExitStack()
        self._file: ParquetFile | None = None
        self._rows: list[Any] = []
        self._size = 0
        self._is_finite = True
        self.count = 0
        self.affected = 0
        self.columns = unique(columns)

    @property
    def names(self) -> list[str]:
        """The names of the columns, each of them once."""
        return [column.name for column in self.columns]

    @property
    def is_plain(self) -> bool:
        """Whether every value is known to be one of JSON's."""
        return self._is_finite and all(column.kind in _PLAIN for column in self.columns)

    async def add(self, rows: list[Any]) -> None:
        """Take rows, as maps or as lists, whichever the task wants."""
        self.count += len(rows)
        self._is_finite = self._is_finite and self._are_finite(rows)
        if self._file is not None:
            await self._file.write(self._clean(rows))
            return
        self._rows += rows
        self._size += len(_measure(rows))
        budget = self._budget
        if self.count > budget.max_rows or self._size > budget.bytes_left:
            await self._spill()

    async def close(self) -> None:
        """Forget what was kept on the disk."""
        await self._open.aclose()

    async def end(self) -> dict[str, Any]:
        """The result as the task returns it."""
        self._budget.is_plain = self._budget.is_plain and self.is_plain
        told: dict[str, Any] = {
            "columns": self.names,
            "rows": self._rows,
            "row_count": self.count,
            "affected_rows": self.affected,
        }
        if self._file is None:
            self._budget.bytes_left -= self._size
            return told
        stored = await self._file.store(self._budget.ctx)
        return {
            **told,
            "rows": [],
            "truncated": False,
            "preview": self._rows,
            "ref": stored["ref"],
            "bytes": stored["bytes"],
        }

    async def _spill(self) -> None:
        budget = self._budget
        if budget.ctx.blobs is None:
            if self.count > budget.max_rows:
                message = f"the statement returned over {budget.max_rows} rows"
                raise remedied(ToolError("limit", "row_limit", message))
            message = f"the rows are larger than {budget.max_bytes} bytes"
            raise remedied(ToolError("limit", "output_limit", message))
        from noetl.tools.tabular.parquet import ParquetFile  # noqa: PLC0415 - few results need it

        rows, self._rows = self._rows, self._rows[:PREVIEW_ROWS]
        made = ParquetFile(self.columns, budget.kind, rows)
        self._file = await self._open.enter_async_context(made)
        await self._file.write(self._clean(rows))

    def _are_finite(self, rows: list[Any]) -> bool:
        """Whether no number is one that JSON lacks."""
        for at, column in enumerate(self.columns):
            if column.kind == "float":
                where = column.name if self._budget.as_objects else at
                values = (row[where] for row in rows)
                if not all(value is None or isfinite(value) for value in values):
                    return False
        return True

    def _clean(self, rows: list[Any]) -> list[Any]:
        """The rows without secrets: a file passes no other border."""
        cleaned: list[Any] = self._budget.ctx.redactor.redact_value(rows)
        return cleaned


def together(parts: list[dict[str, Any]], budget: Budget) -> dict[str, Any]:
    """The last rows on top, every statement by its number."""
    last = next((part for part in reversed(parts) if part["columns"]), parts[-1] if parts else None)
    top = last or {"columns": [], "rows": [], "row_count": 0, "affected_rows": 0}
    data = {**top, **{f"command_{index}": part for index, part in enumerate(parts)}}
    return Plain(data, parts) if budget.is_plain and parts else data


def at_index(fault: ToolError, index: int) -> ToolError:
    """The error of a statement, with its number."""
    details: Mapping[str, Any] = fault.details or {}
    if "index" not in details:
        fault.details = {**details, "index": index}
    return fault
