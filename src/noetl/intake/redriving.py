"""Dead letters that somebody wants to be sent again or dropped: done by whoever holds the spool."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from noetl.blobs.spool.base import SpoolError
from noetl.engine.subscriptions import DISCARD_COMPLETED, REDRIVE_COMPLETED
from noetl.intake.letters import Wanted, discard, redrive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from noetl.blobs.spool.spool import Spool
    from noetl.clock import Clock
    from noetl.intake.breakers import Tell

AGAIN_S: Final = 5.0
MOST_KNOWN: Final = 1_000
_log: Final = logging.getLogger(__name__)


class Letters:
    """Does what was asked for, request by request."""

    def __init__(self, spool: Spool, clock: Clock, tell: Tell, wake: Callable[[], None]) -> None:
        """`wake` tells that something waits again."""
        self._spool = spool
        self._clock = clock
        self._tell = tell
        self._wake = wake
        self._wanted: dict[str, Mapping[str, Any]] = {}
        self._done: dict[str, None] = {}
        self._came = asyncio.Event()

    def wanted(self, requests: Sequence[Mapping[str, Any]]) -> None:
        """These requests stand in the log, and no others; those that are done are passed over."""
        named = {str(request.get("request_id", "")): request for request in requests}
        self._wanted = {
            name: request for name, request in named.items() if name and name not in self._done
        }
        if self._wanted:
            self._came.set()

    @property
    def is_done(self) -> bool:
        """Whether nothing is wanted that was not done."""
        return not self._wanted

    async def run(self, may_work: Callable[[], bool]) -> None:
        """Do what is wanted, until cancelled."""
        while True:
            await self._came.wait()
            self._came.clear()
            for name in list(self._wanted):
                request = self._wanted.get(name)
                if request is None or not may_work():
                    continue
                try:
                    is_done = await self._do(name, request, may_work)
                except SpoolError as fault:
                    _log.warning("dead letters wait", extra={"code": fault.code})
                    break
                if not is_done:
                    continue
                self._wanted.pop(name, None)
                self._done[name] = None
                while len(self._done) > MOST_KNOWN:
                    del self._done[next(iter(self._done))]
            if self._wanted:
                await asyncio.sleep(AGAIN_S)
                self._came.set()

    async def _do(
        self, name: str, request: Mapping[str, Any], may_work: Callable[[], bool]
    ) -> bool:
        """Do what can be done of one; whether nothing of it is left for later."""

        def may_go() -> bool:
            return name in self._wanted and may_work()

        wanted, is_discard = Wanted.of(request, may_go), request.get("action") == "discard"
        if is_discard:
            found = await discard(self._spool, wanted, str(request.get("reason") or ""))
        else:
            rate = request.get("rate")
            found = await redrive(self._spool, wanted, self._clock, float(rate) if rate else None)
            self._wake()
        told = {"done": found.done, "missing": found.missing, "corrupt": found.corrupt}
        _log.info("dead letters", extra={"action": request.get("action"), **told})
        if found.left:
            return False
        event = DISCARD_COMPLETED if is_discard else REDRIVE_COMPLETED
        self._tell(event, {"request_id": name, **told})
        return True
