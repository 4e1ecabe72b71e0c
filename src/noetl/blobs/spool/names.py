"""Pages of names from places that tell all of their names at once, and in no order."""

from __future__ import annotations

from bisect import bisect_right
from heapq import nsmallest
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MOST_KEPT: Final = 20_000
"""So many names are kept for the next page, whatever there are."""


class Names:
    """The names behind the last page, so that the next one needs no further look."""

    def __init__(self) -> None:
        self._folder = ""
        self._last = ""
        self._kept: list[str] = []

    def has_behind(self, folder: str, after: str) -> bool:
        """Whether the next page is known."""
        return bool(self._kept) and (folder, after) == (self._folder, self._last)

    def behind(
        self, folder: str, after: str, limit: int, look: Callable[[], Iterable[str]]
    ) -> list[str]:
        """The first names behind one; those of a page that follows on one may be of before."""
        kept = self._kept
        if not self.has_behind(folder, after):
            most = max(limit, MOST_KEPT)
            kept = nsmallest(most, (name for name in look() if name > after))
        page = kept[:limit]
        self._folder, self._kept = folder, kept[bisect_right(kept, page[-1]) :] if page else []
        self._last = page[-1] if page else ""
        return page
