"""Timers in the order in which they fall due; those of a paused run wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.clock import rfc3339
from noetl.store.base import TimerRow
from noetl.store.postgres.documents import shown
from noetl.store.postgres.values import moment, told

if TYPE_CHECKING:
    from noetl.store.postgres.database import Database

_DUE: Final = """
select execution_id, timer_key, kind, due_at from noetl.timer
where due_at <= $1 and not is_paused order by due_at, execution_id, timer_key limit $2"""
_NEXT_DUE: Final = "select min(due_at) from noetl.timer where not is_paused"


class PostgresTimers:
    """Timers that are to fire."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def due(self, now: str, limit: int = 1000) -> list[TimerRow]:
        """Timers whose time has come, oldest first."""
        return [
            TimerRow(
                execution_id=str(row["execution_id"]),
                timer_key=shown(row["timer_key"]),
                kind=row["kind"],
                due_at=rfc3339(row["due_at"]),
            )
            for row in await self._database.background.fetch(_DUE, moment(now), limit)
        ]

    async def next_due(self) -> str | None:
        """When the next timer is due."""
        return told(await self._database.background.fetchval(_NEXT_DUE))
