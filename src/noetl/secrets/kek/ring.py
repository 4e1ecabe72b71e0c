"""Several keys of keys: one wraps, each unwraps what it wrapped. So a provider can be changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.secrets.kek.base import not_set_up

if TYPE_CHECKING:
    from noetl.secrets.kek.base import Kek, Wrapped


class Ring:
    """The current key of keys, and those of other providers that old records still name."""

    def __init__(self, current: Kek, *others: Kek) -> None:
        self._current = current
        self._keks = {kek.provider: kek for kek in (*others, current)}
        self.provider = current.provider

    async def current(self) -> tuple[str, str]:
        """Id and version of the key that wraps now."""
        return await self._current.current()

    async def wrap(self, dek: bytes) -> Wrapped:
        """Wrap with the current one."""
        return await self._current.wrap(dek)

    async def unwrap(self, wrapped: Wrapped) -> bytes:
        """Unwrap with the provider that wrapped."""
        kek = self._keks.get(wrapped.p)
        if kek is None:
            raise not_set_up(wrapped)
        return await kek.unwrap(wrapped)
