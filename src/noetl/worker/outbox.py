"""Reports on disk while the server cannot take them: one SQLite file, one thread, oldest first.

What is written here is synced before anyone relies on it, and leaves when the server has it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import msgspec

from noetl.api.events import Report
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from noetl.clock import Clock

T = TypeVar("T")

FILE: Final = "outbox.db"
_MODE: Final = 0o600
_BESIDE: Final = ("", "-wal", "-shm")
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS report (
  n INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id TEXT NOT NULL UNIQUE,
  is_last_word INTEGER NOT NULL,
  size INTEGER NOT NULL,
  body BLOB NOT NULL
)
"""
_KEEP: Final = "INSERT OR IGNORE INTO report (event_id, is_last_word, size, body) VALUES (?,?,?,?)"
_OLDEST: Final = "SELECT size, is_last_word, body FROM report ORDER BY n LIMIT ?"
_DROP: Final = "DELETE FROM report WHERE event_id = ?"
_SUMS: Final = "SELECT count(*), coalesce(sum(size), 0) FROM report"
_encode: Final = msgspec.json.Encoder().encode
_decoder: Final = msgspec.json.Decoder(Report)


class OutboxFull(NoetlError):
    """The disk takes no more."""

    code = "outbox_full"
    retryable: ClassVar[bool] = True
    status: ClassVar[int] = 507


class OutboxDamaged(NoetlError):
    """The file was not readable and was moved aside; what it held comes back with its leases."""

    code = "outbox_damaged"
    events: int = 0
    """How many reports were in it, as far as is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A report as it lies in the outbox."""

    report: Report
    size_bytes: int
    is_last_word: bool = False


class Outbox:
    """The reports of one worker that the server does not have yet."""

    def __init__(self, folder: Path, most_bytes: int, clock: Clock) -> None:
        self.events = 0
        self.size_bytes = 0
        self.most_bytes = most_bytes
        self.damaged = 0
        self._path = folder / FILE
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="noetl-outbox")
        self._database: sqlite3.Connection | None = None

    @property
    def share(self) -> float:
        """How much of its limit is used."""
        return self.size_bytes / self.most_bytes

    async def open(self) -> None:
        """Find what the last run left; `OutboxDamaged` says that there is a new, empty file."""
        await self._do(self._open)

    async def keep(self, items: Iterable[Kept]) -> None:
        """Write reports behind those that are there; all of them, or `OutboxFull` and none."""
        rows = [
            (str(item.report.event_id), item.is_last_word, item.size_bytes, _encode(item.report))
            for item in items
        ]
        await self._do(lambda: self._keep(rows))

    async def oldest(self, most: int, most_bytes: int) -> list[Kept]:
        """The reports that are to be sent first, at least one when there is any."""
        return await self._do(lambda: self._oldest(most, most_bytes))

    async def drop(self, event_ids: Sequence[str]) -> None:
        """The server has these."""
        await self._do(lambda: self._drop(event_ids))

    async def close(self) -> None:
        """Let go of the file."""
        await self._do(self._shut)
        self._thread.shutdown()

    # ------------------------------------------------------------------ in the thread

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, work)

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (sqlite3.OperationalError, OSError) as fault:
            raise OutboxFull(
                f"{self._path}: {fault}", hint="make room on the disk of the data folder"
            ) from fault
        except (sqlite3.DatabaseError, msgspec.MsgspecError) as fault:
            events, aside = self.events, self._set_aside()
            self._open()
            damage = OutboxDamaged(
                f"{self._path} is damaged ({fault}); it lies at {aside} now",
                hint="the commands it told of are run again",
            )
            damage.events = events
            raise damage from fault

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, _MODE))
        self._shut()
        made = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._database = made
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("PRAGMA synchronous=FULL")
        made.execute(_SCHEMA)
        with closing(made.execute("PRAGMA quick_check(1)")) as found:
            if (verdict := found.fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(verdict)
        self._count()

    def _shut(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _keep(self, rows: Sequence[tuple[str, bool, int, bytes]]) -> None:
        database = self._opened()
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(_KEEP, rows)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        self._count()

    def _oldest(self, most: int, most_bytes: int) -> list[Kept]:
        found: list[Kept] = []
        with closing(self._opened().execute(_OLDEST, (most,))) as rows:
            for size, is_last_word, body in rows:
                most_bytes -= size
                if found and most_bytes < 0:
                    break
                report = _decoder.decode(body)
                found.append(Kept(report=report, size_bytes=size, is_last_word=bool(is_last_word)))
        return found

    def _drop(self, event_ids: Sequence[str]) -> None:
        database = self._opened()
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany(_DROP, [(event_id,) for event_id in event_ids])
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        self._count()
        if not self.events:  # the file does not stay as large as it once was
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _opened(self) -> sqlite3.Connection:
        if self._database is None:
            self._open()
        if self._database is None:
            raise sqlite3.OperationalError("the file is not open")
        return self._database

    def _count(self) -> None:
        database = self._opened()
        with closing(database.execute(_SUMS)) as found:
            self.events, self.size_bytes = found.fetchone()

    def _set_aside(self) -> Path:
        self._shut()
        self.damaged += 1
        stamp = self._clock.now().strftime("%Y%m%dT%H%M%S%f")
        aside = self._path.with_name(f"outbox.corrupt-{stamp}")
        for suffix in _BESIDE:
            part = self._path.with_name(self._path.name + suffix)
            if part.exists():
                part.rename(aside.with_name(aside.name + suffix))
        return aside
