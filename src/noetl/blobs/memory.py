"""Large bytes in the memory of this process."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from noetl.blobs.base import CHUNK_BYTES, JSON, BlobDamaged, BlobGone, Stat, checked

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    stat: Stat


class MemoryBlobs:
    """Objects that end with the process."""

    def __init__(self) -> None:
        self._objects: dict[str, _Object] = {}

    @property
    def name(self) -> str:
        """The word for this store in references."""
        return "kv"

    async def put(self, key: str, data: bytes, *, media_type: str = JSON) -> None:
        """Keep bytes, all of them or none; what was there before is replaced."""
        self._keep(key, data, media_type)

    async def get(self, key: str) -> bytes:
        """All bytes."""
        found = self._objects.get(checked(key))
        if found is None:
            raise BlobGone(f"{key}: nothing lies there")
        if sha256(found.data).hexdigest() != found.stat.sha256:
            raise BlobDamaged(f"{key}: the bytes are not those that were put")
        return found.data

    async def put_stream(
        self, key: str, chunks: AsyncIterable[bytes], *, media_type: str = JSON
    ) -> Stat:
        """Keep bytes as they come; nothing is kept when their source fails."""
        checked(key, media_type)
        return self._keep(key, b"".join([chunk async for chunk in chunks]), media_type)

    async def get_stream(
        self, key: str, first: int = 0, last: int | None = None
    ) -> AsyncIterator[bytes]:
        """The bytes in chunks, or those from `first` to `last`."""
        data = await self.get(key)
        data = data[first : None if last is None else last + 1]
        for start in range(0, len(data), CHUNK_BYTES):
            yield data[start : start + CHUNK_BYTES]

    async def head(self, key: str) -> Stat | None:
        """What lies under a key."""
        found = self._objects.get(checked(key))
        return None if found is None else found.stat

    async def delete(self, key: str) -> None:
        """Forget a key; one that is not there is forgotten already."""
        self._objects.pop(checked(key), None)

    async def listed(
        self, prefix: str = "", *, after: str = "", limit: int | None = None
    ) -> list[str]:
        """Keys that begin with a text, in order."""
        found = (key for key in self._objects if key.startswith(prefix) and key > after)
        return sorted(found)[:limit]

    def _keep(self, key: str, data: bytes, media_type: str) -> Stat:
        checked(key, media_type)
        digest = sha256(data).hexdigest()
        stat = Stat(key=key, size=len(data), sha256=digest, media_type=media_type)
        self._objects[key] = _Object(bytes(data), stat)
        return stat
