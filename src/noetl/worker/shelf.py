"""What lies on the disk of a worker while the server cannot take it: a file, a thread, damage."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

import msgspec

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from noetl.clock import Clock

T = TypeVar("T")

_MODE: Final = 0o600
_BESIDE: Final = ("", "-wal", "-shm")


class OutboxFull(NoetlError):
    """The disk takes no more."""

    code = "outbox_full"
    retryable: ClassVar[bool] = True
    status: ClassVar[int] = 507


class OutboxDamaged(NoetlError):
    """The file was not readable and was moved aside; there is a new, empty one."""

    code = "outbox_damaged"
    events: int = 0
    """How many rows were in it, as far as is known."""


class Shelf:
    """One SQLite file of rows that leave when the server has them, and the thread that uses it."""

    name: ClassVar[str]
    """The file, in the folder of the worker."""
    _setup: ClassVar[tuple[str, ...]]
    """What makes a file ready."""
    _sums: ClassVar[str]
    """Asks how many rows there are, and how large they are in all."""
    _after_damage: ClassVar[str]
    """What becomes of rows that are lost."""

    def __init__(self, folder: Path, most_bytes: int, clock: Clock) -> None:
        self.events = 0
        self.size_bytes = 0
        self.most_bytes = most_bytes
        self.damaged = 0
        self._path = folder / self.name
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"noetl-{self._path.stem}")
        self._database: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Find what the last run left; `OutboxDamaged` says that there is a new, empty file."""
        await self._do(self._open)

    async def close(self) -> None:
        """Let go of the file."""
        await self._do(self._shut)
        self._thread.shutdown()

    async def _do(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, work)

    # ------------------------------------------------------------------ in the thread

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
                hint=self._after_damage,
            )
            damage.events = events
            raise damage from fault

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, _MODE))
        self._shut()
        made = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._database = made
        for statement in self._setup:
            made.execute(statement)
        with closing(made.execute("PRAGMA quick_check(1)")) as found:
            if (verdict := found.fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(verdict)
        self._count()

    def _shut(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """All that the block changes, or nothing of it."""
        database = self._opened()
        database.execute("BEGIN IMMEDIATE")
        try:
            yield database
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
        self._count()

    def _emptied(self) -> None:
        """When nothing is left, the file does not stay as large as it once was."""
        if not self.events:
            self._opened().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _opened(self) -> sqlite3.Connection:
        if self._database is None:
            self._open()
        if self._database is None:
            raise sqlite3.OperationalError("the file is not open")
        return self._database

    def _count(self) -> None:
        with closing(self._opened().execute(self._sums)) as found:
            self.events, self.size_bytes = found.fetchone()

    def _set_aside(self) -> Path:
        self._shut()
        self.damaged += 1
        stamp = self._clock.now().strftime("%Y%m%dT%H%M%S%f")
        aside = self._path.with_name(f"{self._path.stem}.corrupt-{stamp}")
        for suffix in _BESIDE:
            part = self._path.with_name(self._path.name + suffix)
            if part.exists():
                part.rename(aside.with_name(aside.name + suffix))
        return aside
