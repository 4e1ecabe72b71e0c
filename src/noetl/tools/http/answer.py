"""An answer as data: decoded while it is read, counted, parsed, or passed on to the blobs."""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.tools.base import ToolError
from noetl.tools.http.encodings import decoded
from noetl.tools.stored import Spool, is_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from noetl.tools.base import ToolContext

ERROR_BYTES: Final = 65_536
BLOB_BYTES: Final = 5 << 30
"""The largest blob there may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How a body is to be read."""

    response_type: str
    max_bytes: int
    is_ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """What was read: a value, or where the bytes lie."""

    value: Any
    ref: str | None = None


def lower_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names in lower case; a name that comes again adds to its value."""
    made: dict[str, str] = {}
    for name, value in raw:
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        made[key] = f"{made[key]}, {text}" if key in made else text
    return made


async def read_body(
    chunks: AsyncIterator[bytes], headers: Mapping[str, str], wanted: Wanted, ctx: ToolContext
) -> Body:
    """Read a body within its limit; what is larger goes to the blobs when the answer is ok."""
    pieces = decoded(chunks, headers.get("content-encoding", ""))
    if not wanted.is_ok:
        return Body(value=_of_error(await _head(pieces, ERROR_BYTES), headers))
    if wanted.response_type == "blob":
        return await _to_blob(b"", pieces, headers, ctx)
    kept = bytearray()
    async for piece in pieces:
        kept += piece
        if len(kept) > wanted.max_bytes:
            if ctx.blobs is None:
                message = f"the answer is larger than {wanted.max_bytes} bytes (`max_bytes`)"
                raise ToolError("limit", "output_limit", message)
            return await _to_blob(bytes(kept), pieces, headers, ctx)
    return Body(value=value_of(bytes(kept), headers, wanted.response_type))


async def _head(pieces: AsyncIterator[bytes], most: int) -> bytes:
    kept = bytearray()
    with suppress(ToolError):  # the status matters more than a body that cannot be read
        async for piece in pieces:
            kept += piece
            if len(kept) >= most:
                break
    return bytes(kept[:most])


async def _to_blob(
    head: bytes, pieces: AsyncIterator[bytes], headers: Mapping[str, str], ctx: ToolContext
) -> Body:
    media_type = headers.get("content-type", "application/octet-stream")
    size = len(head)
    async with Spool(ctx) as spool:
        await spool.write(head)
        async for piece in pieces:
            size += len(piece)
            if size > BLOB_BYTES:
                message = f"the answer is larger than {BLOB_BYTES} bytes"
                raise ToolError("limit", "output_limit", message)
            await spool.write(piece)
        stored = await spool.store(media_type)
    return Body(value=stored, ref=stored["ref"])


# ---------------------------------------------------------------------------- values


def value_of(raw: bytes, headers: Mapping[str, str], response_type: str) -> Any:  # noqa: ANN401 - any answer
    """The body in the form that was asked for."""
    media, charset = media_type(headers)
    if response_type == "binary":
        return base64.b64encode(raw).decode("ascii")
    if response_type == "json" or (response_type == "auto" and _is_json(media)):
        return _json(raw) if raw.strip() else None
    if response_type == "text" or is_text(media):
        return _text(raw, charset)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode("ascii")


def _of_error(raw: bytes, headers: Mapping[str, str]) -> Any:  # noqa: ANN401 - any answer
    """The body of an answer that is not ok; a broken one stays text."""
    try:
        return value_of(raw, headers, "auto")
    except ToolError:
        return _text(raw, "utf-8")


def media_type(headers: Mapping[str, str]) -> tuple[str, str]:
    """The type of the body in lower case, and how its text is encoded."""
    media, *parameters = headers.get("content-type", "").split(";")
    charset = "utf-8"
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip('"') or charset
    return media.strip().lower(), charset


def _is_json(media: str) -> bool:
    return media.endswith(("/json", "+json"))


def _text(raw: bytes, charset: str) -> str:
    try:
        return raw.decode(charset, "replace")
    except LookupError:
        return raw.decode("utf-8", "replace")


def _json(raw: bytes) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        head = raw[:ERROR_BYTES].decode("utf-8", "replace")
        message = f"the answer is no JSON ({fault}): `response_type: text` takes it as it is"
        raise ToolError("parse", "invalid_json", message, details={"body": head}) from None
