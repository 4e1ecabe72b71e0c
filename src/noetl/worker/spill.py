"""The way of reports to the outbox and back, while the server is away."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from noetl.worker.sending import Item
from noetl.worker.shelf import OutboxDamaged, OutboxFull

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noetl.worker.outbox import Outbox
    from noetl.worker.sending import Batch, Queue

OVERFLOW: Final = 0.9
"""The share of its limit from which the outbox takes nothing that is still to be made."""

_log = logging.getLogger("noetl.worker")


class Spill:
    """Keeps reports on the disk; without an outbox they stay in memory."""

    def __init__(self, outbox: Outbox | None, on_overflow: Callable[[], None]) -> None:
        self.lost = 0
        self.is_disk_full = False
        self._outbox = outbox
        self._on_overflow = on_overflow
        self._awaited: dict[str, Item] = {}
        """Reports on the disk whose answer somebody of this run waits for."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing lies on the disk."""
        return self._outbox is None or not self._outbox.events

    @property
    def events(self) -> int:
        """How many reports lie on the disk."""
        return 0 if self._outbox is None else self._outbox.events

    @property
    def size_bytes(self) -> int:
        """How much lies on the disk."""
        return 0 if self._outbox is None else self._outbox.size_bytes

    @property
    def damaged(self) -> int:
        """How many files were set aside."""
        return 0 if self._outbox is None else self._outbox.damaged

    async def save(self, queue: Queue, batch: Batch | None = None) -> None:
        """Write down what waits, first the batch that was sent in vain."""
        outbox = self._outbox
        if outbox is None:
            return
        sent = batch.items if batch is not None and not batch.is_on_disk else []
        waiting = queue.all()
        if not sent and not waiting:
            return
        try:
            await outbox.keep(item.kept() for item in (*sent, *waiting))
        except OutboxFull as fault:
            if not self.is_disk_full:
                _log.error("reports stay in memory", extra={"reason": str(fault)})
            self.is_disk_full = True
            return
        except OutboxDamaged as fault:
            self._damaged(fault)
            return  # the next try finds a new file
        self.is_disk_full = False
        if batch is not None:
            batch.is_on_disk = True
        for item in (*sent, *queue.take(len(waiting))):
            if item.receipt is not None:
                self._awaited[item.event_id] = item
        if outbox.share >= OVERFLOW:
            self._on_overflow()

    async def oldest(self, most: int, most_bytes: int) -> list[Item]:
        """What is to be sent next."""
        if self._outbox is None:
            return []
        try:
            found = await self._outbox.oldest(most, most_bytes)
        except OutboxFull as fault:
            _log.error("the outbox cannot be read", extra={"reason": str(fault)})
            return []
        except OutboxDamaged as fault:
            self._damaged(fault)
            return []
        return [
            self._awaited.get(str(kept.report.event_id))
            or Item(report=kept.report, size_bytes=kept.size_bytes, is_last_word=kept.is_last_word)
            for kept in found
        ]

    async def drop(self, items: Sequence[Item]) -> bool:
        """The server has these; whether the disk could be told."""
        if self._outbox is None:
            return True
        for item in items:
            self._awaited.pop(item.event_id, None)
        try:
            await self._outbox.drop([item.event_id for item in items])
        except OutboxFull:
            self.is_disk_full = True
            return False
        except OutboxDamaged as fault:
            self._damaged(fault)
        return True

    def _damaged(self, fault: OutboxDamaged) -> None:
        """Whatever the file held is lost; nobody waits for it any more."""
        self.lost += fault.events
        awaited, self._awaited = self._awaited, {}
        for item in awaited.values():
            if item.receipt is not None and not item.receipt.done():
                item.receipt.set_result("rejected")
        _log.error(
            "the outbox is damaged", extra={"reason": str(fault), "event_ids": list(awaited)}
        )
