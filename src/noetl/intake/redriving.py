"""Dead letters that somebody wants to be sent again or dropped: done by whoever holds the spool."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from noetl.blobs.spool.base import SpoolError, SpoolFull
from noetl.intake.letters import discard, redrive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from noetl.blobs.spool.spool import Spool
    from noetl.clock import Clock

AGAIN_S: Final = 5.0
MOST_KNOWN: Final = 1_000
_log: Final = logging.getLogger(__name__)


class Letters:
    """Does what was asked for, request by request."""

    def __init__(self, spool: Spool, clock: Clock, wake: Callable[[], None]) -> None:
        """`wake` tells that something waits again."""
        self._spool = spool
        self._clock = clock
        self._wake = wake
        self._wanted: dict[str, Mapping[str, Any]] = {}
        self._done: dict[str, None] = {}
        self._came = asyncio.Event()

    def wanted(self, requests: Sequence[Mapping[str, Any]]) -> None:
        """These requests stand in the log; those that are done are passed over."""
        for request in requests:
            name = str(request.get("request_id", ""))
            if name and name not in self._done and name not in self._wanted:
                self._wanted[name] = request
                self._came.set()

    async def run(self, may_work: Callable[[], bool]) -> None:
        """Do what is wanted, until cancelled."""
        while True:
            await self._came.wait()
            self._came.clear()
            for name in list(self._wanted):
                if not may_work():
                    break
                try:
                    await self._do(self._wanted[name])
                except (SpoolError, SpoolFull) as fault:
                    _log.warning("dead letters wait", extra={"code": fault.code})
                    break
                del self._wanted[name]
                self._done[name] = None
                while len(self._done) > MOST_KNOWN:
                    del self._done[next(iter(self._done))]
            if self._wanted:
                await asyncio.sleep(AGAIN_S)
                self._came.set()

    async def _do(self, request: Mapping[str, Any]) -> None:
        refs = None if request.get("all") else [str(ref) for ref in request.get("refs") or ()]
        if request.get("action") == "discard":
            found = await discard(self._spool, refs, str(request.get("reason") or ""))
        else:
            rate = request.get("rate")
            found = await redrive(self._spool, refs, self._clock, float(rate) if rate else None)
            self._wake()
        told = {"done": found.done, "missing": found.missing, "corrupt": found.corrupt}
        _log.info("dead letters", extra={"action": request.get("action"), **told})
        if found.left:
            raise SpoolFull("there is no room for all of them yet")
