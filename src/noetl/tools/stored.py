"""Bytes by reference: where tools read large inputs and leave large results."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, Self

from noetl.blobs.base import BlobDamaged, BlobGone
from noetl.blobs.naming import InvalidRef
from noetl.blobs.refs import key_of, ref_of
from noetl.tools.base import ToolError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from types import TracebackType
    from typing import IO

    from noetl.blobs.base import Blobs
    from noetl.tools.base import ToolContext

CHUNK: Final = 1 << 20
UNKNOWN: Final = "application/octet-stream"
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


async def put_bytes(data: bytes, media_type: str, ctx: ToolContext) -> dict[str, Any]:
    """Store bytes under a name that they give themselves."""
    about = (hashlib.sha256(data).hexdigest(), len(data), media_type)
    return await _put(BytesIO(data), about, ctx)


async def put_file(path: Path, media_type: str, ctx: ToolContext) -> dict[str, Any]:
    """Store a file under a name that its content gives."""
    with path.open("rb") as file:
        digest, size = await asyncio.to_thread(_measured, file)
        return await _put(file, (digest, size, media_type), ctx)


def _measured(file: IO[bytes]) -> tuple[str, int]:
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(CHUNK):
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


async def _put(file: IO[bytes], about: tuple[str, int, str], ctx: ToolContext) -> dict[str, Any]:
    digest, size, given = about
    is_plain = given.isascii() and given.isprintable() and 0 < len(given) <= _MOST_MEDIA
    media_type = given if is_plain else UNKNOWN
    ref = ref_of(ctx.execution_id, ctx.step, digest[:_ID_LENGTH])
    file.seek(0)
    await blobs_of(ctx).put_stream(key_of(ref), _chunks(file), media_type=media_type)
    return {"ref": ref, "bytes": size, "sha256": digest, "content_type": media_type}


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, CHUNK):
        yield chunk


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
        about = (self._digest.hexdigest(), self._size, media_type)
        return await _put(self._file, about, self._ctx)

    async def _flush(self) -> None:
        ahead, self._ahead = bytes(self._ahead), bytearray()
        await asyncio.to_thread(self._take, ahead)

    def _take(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)
