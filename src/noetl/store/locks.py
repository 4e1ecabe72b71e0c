"""Locks by name, kept only while somebody holds or wants them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Locks:
    """One lock per name."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, ...], tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, *name: str) -> AsyncIterator[None]:
        """Hold the lock of a name."""
        lock, wanted = self._held.get(name, (asyncio.Lock(), 0))
        self._held[name] = (lock, wanted + 1)
        try:
            async with lock:
                yield
        finally:
            lock, wanted = self._held[name]
            if wanted == 1:
                del self._held[name]
            else:
                self._held[name] = (lock, wanted - 1)
