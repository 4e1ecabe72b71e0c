"""Retention: what is old goes, in small pieces, and nothing of a run that lives."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from noetl.api.internal import KeptPartition, Purged
from noetl.edge.errors import Unacceptable
from noetl.edge.moments import from_now
from noetl.store.errors import DatabaseBusy

if TYPE_CHECKING:
    from noetl.api.internal import Purge
    from noetl.server.metrics import ServerMetrics
    from noetl.server.parts import ServerParts
    from noetl.server.values.inventory import Inventory
    from noetl.store.upkeep import Partition, Table

DAY_S: Final = 86_400.0
HOUR_S: Final = 3_600.0
MOST_DAYS: Final = 36_500
RUNS: Final = 200
"""How many runs are deleted together."""
REST_S: Final = 0.05
"""Between two deletions, so that others get to the disk."""
KEPT_S: Final[dict[Table, float]] = {
    "command": 7 * DAY_S,
    "dedup": 0.0,
    "outbox": HOUR_S,
    "log": 14 * DAY_S,
    "result": 0.0,
    "variable": 0.0,
    "session": 0.0,
    "keychain": 0.0,
    "callback": 0.0,
    "request": 0.0,
    "delivery": 7 * DAY_S,
    "outcome": 7 * DAY_S,
}
"""How long rows are kept after they have served: by table."""
_EVENT: Final = "event"
_LOG: Final = "log"
_log: Final = logging.getLogger(__name__)


class Retention:
    """Lets go of what is old."""

    def __init__(
        self, parts: ServerParts, metrics: ServerMetrics, inventory: Inventory | None = None
    ) -> None:
        self._inventory = inventory
        """None: objects of forgotten runs are left to those who collect what no row names."""
        self._store = parts.store
        self._clock = parts.clock
        self._days = parts.retention_days
        self._metrics = metrics
        self._at_work = asyncio.Lock()

    async def turn(self) -> None:
        """One round over everything, by the rules of the installation."""
        async with self._at_work:
            await self._turn()

    async def _turn(self) -> None:
        await self._store.upkeep.ensure_partitions()
        if self._inventory is not None:
            expired = await self._inventory.expire()
            self._metrics.cleanup_rows_purged.inc("result", by=expired)
        for table, kept_s in KEPT_S.items():
            await self._rows(table, from_now(self._clock, -kept_s))
        await self._log_months(from_now(self._clock, -KEPT_S["log"]))
        if self._days:
            before = from_now(self._clock, -self._days * DAY_S)
            await self.months(before)
            await self._runs(before)

    async def purge(self, body: Purge) -> Purged:
        """Let go of what a caller names; a dry run only says what would go."""
        for name in ("command_retention_days", "event_retention_days"):
            if not 0 <= getattr(body, name) <= MOST_DAYS:
                raise Unacceptable(f"`{name}` is not in 0..{MOST_DAYS}")
        if not 0 <= body.runtime_stale_minutes <= MOST_DAYS:
            raise Unacceptable(f"`runtime_stale_minutes` is not in 0..{MOST_DAYS}")
        async with self._at_work:
            return await self._purged(body)

    async def _purged(self, body: Purge) -> Purged:
        commands = await self._unless_kept("command", body.command_retention_days, body.dry_run)
        dropped: list[str] = []
        kept: list[Partition] = []
        if body.event_retention_days:
            before = from_now(self._clock, -body.event_retention_days * DAY_S)
            dropped, kept = await self.months(before, is_dry=body.dry_run)
        now = from_now(self._clock, 0)
        return Purged(
            commands_purged=commands,
            runtime_purged=await self._processes(body),
            dedup_purged=await self._rows("dedup", now, is_dry=body.dry_run) if body.dedup else 0,
            event_partitions_dropped=tuple(dropped),
            event_partitions_kept=tuple(
                KeptPartition(partition=part.name, blockers=part.blockers) for part in kept
            ),
            dry_run=body.dry_run,
        )

    async def _unless_kept(self, table: Table, days: int, is_dry: bool) -> int:  # noqa: FBT001 - handed on as it came
        if not days:
            return 0
        return await self._rows(table, from_now(self._clock, -days * DAY_S), is_dry=is_dry)

    async def _processes(self, body: Purge) -> int:
        if not body.runtime_stale_minutes:
            return 0
        before = from_now(self._clock, -body.runtime_stale_minutes * 60)
        if body.dry_run:
            rows = await self._store.runtimes.listed()
            return sum(row.heartbeat < before for row in rows)
        return await self._store.runtimes.forget(before)

    async def _rows(self, table: Table, before: str, *, is_dry: bool = False) -> int:
        """Delete old rows of a table, some at a time."""
        upkeep = self._store.upkeep
        if is_dry:
            return await upkeep.purge(table, before, is_dry=True)
        count = 0
        while deleted := await upkeep.purge(table, before):
            count += deleted
            self._metrics.cleanup_rows_purged.inc(table, by=deleted)
            await asyncio.sleep(REST_S)
        return count

    # ------------------------------------------------------------------------ runs and months

    async def months(
        self, before: str, *, is_dry: bool = False
    ) -> tuple[list[str], list[Partition]]:
        """Drop the months before a moment with the runs in them; which went, and which stay."""
        every = await self._store.upkeep.partitions(before)
        old = [part for part in every if part.is_old and part.table == _EVENT]
        logs = {part.first_id: part.name for part in every if part.table == _LOG}
        kept = [part for part in old if part.blockers]
        dropped: list[str] = []
        for part in old:
            if part.blockers:
                continue
            if not is_dry:
                await self._runs(before, month=part)
                if not await self._dropped(part.name):
                    continue
                if part.first_id in logs:
                    await self._dropped(logs[part.first_id])
            dropped.append(part.name)
        return dropped, kept

    async def _log_months(self, before: str) -> None:
        for part in await self._store.upkeep.partitions(before):
            if part.is_old and part.table == _LOG and not part.blockers:
                await self._dropped(part.name)

    async def _dropped(self, name: str) -> bool:
        try:
            blockers = await self._store.upkeep.drop_partition(name)
        except DatabaseBusy as busy:  # the next round tries again
            _log.info("a month stays for now", extra={"partition": name, "reason": busy.message})
            return False
        if not blockers:
            _log.info("a month was dropped", extra={"partition": name})
        return not blockers

    async def _runs(self, before: str, *, month: Partition | None = None) -> None:
        """Delete old runs with everything of theirs, some at a time."""
        upkeep = self._store.upkeep
        while ids := await upkeep.old_runs(before, RUNS, month=month):
            inventory = self._inventory
            objects = () if inventory is None else await inventory.forgotten(ids)
            rows = await upkeep.forget_runs(ids, spares_events=month is not None)
            if inventory is not None:
                await inventory.drop(objects)
            self._metrics.cleanup_rows_purged.inc("execution", by=len(ids))
            self._metrics.cleanup_rows_purged.inc("event", by=max(0, rows - len(ids)))
            await asyncio.sleep(REST_S)
