"""Attempts with passwords."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl.store.memory.tables import Tables


class MemorySignIns:
    """Attempts by name."""

    def __init__(self, tables: Tables) -> None:
        self._rows = tables.identity.attempts

    async def attempt(
        self, name: str, now: str, *, since: str, most: int, until: str
    ) -> str | None:
        """Count an attempt before it is checked; until when the name is locked, if it is."""
        times, locked = self._rows.get(name, ([], ""))
        if locked > now:
            return locked
        times = [*(time for time in times if time > since), now]
        self._rows[name] = (times, until if len(times) >= most else "")
        return None

    async def forgive(self, name: str) -> None:
        """Forget the attempts of a name: it was right."""
        self._rows.pop(name, None)

    async def forget(self, before: str) -> int:
        """Drop names whose last attempt and lock lie before; how many there were."""
        old = [name for name, (times, locked) in self._rows.items() if max(*times, locked) < before]
        for name in old:
            del self._rows[name]
        return len(old)
