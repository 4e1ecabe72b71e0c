"""The one memory that all parts of the store share, so that a commit can write them together."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from noetl.store.ranked import Ranked

if TYPE_CHECKING:
    from noetl.store.base import (
        CatalogEntry,
        CommandRow,
        ExecutionRow,
        Line,
        Outgoing,
        RuntimeRow,
        ScheduleRow,
        TimerRow,
    )
    from noetl.store.identity import AccountRow, RoleRow, SessionRow, TenantRow, TokenRow
    from noetl.store.memory.journal import Journal
    from noetl.store.secrets import CredentialRow, KeychainRow
    from noetl.store.subscriptions import DeliveryRow, LetterRow, SubscriptionRow

TimerName = tuple[str, str]


class Tombstone(NamedTuple):
    """What is still told of a closed command; equal ones are kept once."""

    execution_id: str
    step: str
    kind: str
    pool: str | None
    priority: int
    status: str
    attempt: int


@dataclass(slots=True)
class CommandTables:
    """Open commands by every question that is asked of them."""

    rows: dict[str, CommandRow] = field(default_factory=dict)
    closed: dict[str, Tombstone] = field(default_factory=dict)
    stones: dict[Tombstone, Tombstone] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    of_execution: dict[str, dict[str, None]] = field(default_factory=dict)
    of_worker: dict[str, dict[str, None]] = field(default_factory=dict)
    claimable: dict[str, dict[str, Ranked[str]]] = field(default_factory=dict)
    told: Ranked[str] = field(default_factory=Ranked)
    leases: Ranked[str] = field(default_factory=Ranked)


@dataclass(slots=True)
class TimerTables:
    """Timers by run, and in the order in which they fall due."""

    rows: dict[str, dict[str, TimerRow]] = field(default_factory=dict)
    order: Ranked[TimerName] = field(default_factory=Ranked)


@dataclass(slots=True)
class ExecutionTables:
    """The read model by every question that is asked of it."""

    rows: dict[str, ExecutionRow] = field(default_factory=dict)
    by_age: list[tuple[int, str]] = field(default_factory=list)
    children: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    holders: dict[str, dict[str, None]] = field(default_factory=dict)
    dedup: dict[tuple[str, str], tuple[str, str, str]] = field(default_factory=dict)
    """Scope and key to the run, the end of the window and the digest of the wish."""
    windows: Ranked[tuple[str, str]] = field(default_factory=Ranked)


@dataclass(slots=True)
class CatalogTables:
    """Documents by id; ids by tenant and path, in the order of their versions."""

    rows: dict[str, CatalogEntry] = field(default_factory=dict)
    paths: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    active: dict[tuple[str, str], str] = field(default_factory=dict)
    """What a path means."""
    activations: dict[str, int] = field(default_factory=dict)
    """In which order versions became the meaning of their path."""


@dataclass(slots=True)
class IdentityTables:
    """Who there is; bearers by digest, accounts by id."""

    tenants: dict[str, TenantRow] = field(default_factory=dict)
    accounts: dict[str, AccountRow] = field(default_factory=dict)
    identities: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """Tenant, issuer and the issuer's subject to the account."""
    roles: dict[tuple[str, str], RoleRow] = field(default_factory=dict)
    tokens: dict[str, TokenRow] = field(default_factory=dict)
    sessions: dict[str, SessionRow] = field(default_factory=dict)
    attempts: dict[str, tuple[list[str], str]] = field(default_factory=dict)
    """Times of attempts with a password, and until when the name is locked."""


@dataclass(slots=True)
class SecretTables:
    """Sealed secrets: credentials by id, values of the keychain by key, inputs by run and name."""

    credentials: dict[str, CredentialRow] = field(default_factory=dict)
    names: dict[tuple[str, str], str] = field(default_factory=dict)
    """Tenant and name to the credential."""
    keychain: dict[str, KeychainRow] = field(default_factory=dict)
    inputs: dict[str, dict[str, str]] = field(default_factory=dict)
    turns: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Key of a kept value to who makes it anew, and until when."""


@dataclass(slots=True)
class SubscriptionTables:
    """Subscriptions by id, and what became of their messages."""

    rows: dict[str, SubscriptionRow] = field(default_factory=dict)
    outcomes: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Runs of messages, in the order of their ends."""
    letters: defaultdict[str, dict[str, LetterRow]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    deliveries: defaultdict[str, dict[str, DeliveryRow]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    revisions: dict[tuple[str, str], int] = field(default_factory=dict)
    """Of the circuits."""


@dataclass(slots=True)
class Tables:
    """Every table."""

    journals: dict[str, Journal] = field(default_factory=dict)
    snapshots: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    executions: ExecutionTables = field(default_factory=ExecutionTables)
    commands: CommandTables = field(default_factory=CommandTables)
    timers: TimerTables = field(default_factory=TimerTables)
    outbox: OrderedDict[str, tuple[Outgoing, str]] = field(default_factory=OrderedDict)
    """Messages, and when they were committed."""
    callbacks: dict[str, tuple[str, str]] = field(default_factory=dict)
    catalog: CatalogTables = field(default_factory=CatalogTables)
    output: dict[str, dict[tuple[str, int, int], Line]] = field(default_factory=dict)
    runtimes: dict[tuple[str, str], RuntimeRow] = field(default_factory=dict)
    schedules: dict[str, ScheduleRow] = field(default_factory=dict)
    identity: IdentityTables = field(default_factory=IdentityTables)
    secrets: SecretTables = field(default_factory=SecretTables)
    subscriptions: SubscriptionTables = field(default_factory=SubscriptionTables)
    circuits: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """Breakers by tenant and path."""
