"""Words for one listener: bounded, so that a slow one costs itself and nobody else."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

T = TypeVar("T")

MOST_UNHEARD: Final = 1024
"""Words that a listener may be behind; then the oldest are lost."""


class Inbox(Generic[T]):
    """Words for one listener, newest kept."""

    def __init__(self) -> None:
        self._words: deque[T] = deque(maxlen=MOST_UNHEARD)
        self._changed = asyncio.Event()
        self._is_closed = False

    def put(self, word: T) -> None:
        """Keep a word until it is heard."""
        self._words.append(word)
        self._changed.set()

    def close(self) -> None:
        """No more words will come."""
        self._is_closed = True
        self._changed.set()

    async def words(self) -> AsyncIterator[T]:
        """Every word, in order, until the end."""
        while True:
            while self._words:
                yield self._words.popleft()
            if self._is_closed:
                return
            self._changed.clear()
            await self._changed.wait()
