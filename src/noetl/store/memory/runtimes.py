"""Processes that made themselves known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from noetl.ids import MACHINES
from noetl.store.errors import NoMachine
from noetl.store.wellformed import must_be_free

if TYPE_CHECKING:
    from noetl.store.base import RuntimeRow
    from noetl.store.memory.tables import Tables


class MemoryRuntimes:
    """Processes by kind and name."""

    def __init__(self, tables: Tables) -> None:
        self._rows = tables.runtimes

    async def join(
        self, row: RuntimeRow, *, silent_since: str, is_bound: bool = False
    ) -> RuntimeRow:
        """Keep a process under its kind and name, with a machine number of its own."""
        name = (row.kind, row.name)
        before = self._rows.get(name)
        if is_bound:
            must_be_free(before, row, silent_since)
        kept = row
        if before is not None:
            kept = msgspec.structs.replace(
                row, runtime_id=before.runtime_id, created_at=before.created_at
            )
        machine = None if before is None else before.machine_id
        taken = self._taken(name, silent_since)
        if machine is None or machine in taken:
            machine = next((number for number in range(MACHINES) if number not in taken), None)
        if machine is None:
            raise NoMachine(f"all {MACHINES} machine numbers are in use")
        self._rows[name] = kept = msgspec.structs.replace(kept, machine_id=machine)
        return kept

    def _taken(self, name: tuple[str, str], silent_since: str) -> set[int | None]:
        return {
            row.machine_id
            for other, row in self._rows.items()
            if other != name and row.heartbeat >= silent_since
        }

    async def beat(
        self,
        kind: str,
        name: str,
        now: str,
        free_slots: int | None = None,
        *,
        pool: str | None = None,
    ) -> bool:
        """Note that a process was heard of; false when it is not known, or not in the pool."""
        row = self._rows.get((kind, name))
        if row is None or pool not in {None, row.pool}:
            return False
        slots = row.free_slots if free_slots is None else free_slots
        self._rows[kind, name] = msgspec.structs.replace(row, heartbeat=now, free_slots=slots)
        return True

    async def mark(self, kind: str, name: str, status: str) -> bool:
        """Give a process a status; false when it is not known."""
        row = self._rows.get((kind, name))
        if row is None:
            return False
        self._rows[kind, name] = msgspec.structs.replace(row, status=status)
        return True

    async def leave(self, kind: str, name: str, *, pool: str | None = None) -> bool:
        """Forget a process; false when it is not known, or not in the pool."""
        row = self._rows.get((kind, name))
        if row is None or pool not in {None, row.pool}:
            return False
        del self._rows[kind, name]
        return True

    async def listed(self, kind: str | None = None, pool: str | None = None) -> list[RuntimeRow]:
        """Known processes, by name."""
        found = (
            row
            for row in self._rows.values()
            if (kind is None or row.kind == kind) and (pool is None or row.pool == pool)
        )
        return sorted(found, key=lambda row: (row.kind, row.name))

    async def forget(self, before: str) -> int:
        """Forget those that were last heard of before; how many there were."""
        old = [name for name, row in self._rows.items() if row.heartbeat < before]
        for name in old:
            del self._rows[name]
        return len(old)
