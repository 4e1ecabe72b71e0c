"""The event log of a local run as a file: one JSON line per event, one write per commit.

A commit is acknowledged only after its lines are with the operating system, so a killed process
loses nothing that anybody was told of.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, ClassVar, Final

from noetl.engine.events import PlaybookStarted
from noetl.engine.rows import InvalidRow
from noetl.errors import NoetlError
from noetl.store.codec import decode, encode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from noetl.engine.events import Recorded

_MODE: Final = 0o600
# On the last line of every commit: how many lines it has.
_MARK: Final = re.compile(rb',"commit":\d+\}$')


class CorruptLog(NoetlError):
    """A log that no run of ours can have left behind."""

    code = "corrupt_log"


class LogUnwritable(NoetlError):
    """The log takes no more events: what was decided is not kept, so the run cannot go on."""

    code = "events_write_failed"
    status: ClassVar[int] = 507


class Journal:
    """Appends what is committed to one file, made on the first commit."""

    def __init__(self, path: Path) -> None:
        """Nothing is written yet; a torn line that a killed process left is cut off later."""
        self.path = path
        self._file: int | None = None
        self._size = 0

    def commit(self, events: Sequence[Recorded]) -> None:
        """Write the events of one commit; on a fault the file is as before."""
        if not events:
            return
        lines = [encode(recorded) for recorded in events]
        lines[-1] = lines[-1][:-1] + b',"commit":%d}' % len(lines)
        data = b"\n".join(lines) + b"\n"
        file = self._opened()
        try:
            written = os.write(file, data)
            while written < len(data):
                written += os.write(file, data[written:])
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file, self._size)
            raise
        self._size += len(data)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _opened(self) -> int:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self.path, flags, _MODE)
            whole = self.path.read_bytes()
            self._size = _end_of_commits(whole)
            os.ftruncate(self._file, self._size)
        return self._file


def read(path: Path) -> list[Recorded]:
    """The events of a log; a torn last commit is dropped, any other damage is refused."""
    data = path.read_bytes()
    *lines, _torn = data[: _end_of_commits(data)].split(b"\n")
    found: list[Recorded] = []
    last: dict[str, Recorded] = {}
    for number, line in enumerate(lines, 1):
        try:
            recorded = decode(line)
        except InvalidRow as fault:
            raise _damage(path, number, f"is no event: {fault}") from fault
        before = last.get(recorded.execution_id)
        if fault_in_chain := _broken(before, recorded):
            raise _damage(path, number, fault_in_chain)
        last[recorded.execution_id] = recorded
        found.append(recorded)
    if not found:
        raise CorruptLog(f"{path} holds no event", hint="start the run anew")
    return found


def _end_of_commits(data: bytes) -> int:
    """Where the last whole commit ends: what one decision wrote is kept together or not at all.

    A log without marks was written by something else; it ends with its last whole line.
    """
    end = data.rfind(b"\n") + 1
    at = end
    while at > 0:
        start = data.rfind(b"\n", 0, at - 1) + 1
        if _MARK.search(data, start, at - 1):
            return at
        at = start
    return end


def _broken(before: Recorded | None, recorded: Recorded) -> str:
    """What is wrong with an event after the one before it, if something is."""
    seq = 1 if before is None else before.seq + 1
    if recorded.seq != seq:
        return f"has seq {recorded.seq} where {seq} was expected"
    if before is None:
        is_start = isinstance(recorded.event, PlaybookStarted)
        return "" if is_start else "is the first event of its run and no `playbook.started`"
    if recorded.prev_event_id != before.event_id:
        return f"does not follow the event before it, {before.event_id}"
    return ""


def _damage(path: Path, line: int, what: str) -> CorruptLog:
    hint = "the file was changed after it was written; a run cannot go on from it"
    return CorruptLog(f"{path}, line {line}: the line {what}", hint=hint)
