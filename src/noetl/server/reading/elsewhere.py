"""Word from the bus that another server has written to a run that somebody here follows."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from noetl.bus import subjects
from noetl.bus.base import BusGone

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.bus.base import Bus

    Told = Callable[[int | None], None]

POLL_S: Final = 2.0
"""How often the log is looked at while the bus tells nothing of a run."""
RARELY: Final = 5
"""How many times rarer it is looked at while the bus does."""
PATIENCE_S: Final = 0.05
"""How long a reader waits for commits of this server, which need no bus."""
_SEQ: Final = re.compile(rb'"last_seq":(\d+)')
_HEAD: Final = 200


def last_seq(payload: bytes) -> int | None:
    """The place of the last event that a message of the bus stands for."""
    found = _SEQ.search(payload, 0, _HEAD)
    return None if found is None else int(found[1])


@dataclass(slots=True, eq=False)
class _Run:
    """A run that readers have waited for in vain."""

    readers: dict[Told, None] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    is_heard: bool = False
    has_words: bool = False

    def tell(self, seq: int | None) -> None:
        for told in list(self.readers):
            told(seq)


class Elsewhere:
    """What the bus tells of runs that are followed here; readers of a run share one listener.

    Nobody listens as long as commits of this server come, which need no bus.
    """

    def __init__(self, bus: Bus | None) -> None:
        self._bus = bus
        self._runs: dict[str, _Run] = {}

    def patience_s(self, execution_id: str, told: Told) -> float:
        """How long a reader is to wait until it calls `missed`."""
        if self._bus is None:
            return POLL_S
        run = self._runs.get(execution_id)
        if run is None or told not in run.readers:
            return PATIENCE_S
        return POLL_S * RARELY if run.has_words else POLL_S

    def missed(self, execution_id: str, told: Told) -> bool:
        """Nothing came in that time: whether to look at the log now.

        From now on the reader is told how far the run has come, first without a place when the
        listener is there: what came before it is in the log.
        """
        if self._bus is None:
            return True
        run = self._runs.setdefault(execution_id, _Run())
        has_waited = told in run.readers
        run.readers[told] = None
        if run.task is None:
            run.task = asyncio.create_task(self._listen(self._bus, execution_id, run))
        return run.is_heard or has_waited

    def leave(self, execution_id: str, told: Told) -> None:
        """A reader has gone."""
        run = self._runs.get(execution_id)
        if run is None or told not in run.readers:
            return
        del run.readers[told]
        if not run.readers:
            del self._runs[execution_id]
            if run.task is not None:
                run.task.cancel()

    async def _listen(self, bus: Bus, execution_id: str, run: _Run) -> None:
        try:
            async with bus.listen(subjects.events_of(execution_id)) as words:
                run.is_heard = True
                run.tell(None)
                async for word in words:
                    run.has_words = True
                    run.tell(last_seq(word.payload))
        except BusGone:
            pass  # whoever misses something next tries again
        run.task, run.is_heard, run.has_words = None, False, False
