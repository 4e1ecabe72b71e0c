"""Keys in the order of ranks that change: a heap whose stale entries are skipped, not searched."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")

_SLACK: Final = 64
Rank = tuple[Any, ...]


class Ranked(Generic[K]):
    """Every operation costs O(log n), whatever was put and dropped before."""

    def __init__(self) -> None:
        self._live: dict[K, tuple[Rank, int, K]] = {}
        self._heap: list[tuple[Rank, int, K]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, key: K) -> bool:
        return key in self._live

    def put(self, key: K, *rank: str | int) -> None:
        """Rank a key, or rank it anew."""
        self._count += 1
        entry = (rank, self._count, key)
        self._live[key] = entry
        heappush(self._heap, entry)
        self._compact()

    def drop(self, key: K) -> None:
        """Forget a key, if it is there."""
        if self._live.pop(key, None) is not None:
            self._compact()

    def first(self) -> tuple[Rank, K] | None:
        """The lowest rank and its key."""
        heap = self._heap
        while heap:
            entry = heap[0]
            if self._live.get(entry[2]) is entry:
                return entry[0], entry[2]
            heappop(heap)
        return None

    def take(self) -> tuple[Rank, K] | None:
        """Remove the lowest rank and its key."""
        found = self.first()
        if found is not None:
            heappop(self._heap)
            del self._live[found[1]]
        return found

    def lowest(self, limit: int, below: Rank | None = None) -> list[tuple[Rank, int, K]]:
        """The first entries, as rank, order of arrival and key; they stay."""
        passed: list[tuple[Rank, int, K]] = []
        while len(passed) < limit:
            found = self.first()
            if found is None or (below is not None and found[0] >= below):
                break
            passed.append(heappop(self._heap))
        for entry in passed:
            heappush(self._heap, entry)
        return passed

    def keys(self, limit: int, below: Rank | None = None) -> list[K]:
        """The keys of the lowest ranks; they stay."""
        return [entry[2] for entry in self.lowest(limit, below)]

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            self._heap = list(self._live.values())
            heapify(self._heap)


def age(text: str) -> tuple[int, str]:
    """The order of ids as numbers, for texts of digits of any length."""
    return len(text), text
