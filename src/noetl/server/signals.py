"""Who is woken by a commit: loops that sleep, readers that wait, and workers that must stop."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.server.claimed import Claimed
from noetl.server.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from noetl.clock import Clock
    from noetl.engine.events import Recorded
    from noetl.store.base import Change, Outgoing

    Follower = Callable[[Sequence[Recorded]], None]

EVENTS: Final = "events"
"""The kind of an outgoing message that stands for the events of its commit."""
MOST_OUTGOING: Final = 100_000
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


@dataclass(frozen=True, slots=True)
class Stop:
    """An attempt that a worker holds for nothing now."""

    worker_id: str
    pool: str
    command_id: str
    attempt: int
    is_over: bool = True
    """There is no later attempt: whoever holds the command is to stop it."""


class Signals:
    """Events of one process; each only says that something changed, the store says what."""

    def __init__(self, clock: Clock) -> None:
        self.recent = Recent()
        self.claimed = Claimed(clock)
        """Told before anybody is answered."""
        self.timers = asyncio.Event()
        self.outbox = asyncio.Event()
        self.undelivered: deque[Outgoing] = deque(maxlen=MOST_OUTGOING)
        """Messages of our own commits to other runs; the store keeps them until delivered."""
        self.publish = asyncio.Event()
        self.unpublished: deque[tuple[Outgoing, tuple[Recorded, ...]]] = deque(maxlen=MOST_OUTGOING)
        """Events of our own commits that the bus is to be told."""
        self._done: list[str] = []
        self.leases = asyncio.Event()
        self.hints = asyncio.Event()
        self.unhinted: deque[Hint] = deque(maxlen=MOST_HINTS)
        self.held: set[str] = set()
        """Commands that workers hold, as far as this process knows."""
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._followers: dict[str, dict[Follower, None]] = {}
        self._stops: OrderedDict[str, set[str]] = OrderedDict()
        self._stops_by_pool: dict[str, list[Stop]] = {}
        self.listeners: set[asyncio.Event] = set()
        """Set whenever any subscription has changed."""
        self.ends: dict[str, set[asyncio.Event]] = {}
        """Who waits for ends of runs, by the subscription that is their parent."""
        self.hearer: Callable[[Iterable[Change]], None] | None = None
        """Told of every commit, while somebody follows lists."""

    def committed(self, changes: Iterable[Change]) -> None:
        """Wake whoever a commit concerns."""
        for change in changes:
            self.recent.committed(change)
            if change.timers:
                self.timers.set()
            for outgoing in change.outgoing:
                if outgoing.kind == EVENTS:
                    self.unpublished.append((outgoing, change.events))
                    self.publish.set()
                else:
                    self.undelivered.append(outgoing)
                    self.outbox.set()
            for row in change.commands:
                if row.status == "CLAIMED":
                    self.held.add(row.command_id)
                    self.leases.set()
                else:
                    self.held.discard(row.command_id)
            self._wake(change.execution_id, change.events)
            if self.ends and change.execution.completed_at is not None:
                for waiter in self.ends.get(change.execution.parent_execution_id or "", ()):
                    waiter.set()
        if self.hearer is not None:
            self.hearer(changes)

    def _wake(self, name: str, events: Sequence[Recorded]) -> None:
        for watcher in self._watchers.get(name, ()):
            watcher.set()
        for follower in self._followers.get(name, ()):
            follower(events)

    def told(self, subscription_id: str, events: Sequence[Recorded]) -> None:
        """Wake those who follow the log of a subscription."""
        self._wake(subscription_id, events)
        for listener in self.listeners:
            listener.set()

    def wrote(self, execution_ids: Iterable[str]) -> None:
        """Wake those who follow runs whose steps have written lines."""
        for execution_id in execution_ids:
            for follower in self._followers.get(execution_id, ()):
                follower(())

    def delivered(self, ids: Iterable[str]) -> None:
        """Remember messages that need not be kept; the next commit removes them, or `flush`."""
        had_none = not self._done
        self._done += ids
        if had_none and self._done:
            self.outbox.set()  # whoever flushes may rest for long

    @property
    def has_done(self) -> bool:
        """Whether there are such messages."""
        return bool(self._done)

    def taken_done(self) -> list[str]:
        """Messages to remove from the store."""
        taken, self._done = self._done, []
        return taken

    def hint(self, hint: Hint) -> None:
        """Remember to tell the pool."""
        self.unhinted.append(hint)
        self.hints.set()

    def stop(self, stop: Stop) -> None:
        """Remember to tell a worker that its attempt is wanted no more.

        Answers to reports name no attempts: a lost one is told by the word on the bus and by the
        heartbeat, since the same worker may hold the next attempt by now.
        """
        self.held.discard(stop.command_id)
        self.claimed.drop(stop.command_id)
        self._stops_by_pool.setdefault(stop.pool, []).append(stop)
        self.hints.set()
        if not stop.is_over:
            return
        kept = self._stops.setdefault(stop.worker_id, set())
        kept.add(stop.command_id)
        if len(self._stops) > MOST_STOPS:
            self._stops.popitem(last=False)

    def stops_of(self, worker_id: str) -> tuple[str, ...]:
        """What a worker is to stop; told once, a heartbeat finds it again."""
        found = self._stops.pop(worker_id, None)
        return tuple(sorted(found)) if found else ()

    def taken_stops(self) -> dict[str, list[Stop]]:
        """Attempts to stop by pool, for a word on the bus."""
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

    def follow(self, execution_id: str, follower: Follower) -> None:
        """Call somebody with the events of every commit of a run."""
        self._followers.setdefault(execution_id, {})[follower] = None

    def unfollow(self, execution_id: str, follower: Follower) -> None:
        """Stop calling."""
        followers = self._followers.get(execution_id)
        if followers is not None:
            followers.pop(follower, None)
            if not followers:
                del self._followers[execution_id]


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
