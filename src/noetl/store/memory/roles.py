"""Roles and names that one holder has at a time; in one memory, one lock each."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class MemoryRoles:
    """Roles of the servers that share this memory."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def lead(self, role: str) -> AsyncIterator[asyncio.Event]:
        """Wait for a role and hold it; a memory is never lost while its process lives."""
        async with self._held(f"role:{role}"):
            yield asyncio.Event()

    @asynccontextmanager
    async def exclusive(self, key: str) -> AsyncIterator[None]:
        """Wait for a name and hold it for a short while."""
        async with self._held(f"key:{key}"):
            yield

    @asynccontextmanager
    async def _held(self, name: str) -> AsyncIterator[None]:
        lock, wanted = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = (lock, wanted + 1)
        try:
            async with lock:
                yield
        finally:
            lock, wanted = self._locks[name]
            if wanted == 1:
                del self._locks[name]
            else:
                self._locks[name] = (lock, wanted - 1)
