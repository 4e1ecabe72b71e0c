"""How often a request's progress is told: ten times a second at most, and always the newest."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from noetl.errors import NoetlError
from noetl.gateway import frames

if TYPE_CHECKING:
    from noetl.gateway.requests.parts import Parts
    from noetl.gateway.requests.record import Record

EVERY_S: Final = 0.1
MOST: Final = 10_000
"""Requests whose pace is known at once."""
_log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Paced:
    """The pace of one request."""

    next_at: float = 0.0
    newest: bytes | None = None
    """What waits for its time."""
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class Pace:
    """Holds progress back that comes too often."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._known: dict[str, _Paced] = {}

    async def send(
        self, record: Record, step: str | None, text: str | None, share: float | None
    ) -> None:
        """Tell how far a request is, now or when its time has come."""
        paced = self._known.get(record.request_id)
        if paced is None:
            self._make_room()
            paced = self._known[record.request_id] = _Paced()
        frame = frames.progress(record.request_id, record.execution_id, step, text, share)
        now = self._parts.clock.monotonic()
        if paced.task is None and now >= paced.next_at:
            paced.next_at = now + EVERY_S
            await self._told(record, frame)
            return
        paced.newest = frame
        if paced.task is None:
            paced.task = asyncio.create_task(self._later(record, paced, paced.next_at - now))

    def drop(self, request_id: str) -> None:
        """The request has ended: what waits is of no use."""
        paced = self._known.pop(request_id, None)
        if paced is not None and paced.task is not None:
            paced.task.cancel()

    def close(self) -> None:
        """Let nothing wait."""
        for request_id in list(self._known):
            self.drop(request_id)

    async def _later(self, record: Record, paced: _Paced, wait_s: float) -> None:
        try:
            await asyncio.sleep(wait_s)
            frame, paced.newest, paced.task = paced.newest, None, None
            paced.next_at = self._parts.clock.monotonic() + EVERY_S
            current = await self._parts.records.find(record.request_id)
            if frame is not None and current is not None and current.record.is_open:
                await self._told(record, frame)
        except NoetlError as fault:  # the next one says more
            _log.warning("progress was not told", extra={"code": fault.code})

    async def _told(self, record: Record, frame: bytes) -> None:
        name = f"progress/{self._parts.ids.new()}"
        await self._parts.ends.send(record, frame, name)

    def _make_room(self) -> None:
        """Forget the oldest whose time has come; an empty place is as good as a past one."""
        if len(self._known) >= MOST:
            for request_id, paced in list(self._known.items()):
                if paced.task is None:
                    del self._known[request_id]
                    return
            self.drop(next(iter(self._known)))
