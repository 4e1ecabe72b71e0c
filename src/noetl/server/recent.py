"""Runs that began here a moment ago, as they were committed.

Whoever starts a run mostly wants to see it at once; what was just written need not be read.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from noetl.engine.events import Recorded
    from noetl.store.base import Change, ExecutionRow

MOST_RUNS: Final = 64
MOST_EVENTS: Final = 64
"""Of a run; one that has more is read from the store."""


class _Begun:
    __slots__ = ("events", "row")

    def __init__(self, change: Change) -> None:
        self.row = change.execution
        self.events = list(change.events)


class Recent:
    """The last runs that this process began, each from its first event on."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Begun] = OrderedDict()

    def committed(self, change: Change) -> None:
        """Keep what a commit of this process wrote, if the run began here."""
        if change.expected_seq == 0 and len(change.events) <= MOST_EVENTS:
            self._kept[change.execution_id] = _Begun(change)
            if len(self._kept) > MOST_RUNS:
                self._kept.popitem(last=False)
            return
        begun = self._kept.get(change.execution_id)
        if begun is None:
            return
        follows = change.expected_seq == begun.events[-1].seq
        if follows and len(begun.events) + len(change.events) <= MOST_EVENTS:
            begun.events += change.events
        else:  # another server has written, or there is too much
            del self._kept[change.execution_id]

    def first_row(self, execution_id: str) -> ExecutionRow | None:
        """What a run was when it began."""
        begun = self._kept.get(execution_id)
        return None if begun is None else begun.row

    def after(self, execution_id: str, seq: int) -> list[Recorded] | None:
        """What followed a place in the log, as far as this process wrote it; none if not known."""
        begun = self._kept.get(execution_id)
        return None if begun is None else begun.events[seq:]
