"""Roles and names that one holder has at a time; in one memory, one lock each."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from noetl.store.locks import Locks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager


class MemoryRoles:
    """Roles of the servers that share this memory."""

    def __init__(self) -> None:
        self._locks = Locks()

    @asynccontextmanager
    async def lead(self, role: str) -> AsyncIterator[asyncio.Event]:
        """Wait for a role and hold it; a memory is never lost while its process lives."""
        async with self._locks.of("role", role):
            yield asyncio.Event()

    def exclusive(self, key: str) -> AbstractAsyncContextManager[None]:
        """Wait for a name and hold it for a short while."""
        return self._locks.of("key", key)
