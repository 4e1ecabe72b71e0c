"""All parts of the store on one database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from noetl.store.postgres.accounts import PostgresAccounts
from noetl.store.postgres.audit import PostgresAudit
from noetl.store.postgres.callbacks import PostgresCallbacks
from noetl.store.postgres.catalog import PostgresCatalog
from noetl.store.postgres.commands import PostgresCommands
from noetl.store.postgres.executions import PostgresExecutions
from noetl.store.postgres.log import PostgresLog
from noetl.store.postgres.messages import PostgresCircuits, PostgresDeliveries, PostgresLetters
from noetl.store.postgres.outbox import PostgresOutbox
from noetl.store.postgres.output import PostgresOutput
from noetl.store.postgres.projections import PostgresProjections
from noetl.store.postgres.reading import PostgresReading
from noetl.store.postgres.records import PostgresRecords
from noetl.store.postgres.rights import PostgresRights
from noetl.store.postgres.roles import PostgresRoles
from noetl.store.postgres.runtimes import PostgresRuntimes
from noetl.store.postgres.schedules import PostgresSchedules
from noetl.store.postgres.secrets import (
    PostgresCredentials,
    PostgresExecutionSecrets,
    PostgresKeychain,
    PostgresTurns,
)
from noetl.store.postgres.sessions import PostgresSessions
from noetl.store.postgres.sign_ins import PostgresSignIns
from noetl.store.postgres.stored import (
    PostgresExports,
    PostgresHeld,
    PostgresRequests,
    PostgresResults,
)
from noetl.store.postgres.subscriptions import (
    PostgresKeys,
    PostgresOutcomes,
    PostgresSubscriptions,
    PostgresTicks,
)
from noetl.store.postgres.tenants import PostgresTenants
from noetl.store.postgres.timers import PostgresTimers
from noetl.store.postgres.tokens import PostgresTokens
from noetl.store.postgres.upkeep import PostgresUpkeep
from noetl.store.postgres.variables import PostgresVariables
from noetl.store.postgres.versions import PostgresVersions

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
    from noetl.store.postgres.database import Database
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

_WARM: Final = 2


class PostgresStore:
    """A store that several servers share."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._log = PostgresLog(database)
        self.log: EventLog = self._log
        self.executions: Executions = PostgresExecutions(database)
        self.reading: Reading = PostgresReading(database)
        self.commands: Commands = PostgresCommands(database)
        self.timers: Timers = PostgresTimers(database)
        self.outbox: Outbox = PostgresOutbox(database)
        self.catalog: Catalog = PostgresCatalog(database)
        self.versions: Versions = PostgresVersions(database)
        self.callbacks: Callbacks = PostgresCallbacks(database)
        self.output: Output = PostgresOutput(database)
        self.runtimes: Runtimes = PostgresRuntimes(database)
        self.schedules: Schedules = PostgresSchedules(database)
        self.tokens: Tokens = PostgresTokens(database)
        self.sessions: Sessions = PostgresSessions(database)
        self.sign_ins: SignIns = PostgresSignIns(database)
        self.accounts: Accounts = PostgresAccounts(database)
        self.rights: Rights = PostgresRights(database)
        self.tenants: Tenants = PostgresTenants(database)
        self.audit: Audit = PostgresAudit(database)
        self.roles: Roles = PostgresRoles(database)
        self.upkeep: Upkeep = PostgresUpkeep(database)
        self.projections: Projections = PostgresProjections(database)
        self.variables: Variables = PostgresVariables(database)
        self.results: Results = PostgresResults(database)
        self.requests: Requests = PostgresRequests(database)
        self.held: Held = PostgresHeld(database)
        self.exports: Exports = PostgresExports(database)
        self.credentials: Credentials = PostgresCredentials(database)
        self.keychain: Keychain = PostgresKeychain(database)
        self.execution_secrets: ExecutionSecrets = PostgresExecutionSecrets(database)
        self.turns: Turns = PostgresTurns(database)
        self.records: Records = PostgresRecords(database)
        self._listen(database)

    def _listen(self, database: Database) -> None:
        """Make the parts that subscriptions need."""
        self.keys: Keys = PostgresKeys(database)
        self.subscriptions: Subscriptions = PostgresSubscriptions(database)
        self.ticks: Ticks = PostgresTicks(database)
        self.outcomes: Outcomes = PostgresOutcomes(database)
        self.letters: Letters = PostgresLetters(database)
        self.deliveries: Deliveries = PostgresDeliveries(database)
        self.circuits: Circuits = PostgresCircuits(database)

    async def warm_up(self) -> None:
        """Have the first connections ready for the first commits."""
        await asyncio.gather(*(self._log.warm_up() for _ in range(_WARM)))

    async def ensure_partitions(self) -> int:
        """Make the partitions of the next months; how many were made."""
        return await self._log.ensure_partitions()

    async def close(self) -> None:
        """Close the connections."""
        await self._database.close()
