"""Folded states of the runs that are under way: bounded, and never more than a copy of the log."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.edge.errors import UnknownExecution
from noetl.engine.fold import fold
from noetl.engine.snapshot import load as load_snapshot
from noetl.engine.state import State

if TYPE_CHECKING:
    from noetl.engine.program import Program
    from noetl.server.ingest.programs import Programs
    from noetl.store.base import ExecutionRow, Store

MOST_STATES: Final = 10_000
MOST_BYTES: Final = 512 * 1024 * 1024
"""Of all states together, as they would be written."""
EVENT_BYTES: Final = 64
"""What an event adds to a state besides the values that it brings."""
MOST_ENDED: Final = 500
"""Runs that have ended: they are asked for a little while, and then hardly ever."""
_PAGE: Final = 1_000
_encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True, kw_only=True)
class Entry:
    """A run as the server holds it."""

    state: State
    row: ExecutionRow | None = None
    """Its read model as last written; none before the first commit."""
    snapshot_seq: int = 0
    snapshot_bytes: int = 0
    later_bytes: int = 0
    """What was told since the snapshot."""
    counted_bytes: int = 0
    """What of it the cache has counted."""
    defect: str = ""
    """What the engine last stumbled over."""
    defects: int = 0
    """How often in a row."""


class Cache:
    """States by execution, the least used ones dropped first."""

    def __init__(
        self,
        store: Store,
        programs: Programs,
        most: int = MOST_STATES,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._store = store
        self._programs = programs
        self._most = most
        self._most_bytes = most_bytes
        self.bytes = 0
        """How large the states are together, as they would be written."""
        self._kept: OrderedDict[str, Entry] = OrderedDict()
        self._ended: deque[str] = deque()

    def peek(self, execution_id: str) -> Entry | None:
        """The entry if it is at hand."""
        found = self._kept.get(execution_id)
        if found is not None:
            self._kept.move_to_end(execution_id)
        return found

    async def get(self, execution_id: str) -> Entry:
        """The entry, made from snapshot and log when it is not at hand."""
        return self.peek(execution_id) or self.put(await self.read(execution_id))

    async def read(self, execution_id: str, upto: int | None = None) -> Entry:
        """The state from the store alone; with `upto`, as it was at that `seq`."""
        row = await self._row(execution_id)
        program = await self._programs.get(row.catalog_id)
        entry = await self._base(execution_id, program, upto)
        await self._follow(entry, execution_id, upto)
        while upto is None and row.last_seq != entry.state.seq:  # another server wrote in between
            row = await self._row(execution_id)
            await self._follow(entry, execution_id, upto)
        entry.row = row
        return entry

    async def _row(self, execution_id: str) -> ExecutionRow:
        row = await self._store.executions.get(execution_id)
        if row is None:
            raise UnknownExecution(f"there is no execution {execution_id}")
        return row

    async def _base(self, execution_id: str, program: Program, upto: int | None) -> Entry:
        kept = await self._store.log.snapshot(execution_id)
        if kept is None or (upto is not None and kept[0] > upto):
            return begun(program)
        seq, data = kept
        state = load_snapshot(program, data)
        if state is None:
            return begun(program)
        return Entry(state=state, snapshot_seq=seq, snapshot_bytes=len(data))

    async def _follow(self, entry: Entry, execution_id: str, upto: int | None) -> None:
        while True:
            page = await self._store.log.read(execution_id, entry.state.seq, _PAGE)
            for item in page:
                if upto is not None and item.seq > upto:
                    return
                fold(entry.state, item)
                entry.later_bytes += EVENT_BYTES + len(_encode(item.event))
            if len(page) < _PAGE:
                return

    def put(self, entry: Entry) -> Entry:
        """Keep an entry."""
        execution_id = entry.state.execution_id
        self.drop(execution_id)
        self._kept[execution_id] = entry
        self._count(entry)
        return entry

    def grew(self, entry: Entry, by: int) -> None:
        """A state has taken in so many bytes."""
        entry.later_bytes += by
        if self._kept.get(entry.state.execution_id) is entry:
            self._count(entry)

    def _count(self, entry: Entry) -> None:
        """Count an entry as it is now, and drop what is too much; the last one used stays."""
        size = entry.snapshot_bytes + entry.later_bytes
        self.bytes += size - entry.counted_bytes
        entry.counted_bytes = size
        kept = self._kept
        while len(kept) > self._most or (self.bytes > self._most_bytes and len(kept) > 1):
            self.drop(next(iter(kept)))

    def retire(self, execution_id: str) -> None:
        """Let a run that has ended be the first to go; of such ones only the latest are kept."""
        if execution_id not in self._kept:
            return
        self._kept.move_to_end(execution_id, last=False)
        self._ended.append(execution_id)
        if len(self._ended) > MOST_ENDED:
            oldest = self._kept.get(self._ended.popleft())
            if oldest is not None and oldest.state.terminal is not None:
                self.drop(oldest.state.execution_id)

    def drop(self, execution_id: str) -> None:
        """Forget a state that may differ from the log."""
        gone = self._kept.pop(execution_id, None)
        if gone is not None:
            self.bytes -= gone.counted_bytes
            gone.counted_bytes = 0


def begun(program: Program) -> Entry:
    """A run that has no event yet."""
    return Entry(state=State(program=program))
