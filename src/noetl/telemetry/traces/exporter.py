"""Sends spans to a collector: in batches, from a queue that is bounded, never in anybody's way."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from noetl.telemetry.metrics import SPANS
from noetl.telemetry.redact import Redactor
from noetl.telemetry.traces.otlp import encoded, rejected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from noetl.telemetry.traces.span import Attribute, Span

MOST_QUEUED: Final = 8_192
MOST_SENT: Final = 512
WAIT_S: Final = 1.0
"""How long the first span of a batch waits for company."""
FLUSH_S: Final = 2.0
MOST_TRIES: Final = 6
FIRST_PAUSE_S: Final = 0.5
MOST_PAUSE_S: Final = 30.0
_OK: Final = range(200, 300)
_AGAIN: Final = frozenset({429, 502, 503, 504})
_log: Final = logging.getLogger(__name__)


class Reply(NamedTuple):
    """What a collector says; a status of 0 is no answer."""

    status: int
    body: bytes = b""
    retry_after_s: float | None = None


class Exporter:
    """The queue, and the task that empties it."""

    def __init__(
        self,
        send: Callable[[bytes], Awaitable[Reply]],
        resource: Mapping[str, Attribute],
        version: str,
        redactor: Redactor | None = None,
    ) -> None:
        self._send = send
        self._resource = resource
        self._version = version
        self._redactor = redactor or Redactor()
        self._queue: deque[Span] = deque()
        self._some = asyncio.Event()
        self._many = asyncio.Event()
        self._is_closing = asyncio.Event()
        self._is_told = False
        self.counts = dict.fromkeys(SPANS, 0)

    def put(self, span: Span) -> None:
        """Take a span that is over; one too many is counted and forgotten."""
        if len(self._queue) >= MOST_QUEUED:
            self.counts["dropped"] += 1
            return
        self._queue.append(span)
        self._some.set()
        if len(self._queue) >= MOST_SENT:
            self._many.set()

    async def run(self) -> None:
        """Send what there is, until it is closed and empty."""
        while True:
            await _first(self._some, self._is_closing)
            if not self._queue:
                return
            if len(self._queue) < MOST_SENT:
                await _first(self._many, self._is_closing, timeout_s=WAIT_S)
            self._many.clear()
            await self._batch()
            if not self._queue:
                self._some.clear()

    async def close(self, task: asyncio.Task[Any]) -> None:
        """Send what is left, as far as the time allows; `task` is the one that runs."""
        self._is_closing.set()
        _, waiting = await asyncio.wait((task,), timeout=FLUSH_S)
        if waiting:
            task.cancel()
            await asyncio.wait((task,))
            self.counts["failed"] += len(self._queue)

    async def _batch(self) -> None:
        spans = list(islice(self._queue, MOST_SENT))
        body = self._redactor.redact(encoded(spans, self._resource, self._version).decode())
        reply = await self._sent(body.encode())
        for _ in spans:
            self._queue.popleft()
        refused = rejected(reply.body) if reply.status in _OK else len(spans)
        self.counts["exported"] += len(spans) - refused
        self.counts["failed"] += refused
        self._tell(reply, refused)

    async def _sent(self, body: bytes) -> Reply:
        """What the collector says of a batch, asked again while it is only busy."""
        pause_s = FIRST_PAUSE_S
        for _ in range(MOST_TRIES - 1):
            reply = await self._send(body)
            if reply.status != 0 and reply.status not in _AGAIN:
                return reply
            wait_s = pause_s if reply.retry_after_s is None else reply.retry_after_s
            await asyncio.sleep(min(MOST_PAUSE_S, wait_s))
            pause_s *= 2
        return await self._send(body)

    def _tell(self, reply: Reply, refused: int) -> None:
        """Say once that the collector does not take spans, and once that it does again."""
        if refused and not self._is_told:
            self._is_told = True
            _log.warning("spans are lost", extra={"status": reply.status, "count": refused})
        elif not refused and self._is_told:
            self._is_told = False
            _log.info("spans are taken again")


async def _first(*events: asyncio.Event, timeout_s: float | None = None) -> None:
    """Wait until one of these is set, or for a time."""
    if any(event.is_set() for event in events):
        return
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
