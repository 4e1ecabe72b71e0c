"""Bytes by reference: where tools read large inputs and leave large results."""

from __future__ import annotations

import asyncio
import base64
import binascii
import codecs
import hashlib
import re
import tempfile
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from noetl.blobs.base import JSON, BlobDamaged, BlobGone
from noetl.blobs.naming import InvalidRef
from noetl.blobs.refs import key_of, ref_of
from noetl.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType
    from typing import IO

    from noetl.blobs.base import Blobs, Stat
    from noetl.telemetry.cover import Cover
    from noetl.tools.base import ToolContext

CHUNK: Final = 1 << 20
UNKNOWN: Final = "application/octet-stream"
_TEXTUAL: Final = frozenset({
    "json", "ndjson", "jsonl", "jsonlines", "xml", "csv", "yaml", "javascript", "urlencoded",
    "graphql",
})  # fmt: skip
"""Parts of the names of types that are texts."""
_NAMELESS: Final = frozenset({UNKNOWN, "binary/octet-stream"})
_HEAD_BYTES: Final = 64 * 1024
_MOST_MEDIA: Final = 100
_ID_LENGTH: Final = 32


def blobs_of(ctx: ToolContext) -> Blobs:
    """The blobs of the context, or the error that there are none."""
    if ctx.blobs is None:
        raise ToolError("config", "no_blobs", "this worker has no blob store")
    blobs: Blobs = ctx.blobs
    return blobs


def key_for(ref: str) -> str:
    """The key of the blob that a reference names."""
    try:
        return key_of(ref)
    except InvalidRef as fault:
        raise ToolError("config", "invalid_config", fault.message) from None


async def read_bytes(ref: str, ctx: ToolContext) -> bytes:
    """The bytes behind a reference."""
    key = key_for(ref)
    try:
        return await blobs_of(ctx).get(key)
    except BlobGone:
        raise ToolError("not_found", "result_gone", f"{ref} is gone") from None
    except BlobDamaged as fault:
        raise ToolError("storage_access", fault.code, fault.message) from None


async def about(ref: str, ctx: ToolContext) -> Stat:
    """What is known of the bytes behind a reference."""
    stat = await blobs_of(ctx).head(key_for(ref))
    if stat is None:
        raise ToolError("not_found", "result_gone", f"{ref} is gone")
    return stat


async def stream(
    ref: str, ctx: ToolContext, first: int = 0, last: int | None = None
) -> AsyncIterator[bytes]:
    """The bytes behind a reference in chunks, or those from `first` to `last`."""
    try:
        async for chunk in blobs_of(ctx).get_stream(key_for(ref), first, last):
            yield chunk
    except BlobGone:
        raise ToolError("not_found", "result_gone", f"{ref} is gone") from None
    except BlobDamaged as fault:
        raise ToolError("storage_access", fault.code, fault.message) from None


async def put_bytes(data: bytes, media_type: str, ctx: ToolContext) -> dict[str, Any]:
    """Store bytes under a name that they give themselves."""
    return await _put(BytesIO(data), None, media_type, ctx)


async def put_file(path: Path, media_type: str, ctx: ToolContext) -> dict[str, Any]:
    """Store a file under a name that its content gives."""
    with path.open("rb") as file:
        return await _put(file, None, media_type, ctx)


def covered_bytes(data: bytes, media_type: str, ctx: ToolContext) -> bytes:
    """Bytes as they may be stored: text without secrets."""
    clean = _covered(BytesIO(data), media_type, ctx.redactor.cover())
    if clean is None:
        return data
    with clean:
        return clean.read()


def _measured(file: IO[bytes]) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    for chunk in _pieces(file):
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while chunk := file.read(CHUNK):
        yield chunk


def _covered(file: IO[bytes], media_type: str, cover: Cover | None) -> IO[bytes] | None:
    """A copy of text without its secrets; none when there are none, or it is no text."""
    if cover is None or not _is_textual(file, media_type) or not cover.is_in(_pieces(file)):
        return None
    copy = tempfile.TemporaryFile(prefix="noetl-")  # noqa: SIM115 - closed by who asked
    for piece in cover.covered(_pieces(file)):
        copy.write(piece)
    copy.seek(0)
    return copy


def _is_textual(file: IO[bytes], media_type: str) -> bool:
    """Whether secrets are looked for; bytes that nobody calls anything are judged by their head."""
    media = media_type.partition(";")[0].strip().lower()
    if media not in _NAMELESS:
        return is_text(media)
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


