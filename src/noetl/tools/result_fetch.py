"""Results by reference as tasks: a value, a part of it, some of its rows, or some of its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from noetl.dsl.paths import NoSuchPath, found_at
from noetl.dsl.tasks import ResultFetch
from noetl.dsl.views import Outcome
from noetl.tools.base import ToolError, Traits
from noetl.tools.stored import about, part_of, read_bytes, stream, text_or_base64

if TYPE_CHECKING:
    from noetl.dsl.tasks.data import RowRange
    from noetl.dsl.tasks.task import Task
    from noetl.tools.base import ToolContext

MOST_BYTES: Final = 64 << 20
"""So much is decoded at once; of more, a range is read."""


class ResultFetchTool:
    """The kind `result_fetch`."""

    kind: ClassVar[str] = "result_fetch"
    Config: ClassVar[type[Task]] = ResultFetch
    traits: ClassVar[Traits] = Traits(side_effects=False)

    async def run(self, config: ResultFetch, ctx: ToolContext) -> Outcome:
        """The value behind the reference, a part of it, some of its rows or of its bytes."""
        if config.range is not None:
            return Outcome(data=await _some_bytes(config, config.range, ctx))
        stat = await about(config.ref, ctx)
        if stat.size > MOST_BYTES:
            message = f"{config.ref} has {stat.size} bytes; read a `range` of it"
            raise ToolError("limit", "output_limit", message)
        raw = await read_bytes(config.ref, ctx)
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            message = f"{config.ref} is no JSON: {fault}"
            raise ToolError("parse", "invalid_json", message) from None
        try:
            value = found_at(value, config.path or "")
        except NoSuchPath as fault:
            raise ToolError("not_found", "no_such_path", f"/path: {fault}") from None
        return Outcome(data=value if config.rows is None else _some_rows(value, config.rows))

    async def cancel(self, ctx: ToolContext) -> None:
        """Nothing outlives the task."""


async def _some_bytes(
    config: ResultFetch, wanted: Mapping[str, Any], ctx: ToolContext
) -> dict[str, Any]:
    """Bytes from an offset on, as text or base64; `size_bytes` is how many there are in all."""
    if config.path is not None or config.rows is not None:
        message = "/range: a range of bytes has no `path` and no `rows`"
        raise ToolError("config", "invalid_config", message)
    first, last = part_of(wanted)
    stat = await about(config.ref, ctx)
    end = stat.size - 1 if last is None else min(last, stat.size - 1)
    if end - first >= MOST_BYTES:
        raise ToolError("limit", "output_limit", f"/range: {MOST_BYTES} bytes are the most")
    raw = b""
    if first <= end:
        raw = b"".join([chunk async for chunk in stream(config.ref, ctx, first, end)])
    return {
        "data": text_or_base64(raw),
        "offset": first,
        "length": len(raw),
        "size_bytes": stat.size,
        "content_type": stat.media_type,
    }


def _some_rows(value: Any, wanted: RowRange) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Rows from an offset on; `row_count` is how many there are in all."""
    rows = value.get("rows") if isinstance(value, Mapping) else value
    if not isinstance(rows, list):
        raise ToolError("schema", "no_rows", "/rows: the value has no rows")
    columns = value.get("columns") if isinstance(value, Mapping) else None
    if columns is None:
        columns = list(rows[0]) if rows and isinstance(rows[0], Mapping) else []
    offset = int(wanted.offset)
    end = None if wanted.limit is None else offset + int(wanted.limit)
    return {"rows": rows[offset:end], "columns": columns, "row_count": len(rows)}
