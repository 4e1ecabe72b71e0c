"""A store far away: each call has its time, and is tried again before it fails."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final, TypeVar

from noetl.blobs.spool.base import SpoolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from noetl.blobs.spool.base import Listed, Size, SpoolStore

TIMEOUT_S: Final = 10.0
PAUSES_S: Final = (0.2, 1.0)
"""Between the tries; three in all."""
T = TypeVar("T")


class Retried:
    """The same store, patient."""

    def __init__(
        self,
        store: SpoolStore,
        timeout_s: float = TIMEOUT_S,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._pauses_s = tuple(pauses_s)

    @property
    def name(self) -> str:
        """The backend."""
        return self._store.name

    @property
    def is_shared(self) -> bool:
        """Whether other processes may add to it."""
        return self._store.is_shared

    async def put_new(self, key: str, data: bytes) -> None:
        """Store an object that is not there; a try whose answer was lost is found by the next."""
        await self._patiently(lambda: self._store.put_new(key, data))

    async def put(self, key: str, data: bytes) -> None:
        """Store an object, whatever was there."""
        await self._patiently(lambda: self._store.put(key, data))

    async def get(self, key: str) -> bytes | None:
        """The bytes."""
        return await self._patiently(lambda: self._store.get(key))

    async def list(self, folder: str, after: str = "", limit: int = 1000) -> Sequence[Listed]:
        """Objects directly in a folder, by key."""
        return await self._patiently(lambda: self._store.list(folder, after, limit))

    async def delete(self, key: str) -> None:
        """Forget an object."""
        await self._patiently(lambda: self._store.delete(key))

    async def size(self, folder: str) -> Size:
        """What lies directly in a folder."""
        return await self._patiently(lambda: self._store.size(folder))

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        for pause_s in self._pauses_s:
            try:
                return await self._once(call)
            except SpoolError:
                await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load, hides nothing
        return await self._once(call)

    async def _once(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await call()
        except TimeoutError:
            raise SpoolError(f"the spool did not answer in {self._timeout_s:g} s") from None
