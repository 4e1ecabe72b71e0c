"""What is known of bytes that lie apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from noetl.store.stored import Forgotten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.memory.tables import Tables
    from noetl.store.stored import HeldRow, RequestRow, ResultRow


class MemoryResults:
    """Rows by key."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._rows: dict[str, ResultRow] = {}

    async def keep(self, row: ResultRow) -> None:
        """Say whose a value is."""
        before = self._rows.get(row.key)
        if before is not None:
            kept = {"result_id": before.result_id, "created_at": before.created_at}
            row = msgspec.structs.replace(row, **kept)
        self._rows[row.key] = row

    async def found(self, keys: Sequence[str]) -> dict[str, ResultRow]:
        """Rows by key."""
        return {key: self._rows[key] for key in keys if key in self._rows}

    async def forget_expired(self, now: str, limit: int = 1000) -> list[Forgotten]:
        """Forget values whose time has passed, or whose step's run has ended."""
        rows = sorted(self._rows.values(), key=lambda row: int(row.result_id))
        over = [row.key for row in rows if self._is_over(row, now)][:limit]
        for key in over:
            del self._rows[key]
        return [Forgotten(key, key) for key in over]

    async def delete(self, keys: Sequence[str]) -> int:
        """Forget rows."""
        return sum(self._rows.pop(key, None) is not None for key in keys)

    async def ownerless(self, execution_ids: Sequence[str]) -> frozenset[str]:
        """Those of the runs that there are not."""
        return frozenset(execution_ids) - self._tables.executions.rows.keys()

    def _is_over(self, row: ResultRow, now: str) -> bool:
        if row.expires_at is not None and row.expires_at <= now:
            return True
        run = self._tables.executions.rows.get(row.execution_id or "")
        return row.scope == "step" and run is not None and run.completed_at is not None


class MemoryRequests:
    """Results of clients' requests."""

    def __init__(self) -> None:
        self._rows: dict[str, RequestRow] = {}

    async def first(self, row: RequestRow, now: str) -> RequestRow:
        """Keep the result of a request; the one that counts."""
        found = await self.get(row.request_id, now)
        if found is None:
            self._rows[row.request_id] = found = row
        return found

    async def get(self, request_id: str, now: str) -> RequestRow | None:
        """The result of a request, unless its time has passed."""
        found = self._rows.get(request_id)
        is_over = found is not None and found.expires_at is not None and found.expires_at <= now
        return None if is_over else found


class MemoryHeld:
    """Callbacks that wait, by run, step and job."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str, str], HeldRow] = {}

    async def put(self, row: HeldRow) -> bool:
        """Keep a callback; false when one of that job is kept already."""
        return self._rows.setdefault(_key(row), row) is row

    async def waiting(self, limit: int = 1000) -> list[HeldRow]:
        """Callbacks that wait."""
        return sorted(self._rows.values(), key=lambda row: row.expires_at)[:limit]

    async def drop(self, row: HeldRow) -> bool:
        """Forget a callback."""
        return self._rows.pop(_key(row), None) is not None


class MemoryExports:
    """Runs that hold data."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._marked: set[str] = set()

    async def mark(self, execution_ids: Sequence[str], *, is_unexported: bool) -> list[str]:
        """Say of runs whether they hold data."""
        known = [run for run in dict.fromkeys(execution_ids) if run in self._tables.executions.rows]
        if is_unexported:
            self._marked.update(known)
        else:
            self._marked.difference_update(known)
        return known

    async def unexported(self, execution_ids: Sequence[str]) -> frozenset[str]:
        """Those of the runs that do."""
        return frozenset(execution_ids) & self._marked


def _key(row: HeldRow) -> tuple[str, str, str]:
    return row.execution_id, row.step, row.job_name
