"""How much one commit may hold: as much as takes no longer than other work should wait.

What a commit takes is partly there for an empty one, the way to the disk, and partly grows with
what is written. The first part is learned from small commits, the second from large ones, so that
neither a busy machine nor a store that is far away makes slices too large or too small.
"""

from __future__ import annotations

from typing import Final

LEAST_STARTS: Final = 16
MOST_STARTS: Final = 64
TARGET_S: Final = 0.010
"""What the runs of a slice may add to a commit."""
SHARE: Final = 2.0
"""Or so many times what the commit takes anyway: smaller slices would lose more than they spare."""
LEAST_PIECE: Final = 2
PIECE_S: Final = 0.002
"""What a piece for a flooded pool may add to a commit while others work."""
SMALL: Final = 4
"""Posts of a commit that tells what an empty one takes."""
LARGE: Final = 12
"""Posts of a commit that tells what each of them adds."""
_WEIGHT: Final = 0.2


class Pace:
    """Learns from commits."""

    def __init__(self) -> None:
        self._bare_s: float | None = None
        self._each_s: float | None = None

    @property
    def starts(self) -> int:
        """Runs of a slice."""
        if not self._each_s:
            return MOST_STARTS
        most_s = max(TARGET_S, SHARE * (self._bare_s or 0.0))
        return min(MOST_STARTS, max(LEAST_STARTS, int(most_s / self._each_s)))

    @property
    def piece(self) -> int:
        """Posts of a piece."""
        if not self._each_s:
            return 2 * LEAST_PIECE
        return min(MOST_STARTS, max(LEAST_PIECE, int(PIECE_S / self._each_s)))

    def took(self, posts: int, seconds: float) -> None:
        """Note a commit."""
        if posts <= SMALL:
            self._bare_s = _mean(self._bare_s, seconds)
        elif posts >= LARGE:
            each_s = max(0.0, seconds - (self._bare_s or 0.0)) / posts
            self._each_s = _mean(self._each_s, each_s)


def _mean(before: float | None, value: float) -> float:
    return value if before is None else before + _WEIGHT * (value - before)
