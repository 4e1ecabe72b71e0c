"""What tasks print and log, and how far they are: bounded, batched, sent beside the reports."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from noetl.api.events import MOST_LINES, LogBatch, LogLine
from noetl.clock import rfc3339
from noetl.worker.patience import Backoff, is_passing

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from noetl.api.client import Client
    from noetl.api.commands import Command
    from noetl.clock import Clock

FLUSH_S: Final = 1.0
FLUSH_BYTES: Final = 64 << 10
BATCH_BYTES: Final = 512 << 10
LINE_BYTES: Final = 8 << 10
COMMAND_BYTES: Final = 10 << 20
TAIL_BYTES: Final = 1 << 20
SHOWN_BYTES: Final = 4 << 10
"""The end of the lines that a report shows."""
WAITING_BYTES: Final = 64 << 20
PROGRESS_S: Final = 1.0
_CUT: Final = " … (cut)"
_LINE_OVERHEAD: Final = 256

_log = logging.getLogger("noetl.worker")


@dataclass(slots=True)
class _Kept:
    """A line of the end that may still be left out."""

    at: datetime
    task: str
    stream: str
    level: str
    text: str
    size: int


class Logs:
    """The lines of every command of this worker on their way to the server."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self.dropped = 0
        self.clock = clock
        self._client = client
        self._waiting: deque[tuple[LogLine, int]] = deque()
        self._size = 0
        self._some = asyncio.Event()
        self._many = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self._is_flushing = False

    def of(self, command: Command) -> Lines:
        """The lines of one attempt of a command."""
        return Lines(self, command)

    def add(self, line: LogLine, size: int) -> None:
        """Queue a line; while the server is away the oldest make room."""
        size += _LINE_OVERHEAD
        self._waiting.append((line, size))
        self._size += size
        while self._size > WAITING_BYTES:
            _, gone = self._waiting.popleft()
            self._size -= gone
            self.dropped += 1
        self._empty.clear()
        self._some.set()
        if self._size >= FLUSH_BYTES:
            self._many.set()

    async def run(self) -> None:
        """Send each second, or sooner when there is much or a command has ended."""
        while True:
            await self._some.wait()
            if not self._is_flushing:
                await _within(self._many, FLUSH_S)
            while self._waiting:
                await self._send(self._batch())
            self._some.clear()
            self._many.clear()
            self._empty.set()

    def hurry(self) -> None:
        """Send now: whoever sees that a command has ended may look at its lines next."""
        self._many.set()

    async def flushed(self) -> None:
        """Wait until every line was taken."""
        self._is_flushing = True
        self._many.set()
        await self._empty.wait()

    def _batch(self) -> list[LogLine]:
        batch: list[LogLine] = []
        size = 0
        while self._waiting and size < BATCH_BYTES and len(batch) < MOST_LINES:
            line, own = self._waiting.popleft()
            batch.append(line)
            size += own
        self._size -= size
        return batch

    async def _send(self, batch: list[LogLine]) -> None:
        body = LogBatch(entries=tuple(batch))
        backoff = Backoff()
        while True:
            try:
                return await self._client.log(body)
            except Exception as fault:  # noqa: BLE001 - the border: a transport may raise anything, lines are sent again
                if not is_passing(fault):
                    self.dropped += len(batch)
                    _log.error("log lines were refused", extra={"reason": str(fault)})
                    return None
                delay_s = backoff.after(fault)
            await asyncio.sleep(delay_s)


async def _within(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


class Lines:
    """The lines of one attempt: the beginning goes out as it comes, the end is kept back.

    Nobody knows which line is the last one, so the newest are held in a ring once the beginning has
    used its share; what falls out of the ring is left out and counted.
    """

    def __init__(self, logs: Logs, command: Command) -> None:
        self._logs = logs
        self._command = command
        self._n = 0
        self._lines = 0
        self._bytes = 0
        self._ring: deque[_Kept] = deque()
        self._ring_bytes = 0
        self._left_out = 0
        self._left_out_bytes = 0
        self._last: deque[str] = deque()
        self._last_bytes = 0

    def write(self, task: str, stream: str, level: str, text: str) -> None:
        """Take one line; it was redacted."""
        raw = text.encode("utf-8", "replace")
        size = len(raw)
        if size > LINE_BYTES + len(_CUT):
            text, size = raw[:LINE_BYTES].decode("utf-8", "ignore") + _CUT, LINE_BYTES
        elif not text.isascii():
            text = raw.decode()
        self._lines += 1
        self._bytes += size
        self._show(text, size)
        kept = _Kept(self._logs.clock.now(), task, stream, level, text, size)
        if self._bytes <= COMMAND_BYTES - TAIL_BYTES:
            self._add(kept)
            return
        self._ring.append(kept)
        self._ring_bytes += size
        while self._ring_bytes > TAIL_BYTES:
            gone = self._ring.popleft()
            self._ring_bytes -= gone.size
            self._left_out += 1
            self._left_out_bytes += gone.size

    def close(self) -> dict[str, Any] | None:
        """Send the end; what a report tells of the lines, None when there were none."""
        if self._left_out:
            first = self._ring[0]
            text = f"… {self._left_out} lines, {self._left_out_bytes} bytes left out …"
            self._add(_Kept(first.at, first.task, "log", "warning", text, len(text)))
        while self._ring:
            self._add(self._ring.popleft())
        if not self._lines:
            return None
        self._logs.hurry()
        return {
            "lines": self._lines,
            "bytes": self._bytes,
            "truncated": self._left_out > 0,
            "tail": "\n".join(self._last),
        }

    def _show(self, text: str, size: int) -> None:
        if size > SHOWN_BYTES:
            text = text.encode()[-SHOWN_BYTES:].decode("utf-8", "ignore")
            size = SHOWN_BYTES
        self._last.append(text)
        self._last_bytes += size + 1
        while self._last_bytes > SHOWN_BYTES + 1:
            self._last_bytes -= len(self._last.popleft().encode()) + 1

    def _add(self, kept: _Kept) -> None:
        command = self._command
        line = LogLine(
            execution_id=command.execution_id,
            command_id=command.command_id,
            attempt=command.attempt,
            n=self._n,
            ts=rfc3339(kept.at),
            text=kept.text,
            step=command.node_name,
            task=kept.task,
            stream=cast("Literal['stdout', 'stderr', 'log']", kept.stream),
            level=kept.level,
        )
        self._n += 1
        self._logs.add(line, kept.size)


class Pace:
    """Progress of one command: at most one report a second, the latest wins."""

    def __init__(self, report: Callable[[dict[str, Any]], None]) -> None:
        self._report = report
        self._latest: dict[str, Any] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, percent: float, message: str) -> None:
        """Report now, or when the second is over."""
        self._latest = {"percent": percent, "message": _valid(message)}
        if self._timer is None:
            self._send()

    def stop(self) -> None:
        """The result says more."""
        if self._timer is not None:
            self._timer.cancel()

    def _send(self) -> None:
        self._timer = None
        latest, self._latest = self._latest, None
        if latest is not None:
            self._timer = asyncio.get_running_loop().call_later(PROGRESS_S, self._send)
            self._report(latest)


def _valid(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
