"""Calls that are not answered yet: a gateway that stops lets them end."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Traffic:
    """Counts who is inside."""

    def __init__(self) -> None:
        self.count = 0
        self._left = asyncio.Event()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """One call, from its beginning to its answer."""
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1
            self._left.set()

    async def emptied(self) -> None:
        """Come back when nobody is inside."""
        while self.count:
            self._left.clear()
            await self._left.wait()
