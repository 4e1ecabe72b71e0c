"""Farewells: gateways are told which sessions have ended, so that they forget them at once.

Told after the commit, to whoever listens. A bus that is away is no error: a gateway asks again
within minutes, and the server lets nobody in whose session has ended.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.bus import subjects
from noetl.errors import NoetlError
from noetl.server.access.bearers import OF_TOKEN
from noetl.store.identity import EndedSession

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl.bus.base import Bus
    from noetl.store.identity import TokenRow

BUS_S: Final = 2.0
"""What the bus does not take within this time is not told."""
_encode: Final = msgspec.json.Encoder().encode
_log: Final = logging.getLogger(__name__)


class Farewells:
    """Tells gateways of sessions and tokens that have ended, or that now open something else."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    async def tell(self, ended: Iterable[EndedSession]) -> None:
        """Tell of sessions, by every digest under which a gateway may know them."""
        words = [(one.session_id, sha256) for one in ended for sha256 in one.digests]
        try:
            async with asyncio.timeout(BUS_S):
                for session_id, sha256 in words:
                    body = _encode({"session_id": session_id, "sha256": sha256})
                    await self._bus.tell(subjects.revoked(session_id), body)
        except (NoetlError, TimeoutError) as fault:
            told = {"sessions": len(words), "reason": getattr(fault, "code", "timeout")}
            _log.warning("gateways were not told that sessions have ended", extra=told)

    async def tell_of_token(self, row: TokenRow) -> None:
        """Tell of a token that has ended, or has another text."""
        name = f"{OF_TOKEN}{row.token_id}"
        await self.tell([EndedSession(session_id=name, digests=(row.sha256,))])
