"""Bytes on their way, measured as they pass."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator


class Measured:
    """Size and digest of what has passed so far."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = chunks
        self.digest = sha256()
        self.size = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        """The same bytes."""
        async for chunk in self._chunks:
            self.digest.update(chunk)
            self.size += len(chunk)
            yield chunk
