"""Runs of other installations: their logs are folded here, and nothing is ever decided about them.

Their playbook is seldom in this catalog. What a fold asks of it is little: which steps there are.
So one is made from the steps that the log names.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.dsl.parse import parse
from noetl.dsl.playbook import Playbook
from noetl.edge.errors import Conflict, Unacceptable, UnknownPath
from noetl.engine.fold import fold
from noetl.engine.program import prepare
from noetl.engine.state import State
from noetl.server.ingest.cache import Cache, Entry
from noetl.store.upkeep import IMPORTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl.engine.events import Event
    from noetl.engine.program import Program
    from noetl.store.base import EventLog

_PAGE: Final = 1_000
_RUN: Final = "playbook"
"""The step of events that are of the whole run."""


class RunCache(Cache):
    """States of runs; one that was imported is read and never kept, so that nobody drives it."""

    def put(self, entry: Entry) -> Entry:
        """Keep the entry of a run that is driven here."""
        if entry.row is not None and entry.row.kind == IMPORTED:
            raise Conflict(
                f"execution {entry.row.execution_id} was imported",
                code="not_running",
                hint="it is driven where it was started",
            )
        return super().put(entry)

    async def read(self, execution_id: str, upto: int | None = None) -> Entry:
        """The state from the store alone; with `upto`, as it was at that `seq`."""
        try:
            return await super().read(execution_id, upto)
        except UnknownPath:
            row = await self._row(execution_id)
            if row.kind != IMPORTED:
                raise
        state = await folded(self._store.log, execution_id, upto)
        return Entry(state=state, row=row)


async def folded(log: EventLog, execution_id: str, upto: int | None = None) -> State:
    """The state of a foreign run, from its log: read once for its steps, once for the fold."""
    names: dict[str, None] = {}
    after = 0
    while page := await log.read(execution_id, after, _PAGE):
        names |= dict.fromkeys(steps_of(item.event for item in page))
        after = page[-1].seq
    state = State(program=program_of(tuple(names)))
    state.execution_id = execution_id
    while page := await log.read(execution_id, state.seq, _PAGE):
        for item in page:
            if upto is not None and item.seq > upto:
                return state
            fold(state, item)
    return state


def steps_of(events: Iterable[Event]) -> list[str]:
    """The steps that events name."""
    named = (getattr(event, "step", None) for event in events)
    return [name for name in named if isinstance(name, str) and name not in {"", _RUN}]


@lru_cache(maxsize=128)
def program_of(steps: tuple[str, ...]) -> Program:
    """A program that has these steps, and does nothing in them."""
    document = {
        "apiVersion": "noetl.io/v2",
        "kind": "Playbook",
        "metadata": {"name": "imported", "path": "imported"},
        "workflow": [{"step": name, "tool": {"kind": "noop"}} for name in steps or ("start",)],
    }
    parsed = parse(msgspec.json.encode(document).decode())
    if not isinstance(parsed.model, Playbook):
        raise Unacceptable("a step of the run has no name that a step could have")
    return prepare(parsed.model)
