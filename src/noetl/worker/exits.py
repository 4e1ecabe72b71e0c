"""How work and workers leave: commands are given back, the pool is told."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from noetl.api.commands import Held as HeldCommand
from noetl.api.commands import Release
from noetl.api.runtime import Left

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.api.client import Client
    from noetl.worker.held import Run

FLUSH_S: Final = 5.0

_log = logging.getLogger("noetl.worker")


class Exit:
    """Says good-bye, without waiting long for an answer."""

    def __init__(self, client: Client, worker_id: str) -> None:
        self._client = client
        self._worker_id = worker_id

    async def give(self, runs: Sequence[Run], reason: str) -> None:
        """Give commands back, so that others have them at once."""
        if not runs:
            return
        body = Release(worker_id=self._worker_id, commands=tuple(map(_given, runs)), reason=reason)
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._client.release(body)
        except Exception as fault:  # noqa: BLE001 - the border: the leases run out and bring them back
            _log.warning("commands could not be given back", extra={"reason": str(fault)})

    async def leave(self) -> None:
        """Leave the pool."""
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._client.leave(Left(name=self._worker_id))
        except Exception as fault:  # noqa: BLE001 - the border: the server forgets us by itself
            _log.warning("the worker could not take leave", extra={"reason": str(fault)})


def _given(run: Run) -> HeldCommand:
    return HeldCommand(
        command_id=run.command.command_id,
        attempt=run.command.attempt,
        checkpoint=run.checkpoint() if run.checkpoint else None,
        is_started=run.is_started,
    )
