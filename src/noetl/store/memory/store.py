"""All parts of the store on one memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.store.memory.callbacks import MemoryCallbacks
from noetl.store.memory.catalog import MemoryCatalog
from noetl.store.memory.commands import MemoryCommands
from noetl.store.memory.executions import MemoryExecutions
from noetl.store.memory.log import MemoryLog
from noetl.store.memory.outbox import MemoryOutbox
from noetl.store.memory.output import MemoryOutput
from noetl.store.memory.roles import MemoryRoles
from noetl.store.memory.runtimes import MemoryRuntimes
from noetl.store.memory.schedules import MemorySchedules
from noetl.store.memory.tables import Tables
from noetl.store.memory.timers import MemoryTimers
from noetl.store.memory.tokens import MemoryTokens

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
    from noetl.store.memory.log import Listener


class MemoryStore:
    """A store that ends with its process; `on_commit` is told the events of every commit."""

    def __init__(self, on_commit: Listener | None = None) -> None:
        tables = Tables()
        self.log: EventLog = MemoryLog(tables, on_commit)
        self.executions: Executions = MemoryExecutions(tables)
        self.commands: Commands = MemoryCommands(tables)
        self.timers: Timers = MemoryTimers(tables)
        self.outbox: Outbox = MemoryOutbox(tables)
        self.catalog: Catalog = MemoryCatalog(tables)
        self.callbacks: Callbacks = MemoryCallbacks(tables)
        self.output: Output = MemoryOutput(tables)
        self.runtimes: Runtimes = MemoryRuntimes(tables)
        self.schedules: Schedules = MemorySchedules(tables)
        self.tokens: Tokens = MemoryTokens(tables)
        self.roles: Roles = MemoryRoles()
