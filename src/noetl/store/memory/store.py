"""All parts of the store on one memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noetl.store.memory.accounts import MemoryAccounts
from noetl.store.memory.audit import MemoryAudit
from noetl.store.memory.callbacks import MemoryCallbacks
from noetl.store.memory.catalog import MemoryCatalog
from noetl.store.memory.commands import MemoryCommands
from noetl.store.memory.executions import MemoryExecutions
from noetl.store.memory.log import MemoryLog
from noetl.store.memory.outbox import MemoryOutbox
from noetl.store.memory.output import MemoryOutput
from noetl.store.memory.projections import MemoryProjections
from noetl.store.memory.reading import MemoryReading
from noetl.store.memory.records import MemoryRecords
from noetl.store.memory.rights import MemoryRights
from noetl.store.memory.roles import MemoryRoles
from noetl.store.memory.runtimes import MemoryRuntimes
from noetl.store.memory.schedules import MemorySchedules
from noetl.store.memory.secrets import (
    MemoryCredentials,
    MemoryExecutionSecrets,
    MemoryKeychain,
    MemoryTurns,
)
from noetl.store.memory.sessions import MemorySessions
from noetl.store.memory.sign_ins import MemorySignIns
from noetl.store.memory.stored import (
    MemoryExports,
    MemoryHeld,
    MemoryRequests,
    MemoryResults,
)
from noetl.store.memory.subscriptions import (
    MemoryCircuits,
    MemoryDeliveries,
    MemoryKeys,
    MemoryLetters,
    MemoryOutcomes,
    MemorySubscriptions,
    MemoryTicks,
)
from noetl.store.memory.tables import Tables
from noetl.store.memory.tenants import MemoryTenants
from noetl.store.memory.timers import MemoryTimers
from noetl.store.memory.tokens import MemoryTokens
from noetl.store.memory.upkeep import MemoryUpkeep
from noetl.store.memory.variables import MemoryVariables
from noetl.store.memory.versions import MemoryVersions

if TYPE_CHECKING:
    from noetl.store.audit import Audit
    from noetl.store.base import (
        Callbacks,
        Catalog,
        Commands,
        EventLog,
        Executions,
        Outbox,
        Output,
        Projections,
        Roles,
        Runtimes,
        Schedules,
        Timers,
    )
    from noetl.store.identity import Accounts, Rights, Sessions, SignIns, Tenants, Tokens
    from noetl.store.memory.log import Listener
    from noetl.store.reading import Reading
    from noetl.store.secrets import Credentials, ExecutionSecrets, Keychain, Records, Turns
    from noetl.store.stored import Exports, Held, Requests, Results
    from noetl.store.subscriptions import (
        Circuits,
        Deliveries,
        Keys,
        Letters,
        Outcomes,
        Subscriptions,
        Ticks,
    )
    from noetl.store.upkeep import Upkeep
    from noetl.store.variables import Variables
    from noetl.store.versions import Versions


class MemoryStore:
    """A store that ends with its process; `on_commit` is told the events of every commit."""

    def __init__(self, on_commit: Listener | None = None) -> None:
        tables = Tables()
        self.log: EventLog = MemoryLog(tables, on_commit)
        self.executions: Executions = MemoryExecutions(tables)
        self.reading: Reading = MemoryReading(tables)
        self.commands: Commands = MemoryCommands(tables)
        self.timers: Timers = MemoryTimers(tables)
        self.outbox: Outbox = MemoryOutbox(tables)
        self.catalog: Catalog = MemoryCatalog(tables)
        self.versions: Versions = MemoryVersions(tables)
        self.callbacks: Callbacks = MemoryCallbacks(tables)
        self.output: Output = MemoryOutput(tables)
        self.runtimes: Runtimes = MemoryRuntimes(tables)
        self.schedules: Schedules = MemorySchedules(tables)
        self.tokens: Tokens = MemoryTokens(tables)
        self.sessions: Sessions = MemorySessions(tables)
        self.sign_ins: SignIns = MemorySignIns(tables)
        self.accounts: Accounts = MemoryAccounts(tables)
        self.rights: Rights = MemoryRights(tables)
        self.tenants: Tenants = MemoryTenants(tables)
        self.audit: Audit = MemoryAudit()
        self.roles: Roles = MemoryRoles()
        self.upkeep: Upkeep = MemoryUpkeep(tables)
        self.projections: Projections = MemoryProjections(tables)
        self.variables: Variables = MemoryVariables()
        self.results: Results = MemoryResults(tables)
        self.requests: Requests = MemoryRequests()
        self.held: Held = MemoryHeld()
        self.exports: Exports = MemoryExports(tables)
        self.credentials: Credentials = MemoryCredentials(tables)
        self.keychain: Keychain = MemoryKeychain(tables)
        self.execution_secrets: ExecutionSecrets = MemoryExecutionSecrets(tables)
        self.turns: Turns = MemoryTurns(tables)
        self.records: Records = MemoryRecords(tables)
        self.keys: Keys = MemoryKeys(tables)
        self.subscriptions: Subscriptions = MemorySubscriptions(tables)
        self.ticks: Ticks = MemoryTicks(tables)
        self.outcomes: Outcomes = MemoryOutcomes(tables)
        self.letters: Letters = MemoryLetters(tables)
        self.deliveries: Deliveries = MemoryDeliveries(tables)
        self.circuits: Circuits = MemoryCircuits(tables)
