"""Who is woken by a commit: loops that sleep, readers that wait, and workers that must stop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from noetl.store.base import Change

MOST_HINTS: Final = 100_000
MOST_STOPS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Hint:
    """A command that nobody has claimed yet."""

    execution_id: str
    pool: str
    command_id: str
    step: str
    attempt: int


class Signals:
    """Events of one process; each only says that something changed, the store says what."""

    def __init__(self) -> None:
        self.timers = asyncio.Event()
        self.outbox = asyncio.Event()
        self.leases = asyncio.Event()
        self.hints = asyncio.Event()
        self.unhinted: deque[Hint] = deque(maxlen=MOST_HINTS)
        self.held: set[str] = set()
        """Commands that workers hold, as far as this process knows."""
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._stops: OrderedDict[str, set[str]] = OrderedDict()
        self._stops_by_pool: dict[str, list[str]] = {}

    def committed(self, changes: Iterable[Change]) -> None:
        """Wake whoever a commit concerns."""
        for change in changes:
            if change.timers:
                self.timers.set()
            if change.outgoing:
                self.outbox.set()
            for row in change.commands:
                if row.status == "CLAIMED":
                    self.held.add(row.command_id)
                    self.leases.set()
                else:
                    self.held.discard(row.command_id)
            for watcher in self._watchers.get(change.execution_id, ()):
                watcher.set()

    def hint(self, hint: Hint) -> None:
        """Remember to tell the pool."""
        self.unhinted.append(hint)
        self.hints.set()

    def stop(self, worker_id: str, pool: str, command_id: str) -> None:
        """Remember to tell a worker that its command is wanted no more."""
        self.held.discard(command_id)
        self._stops_by_pool.setdefault(pool, []).append(command_id)
        self.hints.set()
        kept = self._stops.setdefault(worker_id, set())
        kept.add(command_id)
        if len(self._stops) > MOST_STOPS:
            self._stops.popitem(last=False)

    def stops_of(self, worker_id: str) -> tuple[str, ...]:
        """What a worker is to stop; told once, a heartbeat finds it again."""
        found = self._stops.pop(worker_id, None)
        return tuple(sorted(found)) if found else ()

    def taken_stops(self) -> dict[str, list[str]]:
        """Commands to stop by pool, for a word on the bus."""
        taken, self._stops_by_pool = self._stops_by_pool, {}
        return taken

    def watch(self, execution_id: str) -> asyncio.Event:
        """An event that is set by every commit of a run."""
        watcher = asyncio.Event()
        self._watchers.setdefault(execution_id, set()).add(watcher)
        return watcher

    def unwatch(self, execution_id: str, watcher: asyncio.Event) -> None:
        """Stop watching."""
        watchers = self._watchers.get(execution_id)
        if watchers is not None:
            watchers.discard(watcher)
            if not watchers:
                del self._watchers[execution_id]


# Less would be lost when it is added to the time of a loop, and on virtual time nothing would move.
_LEAST_SLEEP_S: Final = 0.001


async def sleep_until(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event at most so long; whether it came."""
    try:
        async with asyncio.timeout(max(_LEAST_SLEEP_S, seconds)):
            await event.wait()
    except TimeoutError:
        return False
    event.clear()
    return True
