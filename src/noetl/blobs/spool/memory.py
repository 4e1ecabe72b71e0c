"""Waiting messages in the memory of this process."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from noetl.blobs.base import checked
from noetl.blobs.spool.base import Listed, Size, SpoolTaken


class MemoryStore:
    """Objects that end with the process."""

    name = "memory"

    def __init__(self, *, is_shared: bool = False) -> None:
        self.is_shared = is_shared
        self._objects: dict[str, bytes] = {}
        self._keys: list[str] = []

    async def put_new(self, key: str, data: bytes) -> None:
        """Store an object that is not there."""
        if self._objects.get(checked(key), data) != data:
            raise SpoolTaken(f"{key}: something else lies there")
        await self.put(key, data)

    async def put(self, key: str, data: bytes) -> None:
        """Store an object, whatever was there."""
        if checked(key) not in self._objects:
            insort(self._keys, key)
        self._objects[key] = bytes(data)

    async def get(self, key: str) -> bytes | None:
        """The bytes."""
        return self._objects.get(checked(key))

    async def list(self, folder: str, after: str = "", limit: int = 1000) -> list[Listed]:
        """Objects directly in a folder, by key."""
        found: list[Listed] = []
        start = bisect_right(self._keys, max(folder, after))
        for place in range(start, len(self._keys)):
            key = self._keys[place]
            if len(found) == limit or not key.startswith(folder):
                break
            if "/" not in key[len(folder) :]:
                found.append(Listed(key, len(self._objects[key])))
        return found

    async def delete(self, key: str) -> None:
        """Forget an object."""
        if self._objects.pop(checked(key), None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    async def size(self, folder: str) -> Size:
        """What lies directly in a folder."""
        found = await self.list(folder, limit=len(self._keys) + 1)
        return Size(len(found), sum(one.size for one in found))
