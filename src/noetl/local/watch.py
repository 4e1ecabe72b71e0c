"""Sees every commit of a local run: its log, its view, its end."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from noetl.engine.events import CommandIssued
from noetl.local.journal import LogUnwritable
from noetl.local.steps import Runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from noetl.engine.events import Recorded
    from noetl.local.journal import Journal


class Watch:
    """Sees every commit: keeps the log, tells whoever looks on, knows when all has ended."""

    def __init__(
        self, journal: Journal | None = None, on_event: Callable[[Recorded], None] | None = None
    ) -> None:
        self.runs = Runs()
        self.events: list[Recorded] = []
        self.journal = journal
        self.is_kept = False
        """Whether the events stay in memory, for whoever asks what happened."""
        self.pools: dict[str, None] = {}
        """The pools that have, or had, work."""
        self.on_pool: Callable[[str], None] | None = None
        self.ended = asyncio.Event()
        self.fault: LogUnwritable | None = None
        self._is_replay = False
        self._on_event = on_event

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """While a log is loaded: its events are known and written already."""
        self._is_replay = True
        try:
            yield
        finally:
            self._is_replay = False

    def commit(self, events: Sequence[Recorded]) -> None:
        """See the events of one commit before anybody is told of it."""
        if self.journal is not None and not self._is_replay:
            try:
                self.journal.commit(events)
            except OSError as fault:
                self.fault = LogUnwritable(
                    f"the event log cannot be written: {fault}", hint="is the disk full?"
                )
                self.ended.set()
                raise self.fault from fault
        if self.is_kept:
            self.events += events
        for recorded in events:
            self._see(recorded)
        if self.runs.unfinished():
            self.ended.clear()
        else:
            self.ended.set()

    def _see(self, recorded: Recorded) -> None:
        self.runs.fold(recorded)
        event = recorded.event
        if isinstance(event, CommandIssued) and event.pool is not None:
            self.pools[event.pool] = None
            if self.on_pool is not None:
                self.on_pool(event.pool)
        if self._on_event is not None and not self._is_replay:
            self._on_event(recorded)
