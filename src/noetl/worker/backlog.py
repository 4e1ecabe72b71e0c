"""Lines on disk while the server cannot take them, oldest first, within a share of the disk.

They have a file of their own beside the outbox, and a thread of its own: a report never waits for
lines, is not lost with a file of lines that is damaged, and does not share its limit with them. For
the same reason lines leave the last room of a disk to reports. Lines are not synced one by one:
they outlive the process that is killed, and some may go with the power of the machine.
"""

from __future__ import annotations

import errno
import os
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

import msgspec

from noetl.api.events import LogLine
from noetl.worker.shelf import Shelf

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from noetl.clock import Clock

SHARE_BYTES: Final = 64 << 20

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS line (
  n INTEGER PRIMARY KEY AUTOINCREMENT,
  size INTEGER NOT NULL,
  body BLOB NOT NULL
)
"""
_INDEX: Final = "CREATE INDEX IF NOT EXISTS line_size ON line (size)"
_KEEP: Final = "INSERT INTO line (size, body) VALUES (?,?)"
_OLDEST: Final = "SELECT n, size, body FROM line ORDER BY n LIMIT ?"
_SIZES: Final = "SELECT n, size FROM line ORDER BY n"
_DROP: Final = "DELETE FROM line WHERE n <= ?"
_encode: Final = msgspec.json.Encoder().encode
_decoder: Final = msgspec.json.Decoder(LogLine)


class Found(NamedTuple):
    """Lines that are to be sent first, and the place of the last one."""

    lines: list[LogLine]
    last: int


class Backlog(Shelf):
    """The lines of one worker that the server does not have yet; no file before there is one."""

    name: ClassVar[str] = "logs.db"
    _setup: ClassVar[tuple[str, ...]] = (
        "PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", _SCHEMA, _INDEX,
    )  # fmt: skip
    _sums: ClassVar[str] = "SELECT count(*), coalesce(sum(size), 0) FROM line"
    _after_damage: ClassVar[str] = "the lines in it are lost, and nothing else"

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        *,
        most_bytes: int = SHARE_BYTES,
        is_disk_full: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(folder, most_bytes, clock)
        self._is_disk_full = is_disk_full

    async def open(self) -> None:
        """Find what the last run left, if it left anything; `OutboxDamaged` as of any shelf."""
        await self._do(self._find)

    async def keep(self, items: Sequence[tuple[LogLine, int]]) -> int:
        """Write lines, each with its size, behind those that are there; how many made room."""
        return await self._do(lambda: self._keep(items))

    async def oldest(self, most: int, most_bytes: int) -> Found:
        """The lines that are to be sent first, at least one when there is any."""
        return await self._do(lambda: self._oldest(most, most_bytes))

    async def drop(self, last: int) -> None:
        """The server has the lines up to this place."""
        await self._do(lambda: self._drop(last))

    # ------------------------------------------------------------------ in the thread

    def _find(self) -> None:
        if self._path.exists():
            self._open()

    def _keep(self, items: Sequence[tuple[LogLine, int]]) -> int:
        if self._is_disk_full():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with self._changing() as database:
            database.executemany(_KEEP, ((size, _encode(line)) for line, size in items))
            size_bytes = self.size_bytes + sum(size for _, size in items)
            return self._made_room(database, size_bytes - self.most_bytes)

    @staticmethod
    def _made_room(database: sqlite3.Connection, excess: int) -> int:
        """Let the oldest go until so many bytes are free; how many went."""
        last = 0
        with closing(database.execute(_SIZES)) as rows:
            while excess > 0:
                last, size = rows.fetchone()
                excess -= size
        return database.execute(_DROP, (last,)).rowcount

    def _oldest(self, most: int, most_bytes: int) -> Found:
        found, last = list[LogLine](), 0
        with closing(self._opened().execute(_OLDEST, (most,))) as rows:
            for n, size, body in rows:
                most_bytes -= size
                if found and most_bytes < 0:
                    break
                found.append(_decoder.decode(body))
                last = n
        return Found(found, last)

    def _drop(self, last: int) -> None:
        with self._changing() as database:
            database.execute(_DROP, (last,))
        self._emptied()
