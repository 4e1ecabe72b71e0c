"""Reports on their way: those that wait in memory, and the batch whose answer is not known."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from noetl.api.events import MOST_EVENTS
from noetl.worker.outbox import Kept

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from noetl.api.events import Report

MOST_BYTES: Final = 2 << 20
MOST_QUEUED: Final = 512
MOST_QUEUED_BYTES: Final = 16 << 20


@dataclass(slots=True, kw_only=True)
class Item:
    """A report on its way."""

    report: Report
    size_bytes: int
    receipt: asyncio.Future[str] | None = None
    is_last_word: bool = False
    """It says that another report was rejected."""
    parcels: tuple[str, ...] = ()
    """Files whose contents were stored for it."""

    @property
    def event_id(self) -> str:
        """The same for every try to send it."""
        return str(self.report.event_id)

    def told(self, report: Report, parcel: str) -> Item:
        """The same report in other words, after a file of it was stored."""
        return replace(self, report=report, parcels=(*self.parcels, parcel))

    def kept(self) -> Kept:
        """The report as it lies on the disk."""
        return Kept(report=self.report, size_bytes=self.size_bytes, is_last_word=self.is_last_word)


@dataclass(slots=True)
class Batch:
    """What one request carries; it is sent again as it was, for the answer is to be the same."""

    items: list[Item]
    free_slots: int
    is_on_disk: bool = False


class Queue:
    """Reports in the order in which they were made."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._size = 0
        self._most = MOST_EVENTS

    def __len__(self) -> int:
        """How many wait."""
        return len(self._items)

    @property
    def most(self) -> int:
        """How many events the next request may have."""
        return self._most

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more work should be taken."""
        return len(self._items) > MOST_QUEUED or self._size > MOST_QUEUED_BYTES

    def put(self, item: Item) -> None:
        """One more, at the end."""
        self._items.append(item)
        self._size += item.size_bytes

    def put_back(self, items: Iterable[Item]) -> None:
        """These come first again."""
        for item in reversed(list(items)):
            self._items.appendleft(item)
            self._size += item.size_bytes

    def all(self) -> list[Item]:
        """Everything that waits; it stays until it is taken."""
        return list(self._items)

    def take(self, count: int) -> list[Item]:
        """The first so many."""
        taken = [self._items.popleft() for _ in range(count)]
        self._size -= sum(item.size_bytes for item in taken)
        return taken

    def batch(self) -> list[Item]:
        """What fits in one request, at least one."""
        count = size = 0
        for item in self._items:
            size += item.size_bytes
            if (count and size > MOST_BYTES) or count == self._most:
                break
            count += 1
        return self.take(count)

    def narrow(self, refused: int) -> None:
        """A batch was refused as a whole: the next ones are smaller, until the cause is alone."""
        self._most = max(1, refused // 2)

    def widen(self) -> None:
        """A batch was taken."""
        self._most = min(MOST_EVENTS, self._most * 2)
