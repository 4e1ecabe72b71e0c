"""A bucket of keys inside one process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.bus.base import BusGone
from noetl.bus.inbox import Inbox
from noetl.bus.keys import Entry, KeyChanged, checked
from noetl.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.clock import Clock

_NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class _Kept:
    """A value and the time until which it is there."""

    entry: Entry
    until: float


class MemoryKeys:
    """Keys with a time to live, forgotten by whoever comes across them."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._kept: dict[str, _Kept] = {}
        self._revision = 0
        self._watchers: dict[str, list[Inbox[Entry]]] = {}
        self._is_closed = False

    async def get(self, key: str) -> Entry | None:
        """The newest value."""
        return self._found(key)

    async def put(self, key: str, value: bytes, ttl_s: float | None = None) -> int:
        """Set a key, whatever it was."""
        self._found(key)
        return self._set(key, value, ttl_s)

    async def create(self, key: str, value: bytes, ttl_s: float | None = None) -> int:
        """Set a key that is not there."""
        return await self.update(key, value, 0, ttl_s)

    async def update(
        self, key: str, value: bytes, revision: int, ttl_s: float | None = None
    ) -> int:
        """Set a key that still has this revision."""
        self._compare(key, revision)
        return self._set(key, value, ttl_s)

    async def delete(self, key: str, revision: int | None = None) -> None:
        """Forget a key."""
        self._found(key)
        if revision is not None:
            self._compare(key, revision)
        if self._kept.pop(key, None) is not None:
            self._tell(Entry(key, b"", 0))

    async def names(self, prefix: str) -> list[str]:
        """The keys below `prefix.`."""
        self._must_be_open()
        return [key for key in list(self._kept) if _is_below(prefix, key) and self._found(key)]

    @asynccontextmanager
    async def watch(self, key: str) -> AsyncIterator[AsyncIterator[Entry]]:
        """What a key is set to from now on."""
        self._must_be_open()
        inbox: Inbox[Entry] = Inbox()
        inboxes = self._watchers.setdefault(checked(key), [])
        inboxes.append(inbox)
        try:
            yield inbox.words()
        finally:
            inboxes.remove(inbox)
            if not inboxes:
                self._watchers.pop(key, None)
            inbox.close()

    def close(self) -> None:
        """Every later call gets `BusGone`; whoever watches comes to an end."""
        self._is_closed = True
        for inboxes in self._watchers.values():
            for inbox in inboxes:
                inbox.close()

    def _found(self, key: str) -> Entry | None:
        self._must_be_open()
        kept = self._kept.get(checked(key))
        if kept is None:
            return None
        if self._clock.monotonic() >= kept.until:
            del self._kept[key]
            return None
        return kept.entry

    def _compare(self, key: str, revision: int) -> None:
        found = self._found(key)
        if (found.revision if found else 0) != revision:
            raise KeyChanged(f"somebody else changed the key {key.partition('.')[0]}")

    def _set(self, key: str, value: bytes, ttl_s: float | None) -> int:
        self._revision += 1
        entry = Entry(key, value, self._revision)
        until = _NEVER if ttl_s is None else self._clock.monotonic() + ttl_s
        self._kept[key] = _Kept(entry, until)
        self._tell(entry)
        return self._revision

    def _tell(self, entry: Entry) -> None:
        for inbox in self._watchers.get(entry.key, ()):
            inbox.put(entry)

    def _must_be_open(self) -> None:
        if self._is_closed:
            raise BusGone("the bus was closed")


def _is_below(prefix: str, key: str) -> bool:
    return not prefix or key.startswith(f"{prefix}.")
