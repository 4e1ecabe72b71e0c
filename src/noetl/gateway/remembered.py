"""What is believed for a moment: a bounded number of facts that grow old."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from noetl.clock import Clock

T = TypeVar("T")

MOST: Final = 10_000


class Remembered(Generic[T]):
    """Facts by name; the oldest make room for new ones."""

    def __init__(self, clock: Clock, kept_s: float, most: int = MOST) -> None:
        self._clock = clock
        self._kept_s = kept_s
        self._most = most
        self._kept: OrderedDict[str, tuple[float, T]] = OrderedDict()

    def get(self, name: str) -> T | None:
        """A fact that is not too old."""
        found = self._kept.get(name)
        if found is None:
            return None
        if self._clock.monotonic() - found[0] >= self._kept_s:
            del self._kept[name]
            return None
        return found[1]

    def put(self, name: str, fact: T) -> None:
        """Believe something from now on."""
        self._kept[name] = (self._clock.monotonic(), fact)
        self._kept.move_to_end(name)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def drop(self, name: str) -> None:
        """Believe it no longer."""
        self._kept.pop(name, None)

    def __len__(self) -> int:
        return len(self._kept)
