"""All parts of the store on one database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from noetl.store.postgres.callbacks import PostgresCallbacks
from noetl.store.postgres.catalog import PostgresCatalog
from noetl.store.postgres.commands import PostgresCommands
from noetl.store.postgres.executions import PostgresExecutions
from noetl.store.postgres.log import PostgresLog
from noetl.store.postgres.outbox import PostgresOutbox
from noetl.store.postgres.output import PostgresOutput
from noetl.store.postgres.roles import PostgresRoles
from noetl.store.postgres.runtimes import PostgresRuntimes
from noetl.store.postgres.schedules import PostgresSchedules
from noetl.store.postgres.timers import PostgresTimers
from noetl.store.postgres.tokens import PostgresTokens

if TYPE_CHECKING:
    from noetl.store.base import (
        Callbacks,
        Catalog,
        Commands,
        EventLog,
        Executions,
        Outbox,
        Output,
        Roles,
        Runtimes,
        Schedules,
        Timers,
        Tokens,
    )
    from noetl.store.postgres.database import Database

_WARM: Final = 2


class PostgresStore:
    """A store that several servers share."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._log = PostgresLog(database)
        self.log: EventLog = self._log
        self.executions: Executions = PostgresExecutions(database)
        self.commands: Commands = PostgresCommands(database)
        self.timers: Timers = PostgresTimers(database)
        self.outbox: Outbox = PostgresOutbox(database)
        self.catalog: Catalog = PostgresCatalog(database)
        self.callbacks: Callbacks = PostgresCallbacks(database)
        self.output: Output = PostgresOutput(database)
        self.runtimes: Runtimes = PostgresRuntimes(database)
        self.schedules: Schedules = PostgresSchedules(database)
        self.tokens: Tokens = PostgresTokens(database)
        self.roles: Roles = PostgresRoles(database)

    async def warm_up(self) -> None:
        """Have the first connections ready for the first commits."""
        await asyncio.gather(*(self._log.warm_up() for _ in range(_WARM)))

    async def ensure_partitions(self) -> int:
        """Make the partitions of the next months; how many were made."""
        return await self._log.ensure_partitions()

    async def close(self) -> None:
        """Close the connections."""
        await self._database.close()
