"""The log of clients inside one process, with the limits of the real one."""

from __future__ import annotations

from collections import OrderedDict, deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from noetl.bus.base import BusGone
from noetl.bus.clients import History, Logged
from noetl.bus.streams import CLIENTS
from noetl.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from noetl.clock import Clock

MOST_IDS: Final = 100_000
"""Ids that are remembered; a process of its own has no more clients than that."""


@dataclass(slots=True)
class _Client:
    """What one client was told."""

    messages: deque[tuple[float, Logged]] = field(default_factory=deque)
    forgotten: int = 0
    """The sequence of the newest message that is there no more."""

    def forget_first(self) -> None:
        """Drop the oldest message."""
        self.forgotten = self.messages.popleft()[1].seq


class MemoryClients:
    """What each client was told."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._epoch = f"m{round(self._clock.now().timestamp() * 1_000_000)}"
        self._clients: dict[str, _Client] = {}
        self._seq = 0
        self._seen: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._hearers: dict[str, dict[object, Callable[[Logged], None]]] = {}
        self._is_closed = False

    async def epoch(self) -> str:
        """Which log it is."""
        self._must_be_open()
        return self._epoch

    async def append(self, client_id: str, payload: bytes, msg_id: str) -> int:
        """Keep a message, once per client and id."""
        self._must_be_open()
        now = self._clock.monotonic()
        if msg_id and self._was_seen((client_id, msg_id), now):
            return 0
        client = self._clients.setdefault(client_id, _Client())
        self._age(client, now)
        before = client.messages[-1][1].seq if client.messages else 0
        self._seq += 1
        logged = Logged(self._seq, payload, before)
        client.messages.append((now, logged))
        if len(client.messages) > CLIENTS.max_msgs_per_subject:
            client.forget_first()
        for heard in list(self._hearers.get(client_id, {}).values()):
            heard(logged)
        return self._seq

    async def after(self, client_id: str, seq: int, limit: int = 1000) -> History:
        """What came after a sequence, in order."""
        self._must_be_open()
        client = self._clients.get(client_id, _Client())
        self._age(client, self._clock.monotonic())
        found = [each for _, each in client.messages if each.seq > seq]
        is_whole = client.forgotten <= seq <= self._seq
        return History(tuple(found[:limit]), is_whole)

    @asynccontextmanager
    async def hear(self, client_id: str, heard: Callable[[Logged], None]) -> AsyncIterator[None]:
        """Have a function called with what comes from now on."""
        self._must_be_open()
        name = object()
        self._hearers.setdefault(client_id, {})[name] = heard
        try:
            yield
        finally:
            left = self._hearers[client_id]
            del left[name]
            if not left:
                del self._hearers[client_id]

    async def forget(self, client_id: str) -> None:
        """Delete a client's messages."""
        self._must_be_open()
        client = self._clients.get(client_id, _Client())
        while client.messages:
            client.forget_first()

    def close(self) -> None:
        """Every later call gets `BusGone`."""
        self._is_closed = True

    def _was_seen(self, name: tuple[str, str], now: float) -> bool:
        while self._seen and (next(iter(self._seen.values())) <= now or len(self._seen) > MOST_IDS):
            self._seen.popitem(last=False)
        if name in self._seen:
            return True
        self._seen[name] = now + CLIENTS.duplicate_window_s
        return False

    def _age(self, client: _Client, now: float) -> None:
        while client.messages and client.messages[0][0] + CLIENTS.max_age_s <= now:
            client.forget_first()

    def _must_be_open(self) -> None:
        if self._is_closed:
            raise BusGone("the bus was closed")
