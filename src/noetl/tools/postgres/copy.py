"""COPY into and out of a table: bytes pass through, never all of them at once."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import psycopg

from noetl.blobs.base import BlobDamaged, BlobGone
from noetl.tools.base import ToolError
from noetl.tools.postgres.failures import refused
from noetl.tools.postgres.session import quoted_name
from noetl.tools.postgres.types import bindable
from noetl.tools.stored import CHUNK, Spool, blobs_of, key_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from psycopg import AsyncCopy

    from noetl.dsl.tasks.data import Copy
    from noetl.tools.base import ToolContext
    from noetl.tools.postgres.pools import Connection

INLINE_BYTES: Final = 65_536
MEDIA: Final = {
    "csv": "text/csv",
    "text": "text/tab-separated-values",
    "binary": "application/octet-stream",
}


async def run_copy(
    connection: Connection, copy: Copy, ctx: ToolContext, index: int
) -> dict[str, Any]:
    """Stream rows into the table, or out of it to a reference (text of up to 64 KiB: in place)."""
    cursor = connection.cursor()
    told: dict[str, Any] = {}
    try:
        async with cursor.copy(_statement(copy).encode()) as stream:
            if copy.direction == "to":
                told = await _out(stream, copy, ctx)
            else:
                await _in(stream, copy, ctx)
    except psycopg.Error as fault:
        raise refused(fault, None, index) from None
    count = max(0, cursor.rowcount)
    is_out = copy.direction == "to"
    return {
        "columns": [],
        "rows": [],
        "row_count": count if is_out else 0,
        "affected_rows": 0 if is_out else count,
        "copy": {"direction": copy.direction, "table": copy.table, "rows": count, **told},
    }


def table_name(text: str) -> str:
    """A table, with its schema before a dot, as SQL has it."""
    return ".".join(quoted_name(part.strip().strip('"')) for part in text.split("."))


def _statement(copy: Copy) -> str:
    columns = f" ({', '.join(map(quoted_name, copy.columns))})" if copy.columns else ""
    if copy.direction == "to":
        form = f"format {copy.format}" + (", header true" if copy.header else "")
        return f"copy {table_name(copy.table)}{columns} to stdout ({form})"
    if isinstance(copy.data, list):  # rows: the driver writes them
        return f"copy {table_name(copy.table)}{columns or _named(copy.data)} from stdin"
    form = f"format {copy.format}" + (", header true" if copy.header else "")
    return f"copy {table_name(copy.table)}{columns} from stdin ({form})"


def _named(rows: list[Any]) -> str:
    """The columns that maps name."""
    if not rows or not isinstance(rows[0], Mapping):
        return ""
    return f" ({', '.join(quoted_name(str(name)) for name in rows[0])})"


# ---------------------------------------------------------------------------- in


async def _in(stream: AsyncCopy, copy: Copy, ctx: ToolContext) -> None:
    if isinstance(copy.data, list):
        for row in _rows(copy):
            await stream.write_row(row)
        return
    if copy.ref is not None:
        async for chunk in _stored(copy.ref, ctx):
            await stream.write(chunk)
        return
    data = _bytes(copy)
    for at in range(0, len(data), CHUNK):
        await stream.write(data[at : at + CHUNK])


def _rows(copy: Copy) -> Iterator[list[Any]]:
    names = list(copy.columns) or None
    for index, row in enumerate(copy.data):
        if isinstance(row, Mapping):
            names = names or [str(name) for name in row]
            unknown = set(row) - set(names)
            if unknown:
                raise _wrong(f"/copy/data/{index}: `{min(unknown)}` is no column")
            yield [bindable(row.get(name)) for name in names]
        elif isinstance(row, list):
            yield [bindable(value) for value in row]
        else:
            raise _wrong(f"/copy/data/{index}: a list or a map")


def _bytes(copy: Copy) -> bytes:
    if not isinstance(copy.data, str):
        raise _wrong("/copy: `ref`, or `data` as a text or a list of rows")
    if copy.format != "binary":
        return copy.data.encode()
    try:
        return b64decode(copy.data, validate=True)
    except NotBase64:
        raise _wrong("/copy/data: binary data is written in base64") from None


async def _stored(ref: str, ctx: ToolContext) -> AsyncIterator[bytes]:
    key = key_for(ref)
    try:
        async for chunk in blobs_of(ctx).get_stream(key):
            yield chunk
    except BlobGone:
        raise ToolError("not_found", "result_gone", f"{ref} is gone") from None
    except BlobDamaged as fault:
        raise ToolError("storage_access", fault.code, fault.message) from None


def _wrong(message: str) -> ToolError:
    return ToolError("config", "invalid_config", message)


# ---------------------------------------------------------------------------- out


async def _out(stream: AsyncCopy, copy: Copy, ctx: ToolContext) -> dict[str, Any]:
    media_type = MEDIA[copy.format]
    pieces = _pieces(stream)
    first, second = await anext(pieces, b""), await anext(pieces, b"")
    if copy.format != "binary" and len(first) <= INLINE_BYTES and not second:
        return {"bytes": len(first), "content_type": media_type, "data": first.decode()}
    async with Spool(ctx) as spool:
        await spool.write(first + second)
        async for piece in pieces:
            await spool.write(piece)
        return await spool.store(media_type)


async def _pieces(stream: AsyncCopy) -> AsyncIterator[bytes]:
    """Whole rows, many at a time."""
    rows, size = [], 0
    async for row in stream:
        rows.append(bytes(row))
        size += len(row)
        if size > INLINE_BYTES:
            yield b"".join(rows)
            rows, size = [], 0
    if rows:
        yield b"".join(rows)
