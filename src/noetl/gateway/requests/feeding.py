"""Events of runs that somebody waits for: told to his clients, and the last one ends the request.

All gateways share the feed. A message is acknowledged when its effect is kept; one that comes again
changes nothing, since every message to a client has the same id again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from math import inf
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.bus.base import BusGone
from noetl.errors import NoetlError
from noetl.gateway.requests import record as rec
from noetl.gateway.requests.outcomes import TERMINAL

if TYPE_CHECKING:
    from noetl.bus.clients import FedMessage, RequestFeed
    from noetl.gateway.requests.parts import Parts
    from noetl.gateway.requests.progress import Pace
    from noetl.gateway.requests.record import Record

TOGETHER: Final = 128
"""Messages that are fetched at once."""
MOST_HELD: Final = 1024
"""Messages that are held at once; those of a request that hangs count until their time is over."""
WAIT_S: Final = 5.0
LONGEST_S: Final = 20.0
"""How long after it was fetched a message may take before it is left to be delivered again, and
with it those of its request that have come since."""
AGAIN_S: Final = 1.0
UNKNOWN_S: Final = 60.0
"""How long a request that nobody knows is not asked for again."""
MOST_KNOWN: Final = 10_000
TOLD: Final = frozenset({
    *TERMINAL,
    "playbook.started",
    "execution.queued",
    "execution.admitted",
    "execution.paused",
    "execution.resumed",
    "step.exit",
    "step.skipped",
})  # fmt: skip
"""Ends of steps, and changes of the state of a run."""
_log: Final = logging.getLogger(__name__)


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A message: the events of a commit, or where to read them."""

    execution_id: str
    first_seq: int
    last_seq: int
    events: list[dict[str, Any]]
    is_stripped: bool = False


_decode: Final = msgspec.json.Decoder(Commit).decode


class Feeding:
    """Hears of runs."""

    def __init__(self, parts: Parts, feed: RequestFeed, pace: Pace) -> None:
        self._parts = parts
        self._feed = feed
        self._pace = pace
        self._unknown: OrderedDict[str, float] = OrderedDict()
        self._heard: OrderedDict[str, float] = OrderedDict()
        self._held: dict[str, deque[tuple[float, FedMessage]]] = {}
        """What was fetched and is not told yet, by request, each with the time that it has."""
        self._count = 0
        self._room = asyncio.Event()
        self._room.set()

    def silence_s(self, request_id: str) -> float:
        """How long nothing was heard here of the run of a request."""
        at = self._heard.get(request_id)
        return inf if at is None else self._parts.clock.monotonic() - at

    async def run(self) -> None:
        """Take messages for ever; those of a request that takes long hold up no others."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._next(tasks)
        finally:  # what is still held is delivered again
            self._held.clear()
            self._hold(-self._count)

    async def _next(self, tasks: asyncio.TaskGroup) -> None:
        await self._room.wait()
        try:
            await self.take(WAIT_S, tasks)
        except BusGone:
            self._parts.metrics.event_feed_reconnect.inc("bus_gone")
            await asyncio.sleep(AGAIN_S)

    async def take(self, timeout_s: float, tasks: asyncio.TaskGroup) -> int:
        """Take what there is, and begin with it; how many messages that were."""
        messages = await self._feed.fetch(TOGETHER, timeout_s)
        until = asyncio.get_running_loop().time() + LONGEST_S
        for message in messages:
            left = self._held.get(message.request_id)
            if left is None:
                left = self._held[message.request_id] = deque()
                tasks.create_task(self._of_one(message.request_id, left))
            left.append((until, message))
        self._hold(len(messages))
        return len(messages)

    async def _of_one(self, request_id: str, left: deque[tuple[float, FedMessage]]) -> None:
        """The messages of one request, in order: the first that fails keeps the rest back."""
        try:
            while left:
                until, message = left[0]
                async with asyncio.timeout_at(until):
                    await self._told(message)
                    await message.ack()
                left.popleft()
                self._hold(-1)
        except (NoetlError, TimeoutError) as fault:
            code = fault.code if isinstance(fault, NoetlError) else "timeout"
            _log.warning(
                "events of a request wait",
                extra={"reason": code, "request_id": request_id, "count": len(left)},
            )
            while left:
                await left[0][1].nak(AGAIN_S)
                left.popleft()
                self._hold(-1)
        finally:
            del self._held[request_id]
            self._hold(-len(left))

    def _hold(self, more: int) -> None:
        """Count what is held; as long as it is too much, nothing is fetched."""
        self._count += more
        if self._count <= MOST_HELD - TOGETHER:
            self._room.set()
        else:
            self._room.clear()

    async def _told(self, message: FedMessage) -> None:
        try:
            commit = _decode(message.payload)
            rows = [row for row in commit.events if row["event_type"] in TOLD]
        except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
            self._parts.metrics.event_parse_failed.inc()
            return
        if not rows and (commit.events or not commit.is_stripped):
            return
        record = await self._record(message.request_id)
        if record is None or record.execution_id != commit.execution_id:
            return
        if not commit.is_stripped:
            for row in rows:
                await self.heard(record, row)
            return
        first, last = commit.first_seq, commit.last_seq
        if rows:
            first, last = rows[0]["seq"], rows[-1]["seq"]
        async for row in self._parts.rebuilds.rows(commit.execution_id, first, last):
            if row["event_type"] in TOLD:
                await self.heard(record, row)

    async def heard(self, record: Record, row: dict[str, Any]) -> None:
        """Tell one event; the one that ends the run ends its request after that."""
        parts = self._parts
        self._note(record.request_id)
        await parts.ends.state(record, row)
        if row["event_type"] in TERMINAL:
            outcome = await parts.rebuilds.outcome(row, record)
            self._pace.drop(record.request_id)
            await parts.ends.finish(record, outcome)
        elif record.state == "accepted":
            now = parts.records.now()
            await parts.records.change(record.request_id, lambda each: rec.running(each, now))

    async def _record(self, request_id: str) -> Record | None:
        """Whom a request is told to; one that the bucket has lost is asked from the server."""
        records, now = self._parts.records, self._parts.clock.monotonic()
        if self._unknown.get(request_id, now) > now:
            return None
        record = await records.route(request_id)
        if record is not None:
            return record
        begun = await self._parts.rebuilds.of_request(request_id, is_heard=True)
        if begun is None:
            self._unknown[request_id] = now + UNKNOWN_S
            if len(self._unknown) > MOST_KNOWN:
                self._unknown.popitem(last=False)
            return None
        return await records.restore(begun)

    def _note(self, request_id: str) -> None:
        """Know when something was heard last."""
        self._heard[request_id] = self._parts.clock.monotonic()
        self._heard.move_to_end(request_id)
        if len(self._heard) > MOST_KNOWN:
            self._heard.popitem(last=False)
