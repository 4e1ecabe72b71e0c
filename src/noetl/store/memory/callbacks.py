"""Keys that resume parked commands, by digest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noetl.store.base import Change
    from noetl.store.memory.tables import Tables


class MemoryCallbacks:
    """Keys and whom they wake."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def command_of(self, key_sha256: str) -> tuple[str, str] | None:
        """The execution and command that a key belongs to."""
        return self._tables.callbacks.get(key_sha256)


def write(tables: Tables, change: Change) -> None:
    """Keep the keys of a change, also beyond the run: a late answer is told that it is late."""
    for digest, command_id in change.callbacks.items():
        tables.callbacks[digest] = (change.execution_id, command_id)
