"""Bytes that come piece by piece, kept on disk until their digest names them."""

from __future__ import annotations

import asyncio
import errno
import tempfile
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Self

from noetl.blobs.base import CHUNK_BYTES
from noetl.store.errors import StorageFull

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator
    from types import TracebackType

IN_MEMORY_BYTES: Final = 1024 * 1024
"""Up to this size nothing is written to disk."""
HEAD_BYTES: Final = 64 * 1024


class Begun:
    """A body on its way, in chunks of one size; how it begins is remembered."""

    def __init__(self, parts: AsyncIterable[bytes]) -> None:
        self._parts = parts
        self.head = b""

    async def chunks(self) -> AsyncIterator[bytes]:
        """All of it: a chunk costs the same however small it is."""
        ahead, size = [], 0
        async for part in self._parts:
            if len(self.head) < HEAD_BYTES:
                self.head += part[: HEAD_BYTES - len(self.head)]
            ahead.append(part)
            size += len(part)
            if size >= CHUNK_BYTES:
                yield b"".join(ahead)
                ahead, size = [], 0
        if ahead:
            yield b"".join(ahead)


class Spooled:
    """A body that has come whole; `async with` forgets it."""

    def __init__(self) -> None:
        self._digest = sha256()
        self._ahead: list[bytes] = []
        self._ahead_bytes = 0
        self.size = 0
        self.head = b""
        """How it begins."""
        self._file = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES, prefix="noetl-")  # noqa: SIM115 - closed by __aexit__

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def sha256(self) -> str:
        """The digest of what came."""
        return self._digest.hexdigest()

    async def take(self, parts: AsyncIterable[bytes]) -> Self:
        """Keep all parts."""
        async for part in parts:
            self.size += len(part)
            if len(self.head) < HEAD_BYTES:
                self.head += part[: HEAD_BYTES - len(self.head)]
            self._ahead.append(part)
            self._ahead_bytes += len(part)
            if self._ahead_bytes >= CHUNK_BYTES:
                await self._flush()
        await self._flush()
        return self

    async def chunks(self) -> AsyncIterator[bytes]:
        """What was kept, from its beginning."""
        self._file.seek(0)
        while chunk := await asyncio.to_thread(self._file.read, CHUNK_BYTES):
            yield chunk

    async def _flush(self) -> None:
        ahead, self._ahead, self._ahead_bytes = b"".join(self._ahead), [], 0
        try:
            await asyncio.to_thread(self._write, ahead)
        except OSError as fault:
            if fault.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            raise StorageFull("there is no room for the body", hint="free space on disk") from None

    def _write(self, data: bytes) -> None:
        self._digest.update(data)
        self._file.write(data)
