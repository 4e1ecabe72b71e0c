"""The state after an event of a log, as a fork takes it over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.engine import events as ev
from noetl.engine.fold import fold
from noetl.engine.fork import belongs
from noetl.engine.snapshot import as_data
from noetl.engine.state import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.engine.events import Recorded
    from noetl.engine.program import Program


def snapshot_at(program: Program, log: Sequence[Recorded], seq: int) -> dict[str, Any]:
    """The state after an event, as data; what one decision wrote together stays together."""
    while seq < len(log) and belongs(log[seq - 1].event, log[seq].event):
        seq += 1
    state = State(program=program)
    for item in log[:seq]:
        if isinstance(item.event, ev.TERMINAL):
            break  # a fork of a run that has ended goes on just before its end
        fold(state, item)
    return as_data(state)
