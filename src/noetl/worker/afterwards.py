"""What follows a report: done once when the server has stored it, and never otherwise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.worker.sending import Item

Work = Callable[[], Awaitable[None]]

_STORED: Final = frozenset({"stored", "duplicate"})
_WELL: Final = frozenset({"call.done", "command.parked"})

_log = logging.getLogger("noetl.worker")


class Afterwards:
    """Work that waits for the answers to reports; it lives in memory alone.

    A worker that dies with it leaves things as if the report had never been stored: a message that
    was not acknowledged is delivered again.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[Work, ...]] = {}
        self._running: set[asyncio.Task[None]] = set()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self._waiting and not self._running

    def expect(self, event_id: str, works: Sequence[Work]) -> None:
        """Do this when the report of that id was stored."""
        if works:
            self._waiting[event_id] = tuple(works)

    def answered(self, item: Item, outcome: str) -> None:
        """The server has spoken about a report."""
        works = self._waiting.pop(item.event_id, ()) if self._waiting else ()
        if outcome not in _STORED or item.report.event_type not in _WELL:
            return
        for work in works:
            task = asyncio.get_running_loop().create_task(_done(work, item.report.step))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def done(self) -> None:
        """Wait until everything under way is done."""
        if self._running:
            await asyncio.wait(self._running)

    def end(self) -> None:
        """Nothing more is done."""
        self._waiting.clear()
        for task in self._running:
            task.cancel()


async def _done(work: Work, step: str) -> None:
    try:
        await work()
    except Exception as fault:  # noqa: BLE001 - the border: the report is stored, whatever this does
        told = {"step": step, "reason": str(fault)}
        _log.warning("what follows a report could not be done", extra=told)
