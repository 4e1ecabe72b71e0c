"""Claims that this process committed a moment ago.

A worker that was given a command asks for its secrets at once; what was just written need not be
read. Another server may have ended such a claim, so it is believed for a second and no longer.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl.clock import Clock
    from noetl.store.base import CommandRow

BELIEVED_S: Final = 1.0
MOST: Final = 10_000


class Claimed:
    """The last claims, as they were written."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, tuple[CommandRow, float]] = OrderedDict()

    def committed(self, rows: Iterable[CommandRow]) -> None:
        """Keep the claims among rows that this process has written, and drop what has ended."""
        kept = self._kept
        for row in rows:
            kept.pop(row.command_id, None)
            if row.status == "CLAIMED":
                kept[row.command_id] = (row, self._clock.monotonic())
        while len(kept) > MOST:
            kept.popitem(last=False)

    def get(self, command_id: str) -> CommandRow | None:
        """A claim that need not be read."""
        found = self._kept.get(command_id)
        if found is None:
            return None
        row, since = found
        return row if self._clock.monotonic() - since < BELIEVED_S else None

    def drop(self, command_id: str) -> None:
        """A claim has ended otherwise."""
        self._kept.pop(command_id, None)
