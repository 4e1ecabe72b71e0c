"""A token for our own requests, kept until shortly before it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.secrets.source import SourceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.clock import Clock
    from noetl.secrets.tokens.base import Token

_EARLY_S: Final = 60.0


class Bearer:
    """Asks for a token when the last one is about to end."""

    def __init__(self, clock: Clock, mint: Callable[[], Awaitable[Token]]) -> None:
        self._clock = clock
        self._mint = mint
        self._token = ""
        self._until = float("-inf")

    async def __call__(self) -> str:
        """The token that is valid now; while its issuer is silent, the old one to its very end."""
        now = self._clock.monotonic()
        if now < self._until - _EARLY_S:
            return self._token
        try:
            made = await self._mint()
        except SourceError:
            if now < self._until:
                return self._token
            raise
        self._token = str(made.fields["access_token"])
        self._until = now + (made.expires_in or 0.0)
        return self._token
