"""Variables of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.store.variables import VariableRow


class MemoryVariables:
    """Variables by run, then by name."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, VariableRow]] = {}

    async def put(
        self, execution_id: str, rows: Sequence[VariableRow], *, now: str, most: int
    ) -> bool:
        """Keep variables, all of them or none."""
        known = self._live(execution_id, now)
        if len(known.keys() | {row.var_name for row in rows}) > most:
            return False
        for row in rows:
            before = known.get(row.var_name)
            known[row.var_name] = msgspec.structs.replace(
                row,
                created_at=now if before is None else before.created_at,
                accessed_at=None if before is None else before.accessed_at,
                access_count=0 if before is None else before.access_count,
            )
        self._runs[execution_id] = known
        return True

    async def get(self, execution_id: str, var_name: str, *, now: str) -> VariableRow | None:
        """One variable; the read is counted."""
        known = self._live(execution_id, now)
        found = known.get(var_name)
        if found is None:
            return None
        read = msgspec.structs.replace(found, accessed_at=now, access_count=found.access_count + 1)
        known[var_name] = read
        self._runs[execution_id] = known
        return read

    async def listed(
        self, execution_id: str, *, now: str, after: str = "", limit: int = 100
    ) -> list[VariableRow]:
        """Variables of a run by name."""
        known = self._live(execution_id, now)
        return [known[name] for name in sorted(known) if name > after][:limit]

    async def delete(self, execution_id: str, var_name: str, *, now: str) -> bool:
        """Forget a variable; false when it is not there."""
        self._runs[execution_id] = known = self._live(execution_id, now)
        return known.pop(var_name, None) is not None

    async def clear(self, execution_id: str) -> int:
        """Forget all variables of a run."""
        return len(self._runs.pop(execution_id, {}))

    def _live(self, execution_id: str, now: str) -> dict[str, VariableRow]:
        """The variables of a run whose time has not passed."""
        return {
            name: row
            for name, row in self._runs.get(execution_id, {}).items()
            if row.expires_at is None or row.expires_at > now
        }
