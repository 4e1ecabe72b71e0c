"""Open commands in the order in which they are claimed, hinted and lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from noetl.store.base import CommandRow, Queue
from noetl.store.memory.executions import is_paused
from noetl.store.memory.tables import Tombstone
from noetl.store.ranked import Ranked, age

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.base import Change
    from noetl.store.memory.tables import CommandTables, Tables

_OPEN: Final = frozenset({"PENDING", "CLAIMED", "PARKED"})


class MemoryCommands:
    """Commands, for claims and leases."""

    def __init__(self, tables: Tables) -> None:
        self._table = tables.commands

    async def get(self, command_id: str) -> CommandRow | None:
        """One command; of a closed one only what a refusal tells."""
        row = self._table.rows.get(command_id)
        stone = self._table.closed.get(command_id)
        if row is not None or stone is None:
            return row
        return CommandRow(command_id=command_id, command_key="", **stone._asdict())

    async def those(self, ids: Sequence[str]) -> dict[str, CommandRow]:
        """Several commands by their ids, those that there are."""
        return {text: row for text in ids if (row := await self.get(text)) is not None}

    async def pending(
        self, pool: str, limit: int, exclude_kinds: Sequence[str] = ()
    ) -> list[CommandRow]:
        """Claimable commands of a pool: higher priority first, then oldest."""
        queues = self._table.claimable.get(pool, {})
        found = [
            entry
            for kind, queue in queues.items()
            if kind not in exclude_kinds
            for entry in queue.lowest(limit)
        ]
        if len(queues) > 1:
            found.sort()
        return [self._table.rows[command_id] for _, _, command_id in found[:limit]]

    async def extend(
        self,
        worker_id: str,
        held: Sequence[tuple[str, int]],
        until: str,
        *,
        pool: str | None = None,
    ) -> list[str]:
        """Extend leases; the commands that this worker still holds under that attempt."""
        extended = []
        for command_id, attempt in held:
            row = self._table.rows.get(command_id)
            if row is None or not _is_held(row, worker_id, attempt) or pool not in {None, row.pool}:
                continue
            extended.append(command_id)
            if row.lease_until is None or row.lease_until < until:
                self._table.rows[command_id] = msgspec.structs.replace(row, lease_until=until)
                self._table.leases.put(command_id, until)
        return extended

    async def keep(self, command_id: str, attempt: int, checkpoint: object) -> None:
        """Keep how far an attempt is, for the next one if this one is lost."""
        row = self._table.rows.get(command_id)
        if row is not None and row.status == "CLAIMED" and row.attempt == attempt:
            self._table.kept[command_id] = checkpoint
            self._table.rows[command_id] = msgspec.structs.replace(row, checkpoint=checkpoint)

    async def expired(self, now: str, limit: int = 1000) -> list[CommandRow]:
        """Claimed commands whose lease has ended."""
        return [self._table.rows[key] for key in self._table.leases.keys(limit, (now,))]

    async def unhinted(self, before: str, limit: int = 1000, *, told: str = "") -> list[CommandRow]:
        """Pending commands that nobody claimed or was told of since; they count as told now."""
        found = self._table.told.keys(limit, (before,))
        for command_id in found:
            self._table.told.put(command_id, max(told, before))
        return [self._table.rows[command_id] for command_id in found]

    async def of_worker(self, worker_id: str) -> list[CommandRow]:
        """Commands that a worker holds."""
        held = self._table.of_worker.get(worker_id, ())
        return [self._table.rows[command_id] for command_id in held]

    async def queues(self) -> list[Queue]:
        """Every pool that has open commands, and how many."""
        found: dict[str, list[CommandRow]] = {}
        for row in self._table.rows.values():
            if row.pool is not None and row.status in {"PENDING", "CLAIMED"}:
                found.setdefault(row.pool, []).append(row)
        return [_queue(pool, rows) for pool, rows in sorted(found.items())]


def write(tables: Tables, change: Change) -> None:
    """Keep the commands of a change; those of a run that has ended are closed at once."""
    table = tables.commands
    waits = is_paused(tables, change.execution_id)
    for row in change.commands:
        _leave(table, row.command_id)
        if row.status in _OPEN:
            _enter(table, _carried_over(table, row), waits=waits)
        else:
            _close(table, row)
    if change.execution.completed_at is not None:
        for command_id in list(table.of_execution.get(change.execution_id, ())):
            _leave(table, command_id)
            _close(table, msgspec.structs.replace(table.rows[command_id], status="CANCELLED"))


def turned(tables: Tables, execution_id: str) -> None:
    """A run was paused or resumed: its pending commands can be claimed no more, or again."""
    table = tables.commands
    waits = is_paused(tables, execution_id)
    for command_id in list(table.of_execution.get(execution_id, ())):
        row = table.rows[command_id]
        _leave(table, command_id)
        _enter(table, row, waits=waits)


def _queue(pool: str, rows: list[CommandRow]) -> Queue:
    pending = [row for row in rows if row.status == "PENDING"]
    return Queue(
        pool=pool,
        pending=len(pending),
        claimed=len(rows) - len(pending),
        oldest_at=min((row.available_at for row in pending), default=None),
    )


def _is_held(row: CommandRow, worker_id: str, attempt: int) -> bool:
    return row.status == "CLAIMED" and row.worker_id == worker_id and row.attempt == attempt


def _carried_over(table: CommandTables, row: CommandRow) -> CommandRow:
    """The row as written, with what the writer does not know.

    That is since when it was claimable and what beats have told: an extended lease, a checkpoint.
    A park brings a newer checkpoint of its own.
    """
    before = table.rows.get(row.command_id)
    if row.status == "PARKED":
        table.kept.pop(row.command_id, None)
    elif row.command_id in table.kept:
        row = msgspec.structs.replace(row, checkpoint=table.kept[row.command_id])
    if before is not None and not row.available_at:
        row = msgspec.structs.replace(row, available_at=before.available_at)
    if before is None or before.lease_until is None or row.lease_until is None:
        return row
    if _is_held(before, row.worker_id or "", row.attempt) and before.lease_until > row.lease_until:
        return msgspec.structs.replace(row, lease_until=before.lease_until)
    return row


def _enter(table: CommandTables, row: CommandRow, *, waits: bool) -> None:
    command_id = row.command_id
    table.rows[command_id] = row
    table.of_execution.setdefault(row.execution_id, {})[command_id] = None
    if row.status == "CLAIMED":
        table.of_worker.setdefault(row.worker_id or "", {})[command_id] = None
        if row.lease_until is not None:
            table.leases.put(command_id, row.lease_until)
    elif row.status == "PENDING" and row.pool is not None and not waits:
        kinds = table.claimable.setdefault(row.pool, {})
        queue = kinds.setdefault(row.kind, Ranked())
        queue.put(command_id, -row.priority, row.available_at, *age(command_id))
        table.told.put(command_id, row.available_at)


def _leave(table: CommandTables, command_id: str) -> None:
    """Take a command out of every order that its status had put it in."""
    row = table.rows.get(command_id)
    if row is None:
        return
    if row.status == "CLAIMED":
        table.leases.drop(command_id)
        held = table.of_worker.get(row.worker_id or "", {})
        held.pop(command_id, None)
        if not held:
            table.of_worker.pop(row.worker_id or "", None)
    elif row.status == "PENDING" and row.pool is not None:
        table.told.drop(command_id)
        queue = table.claimable.get(row.pool, {}).get(row.kind)
        if queue is not None:
            queue.drop(command_id)


def _close(table: CommandTables, row: CommandRow) -> None:
    command_id = row.command_id
    table.rows.pop(command_id, None)
    table.kept.pop(command_id, None)
    siblings = table.of_execution.get(row.execution_id, {})
    siblings.pop(command_id, None)
    if not siblings:
        table.of_execution.pop(row.execution_id, None)
    stone = Tombstone(
        execution_id=row.execution_id,
        step=row.step,
        kind=row.kind,
        pool=row.pool,
        priority=row.priority,
        status=row.status,
        attempt=row.attempt,
    )
    table.closed[command_id] = table.stones.setdefault(stone, stone)