async def _put(
    file: IO[bytes], known: tuple[str, int] | None, given: str, ctx: ToolContext
) -> dict[str, Any]:
    """Store a file, without secrets if it is text; its digest and size may be known."""
    is_plain = given.isascii() and given.isprintable() and 0 < len(given) <= _MOST_MEDIA
    media_type = given if is_plain else UNKNOWN
    clean = await asyncio.to_thread(_covered, file, media_type, ctx.redactor.cover())
    if clean is not None:
        ctx.redactor.covered["result"] += 1
        with clean:
            return await _put_as_it_is(clean, None, media_type, ctx)
    return await _put_as_it_is(file, known, media_type, ctx)


async def _put_as_it_is(
    file: IO[bytes], known: tuple[str, int] | None, media_type: str, ctx: ToolContext
) -> dict[str, Any]:
    if known is None:
        known = await asyncio.to_thread(_measured, file)
    digest, size = known
    ref = ref_of(ctx.execution_id, ctx.step, digest[:_ID_LENGTH])
    file.seek(0)
    await blobs_of(ctx).put_stream(key_of(ref), chunks_of(file), media_type=media_type)
    return {"ref": ref, "bytes": size, "sha256": digest, "content_type": media_type}


async def chunks_of(file: IO[bytes]) -> AsyncIterator[bytes]:
    """The bytes of an open file, from where it is."""
    while chunk := await asyncio.to_thread(file.read, CHUNK):
        yield chunk


# ---------------------------------------------------------------------------- bytes as data


def payload(given: Mapping[str, Any], where: str = "/input") -> tuple[bytes, str]:
    """The bytes of `data` or `data_b64`, and their type."""
    media = given.get("content_type")
    if given.get("data_b64") is not None:
        try:
            raw = base64.b64decode(str(given["data_b64"]), validate=True)
        except binascii.Error as fault:
            raise ToolError("config", "invalid_config", f"{where}/data_b64: {fault}") from None
        return raw, str(media or UNKNOWN)
    if "data" not in given:
        raise ToolError("config", "invalid_config", f"{where}/data: there is nothing to put")
    data = given["data"]
    if isinstance(data, str):
        return data.encode(), str(media or "text/plain; charset=utf-8")
    return msgspec.json.encode(data), str(media or JSON)


def shown(raw: bytes, media_type: str) -> Any:  # noqa: ANN401 - any value
    """Bytes as data: JSON, text, or base64."""
    kind = media_type.partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")):
        try:
            return msgspec.json.decode(raw)
        except msgspec.DecodeError as fault:
            raise ToolError("parse", "invalid_json", f"the artifact is no JSON: {fault}") from None
    return text_or_base64(raw)


def is_text(media: str) -> bool:
    """Whether a type in lower case is one of texts."""
    return media.startswith("text/") or not _TEXTUAL.isdisjoint(re.split(r"[/.+-]", media))


def text_or_base64(raw: bytes) -> str:
    """Bytes as text, when they are some."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(raw).decode("ascii")


def part_of(given: Mapping[str, Any], where: str = "/range") -> tuple[int, int | None]:
    """First and last byte of `{offset, length}`."""
    offset, length = given.get("offset") or 0, given.get("length")
    is_fit = is_count(offset) and (length is None or (is_count(length) and length > 0))
    if given.keys() - {"offset", "length"} or not is_fit:
        message = f"{where}: takes `offset` from 0 and `length` from 1, whole numbers"
        raise ToolError("config", "invalid_config", message)
    return offset, None if length is None else offset + length - 1


def is_count(value: object) -> bool:
    """Whether a value is a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class Spool:
    """Bytes that come piece by piece, kept on disk until their digest names them."""

    def __init__(self, ctx: ToolContext) -> None:
        blobs_of(ctx)
        self._ctx = ctx
        self._digest = hashlib.sha256()
        self._size = 0
        self._ahead = bytearray()
        self._file = tempfile.TemporaryFile(prefix="noetl-")  # noqa: SIM115 - closed by __aexit__

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    async def write(self, data: bytes) -> None:
        """Add bytes."""
        self._size += len(data)
        self._ahead += data
        if len(self._ahead) >= CHUNK:
            await self._flush()

    async def store(self, media_type: str) -> dict[str, Any]:
        """Store what was written; where it lies, and what it is."""
        await self._flush()
        known = (self._digest.hexdigest(), self._size)
        return await _put(self._file, known, media_type, self._ctx)

    async def _flush(self) -> None:
        ahead, self._ahead = bytes(self._ahead), bytearray()
        await asyncio.to_thread(self._take, ahead)

    def _take(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)
