"""A log that was cut short becomes a store again: nothing that ended is run a second time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from noetl.clock import rfc3339
from noetl.dsl.parse import parse
from noetl.dsl.playbook import Playbook
from noetl.dsl.plugins import STORED
from noetl.engine.events import PlaybookStarted
from noetl.engine.fold import fold
from noetl.engine.program import prepare
from noetl.engine.state import State
from noetl.local.playbooks import PlaybookChanged
from noetl.store.views import change

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from noetl.clock import Clock
    from noetl.engine.events import Recorded
    from noetl.engine.program import Program
    from noetl.ids import Ids
    from noetl.store.base import Catalog, Change, Store

_WINDOW = timedelta(days=30)
_INSTANT = timedelta(milliseconds=1)


async def restore(store: Store, log: Sequence[Recorded], clock: Clock, ids: Ids) -> None:
    """Write every run of a log; what a worker held is lost at once and tried again."""
    runs: dict[str, list[Recorded]] = {}
    for recorded in log:
        runs.setdefault(recorded.execution_id, []).append(recorded)
    changes = [_freed(await _change(store.catalog, events, ids), clock) for events in runs.values()]
    await store.log.commit(changes)


async def _change(catalog: Catalog, events: Sequence[Recorded], ids: Ids) -> Change:
    start = _start(events)
    state = State(program=await _program(catalog, start))
    for recorded in events:
        fold(state, recorded)
    return change(0, state, events, ids.new)


async def _program(catalog: Catalog, start: PlaybookStarted) -> Program:
    entry = await catalog.get(start.catalog_id)
    model = None if entry is None else parse(entry.content, plugins=STORED).model
    if not isinstance(model, Playbook):
        raise PlaybookChanged(
            f"the playbook {start.path} of the log is not there, or was changed since",
            hint="restore its file as it was, or start a new run",
        )
    return prepare(model)


def _freed(made: Change, clock: Clock) -> Change:
    """The change with every lease ended, and the key that a child was started under."""
    now = clock.now()
    past = rfc3339(now - _INSTANT)
    commands = [
        msgspec.structs.replace(row, lease_until=past) if row.status == "CLAIMED" else row
        for row in made.commands
    ]
    start = _start(made.events)
    dedup = None
    if start.parent_execution_id is not None and start.dedup_key is not None:
        scope = f"parent:{start.parent_execution_id}"
        dedup = (scope, start.dedup_key, rfc3339(now + _WINDOW))
    return msgspec.structs.replace(made, commands=tuple(commands), dedup=dedup)


def _start(events: Iterable[Recorded]) -> PlaybookStarted:
    first = next(iter(events)).event
    if not isinstance(first, PlaybookStarted):
        raise TypeError("a run begins with its start")
    return first
