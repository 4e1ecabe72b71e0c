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
from noetl.store.memory.tables import Tables
from noetl.store.memory.timers import MemoryTimers

if TYPE_CHECKING:
    from noetl.store.base import (
        Callbacks,
        Catalog,
        Commands,
        EventLog,
        Executions,
        Outbox,
        Output,
        Timers,
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
