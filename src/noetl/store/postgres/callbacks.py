"""Keys that resume parked commands, by digest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from noetl.store.postgres.documents import stored

if TYPE_CHECKING:
    from noetl.store.postgres.database import Database

_COMMAND_OF: Final = "select execution_id, command_id from noetl.callback where key_sha256 = $1"


class PostgresCallbacks:
    """Keys and whom they wake."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def command_of(self, key_sha256: str) -> tuple[str, str] | None:
        """The execution and command that a key belongs to."""
        row = await self._database.fetchrow(_COMMAND_OF, stored(key_sha256))
        return None if row is None else (str(row["execution_id"]), str(row["command_id"]))
