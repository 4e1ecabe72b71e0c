"""What tasks print and log, and how far they are: bounded, batched, sent beside the reports."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from noetl.api.events import MOST_LINES, LogBatch, LogLine
from noetl.clock import rfc3339
from noetl.worker.backlog import SHARE_BYTES
from noetl.worker.courier import ANSWER_S
from noetl.worker.patience import Backoff, is_passing
from noetl.worker.shelf import OutboxDamaged, OutboxFull

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from noetl.api.client import Client
    from noetl.api.commands import Command
    from noetl.clock import Clock
    from noetl.worker.backlog import Backlog

FLUSH_S: Final = 1.0
FLUSH_BYTES: Final = 64 << 10
BATCH_BYTES: Final = 512 << 10
LINE_BYTES: Final = 8 << 10
COMMAND_BYTES: Final = 10 << 20
TAIL_BYTES: Final = 1 << 20
SHOWN_BYTES: Final = 4 << 10
"""The end of the lines that a report shows."""
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
    """The lines of every command of this worker on their way to the server.

    They go there straight from memory. The first request that fails puts them on the disk, and from
    then on new ones go behind those, until the disk is empty. Whoever is killed or drained in
    between leaves them to the next run; the server ignores a line that it has.
    """

    def __init__(self, client: Client, clock: Clock, backlog: Backlog | None = None) -> None:
        self.dropped = 0
        self.clock = clock
        self._client = client
        self._backlog = backlog
        self._is_disk_full = False
        self._waiting: deque[tuple[LogLine, int]] = deque()
        self._size = 0
        self._taken: list[tuple[LogLine, int]] = []
        """Lines that waited and are on their way to the server or to the disk."""
        self._backoff = Backoff()
        self._some = asyncio.Event()
        self._many = asyncio.Event()
        self._empty = asyncio.Event()
        self._is_flushing = False
        if self.kept:  # what the last run left goes first
            self._some.set()
        else:
            self._empty.set()

    @property
    def kept(self) -> int:
        """How many lines lie on the disk."""
        return 0 if self._backlog is None else self._backlog.events

    @property
    def damaged(self) -> int:
        """How many files were set aside."""
        return 0 if self._backlog is None else self._backlog.damaged

    def of(self, command: Command) -> Lines:
        """The lines of one attempt of a command."""
        return Lines(self, command)

    def add(self, line: LogLine, size: int) -> None:
        """Queue a line; when neither server nor disk takes any, the oldest make room."""
        size += _LINE_OVERHEAD
        self._waiting.append((line, size))
        self._size += size
        while self._size > SHARE_BYTES:
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
            while self._waiting or self.kept:
                await self._turn()
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

    async def saved(self) -> None:
        """Leave what was not taken on the disk; for the end, when nothing is sent any more."""
        self._put_back()
        await self._save()

    # ------------------------------------------------------------------ one request

    async def _turn(self) -> None:
        """Send the oldest lines; they go to the disk, or stay there, when nobody answers."""
        lines, last = await self._next()
        if not lines:
            await self._rest(self._backoff.next())
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._client.log(LogBatch(entries=tuple(lines)))
        except Exception as fault:  # noqa: BLE001 - the border: a transport may raise anything, lines are sent again
            if is_passing(fault):
                self._put_back()
                await self._rest(self._backoff.after(fault))
                return
            self.dropped += len(lines)
            _log.error("log lines were refused", extra={"reason": str(fault)})
        self._taken = []
        if last is not None and not await self._drop(last):
            await self._rest(self._backoff.next())  # they are sent again, which changes nothing
            return
        self._backoff.reset()

    async def _next(self) -> tuple[list[LogLine], int | None]:
        """What is to be sent, and where it ends on the disk; None: it was never there."""
        if self._backlog is None or not self.kept:
            return [line for line, _ in self._take()], None
        await self._save()
        try:
            return await self._backlog.oldest(MOST_LINES, BATCH_BYTES)
        except OutboxFull as fault:
            self._stay(fault)
        except OutboxDamaged as fault:
            self._lose(fault)
        return [], None

    async def _rest(self, delay_s: float) -> None:
        """Wait; what is written meanwhile is on the disk within a second."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + delay_s
        while await self._save() and (left_s := ends - loop.time()) > 0:
            self._many.clear()
            await _within(self._many, min(left_s, FLUSH_S))
        await asyncio.sleep(ends - loop.time())

    # ------------------------------------------------------------------ memory and disk

    def _take(self) -> list[tuple[LogLine, int]]:
        """What fits in one request."""
        taken: list[tuple[LogLine, int]] = []
        size = 0
        while self._waiting and size < BATCH_BYTES and len(taken) < MOST_LINES:
            taken.append(self._waiting.popleft())
            size += taken[-1][1]
        self._size -= size
        self._taken = taken
        return taken

    def _put_back(self) -> None:
        """What was taken comes first again."""
        taken, self._taken = self._taken, []
        self._waiting.extendleft(reversed(taken))
        self._size += sum(size for _, size in taken)

    async def _save(self) -> bool:
        """Write down what waits, behind what is there; whether nothing waits any more."""
        if self._backlog is None:
            return False
        while self._waiting:
            try:
                self.dropped += await self._backlog.keep(self._take())
            except OutboxFull as fault:
                self._put_back()
                self._stay(fault)
                return False
            except OutboxDamaged as fault:
                self._put_back()
                self._lose(fault)
                return False  # the next try finds a new file
            self._taken = []
            self._is_disk_full = False
        return True

    async def _drop(self, last: int) -> bool:
        """The server has the lines up to this place; whether the disk could be told."""
        if self._backlog is None:
            return True
        try:
            await self._backlog.drop(last)
        except OutboxFull as fault:
            self._stay(fault)
            return False
        except OutboxDamaged as fault:
            self._lose(fault)
        return True

    def _stay(self, fault: OutboxFull) -> None:
        """Lines stay where they are; that is told once."""
        if not self._is_disk_full:
            _log.error("the disk takes no log lines", extra={"reason": str(fault)})
        self._is_disk_full = True

    def _lose(self, fault: OutboxDamaged) -> None:
        self.dropped += fault.events
        _log.error("the file of log lines is damaged", extra={"reason": str(fault)})


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
