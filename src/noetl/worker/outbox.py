"""Reports on disk while the server cannot take them: one SQLite file, one thread, oldest first.

What is written here is synced before anyone relies on it, and leaves when the server has it.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from noetl.api.events import Report
from noetl.worker.shelf import Shelf

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
_encode: Final = msgspec.json.Encoder().encode
_decoder: Final = msgspec.json.Decoder(Report)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A report as it lies in the outbox."""

    report: Report
    size_bytes: int
    is_last_word: bool = False


class Outbox(Shelf):
    """The reports of one worker that the server does not have yet."""

    name: ClassVar[str] = "outbox.db"
    _setup: ClassVar[tuple[str, ...]] = (
        "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL", _SCHEMA,
    )  # fmt: skip
    _sums: ClassVar[str] = "SELECT count(*), coalesce(sum(size), 0) FROM report"
    _after_damage: ClassVar[str] = "the commands it told of are run again"

    @property
    def share(self) -> float:
        """How much of its limit is used."""
        return self.size_bytes / self.most_bytes

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

    # ------------------------------------------------------------------ in the thread

    def _keep(self, rows: Sequence[tuple[str, bool, int, bytes]]) -> None:
        with self._changing() as database:
            database.executemany(_KEEP, rows)

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
        with self._changing() as database:
            database.executemany(_DROP, [(event_id,) for event_id in event_ids])
        self._emptied()
