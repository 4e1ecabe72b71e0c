"""What of one partition was given out, and up to where everything of it is settled.

Pure: offsets may have holes, so "all before it" means all that were given, not all numbers.
"""

from __future__ import annotations

from collections import deque
from typing import Final

NEVER: Final = float("inf")


class Offsets:
    """The offsets of one partition since it was assigned to us."""

    def __init__(self) -> None:
        self._held: dict[int, float] = {}
        self._again: set[int] = set()
        self._done: set[int] = set()
        self._order: deque[int] = deque()
        self._first: int | None = None
        self._prefix: int | None = None
        self.committed: int | None = None
        """Where a reader who comes after us would begin, as far as we have told."""
        self.next: int | None = None
        """The offset after the highest one that was given."""

    @property
    def lowest_again(self) -> int | None:
        """The first of those that are to be given again."""
        return min(self._again, default=None)

    @property
    def next_due(self) -> float:
        """When the first of those that are held is held for too long."""
        return min(self._held.values(), default=NEVER)

    def give(self, offset: int, due: float) -> bool:
        """Give an offset out until then; not one that somebody holds or that is settled."""
        if offset in self._again:
            self._again.remove(offset)
        elif self.next is not None and offset < self.next:
            return False
        else:
            self._order.append(offset)
            self.next = offset + 1
            if self._first is None:
                self._first = offset
        self._held[offset] = due
        return True

    def settle(self, offset: int) -> bool:
        """It needs no further delivery; False for one that was never given."""
        if offset in self._held or offset in self._again:
            self._held.pop(offset, None)
            self._again.discard(offset)
            self._done.add(offset)
            return True
        return self._is_settled(offset)

    def refuse(self, offset: int) -> bool:
        """It is to be given again; one that is settled stays so."""
        if self._held.pop(offset, None) is not None:
            self._again.add(offset)
            return True
        return offset in self._again or self._is_settled(offset)

    def extend(self, offset: int, due: float) -> bool:
        """Somebody holds it until then."""
        if offset in self._held:
            self._held[offset] = due
            return True
        return offset in self._again or self._is_settled(offset)

    def lapsed(self, now: float) -> list[int]:
        """Those that were held for too long."""
        return [offset for offset, due in self._held.items() if due <= now]

    def to_commit(self) -> int | None:
        """Where a reader who comes after us may begin, when that is news."""
        while self._order and self._order[0] in self._done:
            offset = self._order.popleft()
            self._done.remove(offset)
            self._prefix = offset + 1
        return None if self._prefix == self.committed else self._prefix

    def _is_settled(self, offset: int) -> bool:
        if offset in self._done:
            return True
        is_ours = self._first is not None and offset >= self._first
        return is_ours and self._prefix is not None and offset < self._prefix
