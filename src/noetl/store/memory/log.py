"""The log: one commit writes events and everything that follows from them, or nothing."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from noetl.engine.events import TERMINAL
from noetl.store.locks import Locks
from noetl.store.memory import callbacks, commands, executions, outbox, subscriptions, timers
from noetl.store.memory.journal import Journal
from noetl.store.wellformed import check

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from noetl.engine.events import Recorded
    from noetl.store.base import Change, Commit
    from noetl.store.memory.tables import Tables

    Listener = Callable[[Sequence[Recorded]], None]


class MemoryLog:
    """The event log."""

    def __init__(self, tables: Tables, on_commit: Listener | None = None) -> None:
        self._tables = tables
        self._on_commit = on_commit
        self._holders = Locks()

    async def commit(
        self, changes: Sequence[Change], delivered: Sequence[str] = ()
    ) -> frozenset[str]:
        """Write all changes at once; the executions that lost a race are returned, unwritten."""
        for change in changes:
            check(change)
        won, lost = self._sorted_out(changes)
        for change in won:
            self._write(change)
        outbox.forget(self._tables, delivered)
        if self._on_commit is not None and won:
            self._on_commit([event for change in won for event in change.events])
        return lost

    @asynccontextmanager
    async def holding(self, execution_id: str) -> AsyncIterator[Commit]:
        """Let a writer be the only one: nothing else of this memory runs while it does not wait."""
        async with self._holders.of(execution_id):
            yield self.commit

    async def read(self, execution_id: str, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """Events in `seq` order."""
        journal = self._tables.journals.get(execution_id)
        return [] if journal is None else journal.read(after, limit)

    async def find(self, execution_id: str, event_id: str) -> Recorded | None:
        """The event of that id, if it is stored."""
        journal = self._tables.journals.get(execution_id)
        return None if journal is None else journal.find(event_id)

    async def located(self, event_id: str) -> Recorded | None:
        """The event of that id, whichever run it is of."""
        found = (journal.find(event_id) for journal in self._tables.journals.values())
        return next((event for event in found if event is not None), None)

    async def snapshot(self, execution_id: str) -> tuple[int, bytes] | None:
        """The newest snapshot and its `seq`; a cache, never needed."""
        return self._tables.snapshots.get(execution_id)

    def _sorted_out(self, changes: Sequence[Change]) -> tuple[list[Change], frozenset[str]]:
        won: list[Change] = []
        lost: set[str] = set()
        written: set[str] = set()
        keys: set[tuple[str, str]] = set()
        for change in changes:
            own = {key[:2] for key in executions.keys_of(change)}
            if change.execution_id in written or own & keys or not self._is_possible(change):
                lost.add(change.execution_id)
                continue
            won.append(change)
            written.add(change.execution_id)
            keys |= own
        return won, frozenset(lost)

    def _is_possible(self, change: Change) -> bool:
        """Whether the run is still where the writer saw it, and its keys still free."""
        journal = self._tables.journals.get(change.execution_id)
        if change.expected_seq != (0 if journal is None else journal.last_seq):
            return False
        if journal is not None:
            if journal.is_ended and any(isinstance(e.event, TERMINAL) for e in change.events):
                return False
            if any(journal.has(event.event_id) for event in change.events):
                return False
        now = change.execution.updated_at
        return all(
            executions.holder_of(self._tables, scope, key, now) is None
            for scope, key, _ in executions.keys_of(change)
        )

    def _write(self, change: Change) -> None:
        tables = self._tables
        journal = tables.journals.get(change.execution_id)
        if journal is None:
            journal = tables.journals[change.execution_id] = Journal()
        journal.append(change.events)
        if any(isinstance(event.event, TERMINAL) for event in change.events):
            journal.is_ended = True
        if change.snapshot is not None:
            tables.snapshots[change.execution_id] = (journal.last_seq, change.snapshot)
        was_paused = executions.is_paused(tables, change.execution_id)
        executions.write(tables, change)
        commands.write(tables, change)
        timers.write(tables, change)
        outbox.write(tables, change)
        callbacks.write(tables, change)
        subscriptions.ended(tables, change)
        if was_paused != executions.is_paused(tables, change.execution_id):
            commands.turned(tables, change.execution_id)
            timers.turned(tables, change.execution_id)
