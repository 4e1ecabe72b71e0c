"""Things that are costly to open: shared by those who use them, closed when nobody does."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Hashable

IDLE_S: Final = 300.0

K = TypeVar("K", bound="Hashable")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Care(Generic[K, V]):
    """How a thing is opened, looked after and closed."""

    open: Callable[[K], Awaitable[V]]
    close: Callable[[V], Awaitable[None]]
    is_alive: Callable[[V], bool]


@dataclass(slots=True, eq=False)
class _Thing(Generic[V]):
    value: V
    users: int = 0
    timer: asyncio.TimerHandle | None = None


class Keeper(Generic[K, V]):
    """Things by key; the same key is the same thing until it breaks or is idle for long."""

    def __init__(self, care: Care[K, V], idle_s: float = IDLE_S) -> None:
        self._care = care
        self._idle_s = idle_s
        self._things: dict[K, _Thing[V]] = {}
        self._opening: dict[K, asyncio.Lock] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many are open."""
        return len(self._things)

    @asynccontextmanager
    async def use(self, key: K) -> AsyncIterator[V]:
        """The thing of a key; one that broke is not used again."""
        thing = await self._thing(key)
        thing.users += 1
        if thing.timer is not None:
            thing.timer.cancel()
            thing.timer = None
        try:
            yield thing.value
        finally:
            thing.users -= 1
            if not thing.users and self._things.get(key) is thing:
                loop = asyncio.get_running_loop()
                thing.timer = loop.call_later(self._idle_s, self._expire, key)

    async def close(self) -> None:
        """Close everything."""
        things, self._things = self._things, {}
        for thing in things.values():
            self._end_later(thing)
        if self._ending:
            await asyncio.wait(self._ending)

    async def _thing(self, key: K) -> _Thing[V]:
        lock = self._opening.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                return await self._opened(key)
        finally:
            if key not in self._things and not lock.locked():
                self._opening.pop(key, None)

    async def _opened(self, key: K) -> _Thing[V]:
        found = self._things.get(key)
        if found is not None and self._care.is_alive(found.value):
            return found
        if found is not None:
            del self._things[key]
            self._end_later(found)
        made = _Thing(await self._care.open(key))
        self._things[key] = made
        return made

    def _expire(self, key: K) -> None:
        self._end_later(self._things.pop(key))
        self._opening.pop(key, None)

    def _end_later(self, thing: _Thing[V]) -> None:
        if thing.timer is not None:
            thing.timer.cancel()
        task = asyncio.get_running_loop().create_task(self._ended(thing.value))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _ended(self, value: V) -> None:
        await self._care.close(value)
