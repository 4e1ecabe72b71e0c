"""What a store keeps, as one Protocol per kind of fact, and the one change that writes them.

Everything that follows from one append is written by one `commit`: events, the read model of the
run, its commands, timers and outgoing messages. Whoever loses a race writes nothing.

Long because the ports of one store, and the rows that they speak of, are read together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from noetl.engine.events import Recorded  # noqa: TC001 - msgspec reads the types of the fields

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from noetl.store.audit import Audit
    from noetl.store.identity import Accounts, Rights, Sessions, SignIns, Tenants, Tokens
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
    from noetl.store.upkeep import Figures, Upkeep
    from noetl.store.variables import Variables
    from noetl.store.versions import Versions


class CommandRow(msgspec.Struct, frozen=True, kw_only=True):
    """A command as claims see it; `command_id` is the id of its `command.issued`.

    A commit does not undo what beats have told meanwhile: the lease of the same holder and attempt
    is never shortened, a kept checkpoint stays until the command parks, and an empty
    `available_at` leaves the time that is known. Of a closed command at least the execution, step,
    status and attempt are told.
    """

    execution_id: str
    command_id: str
    command_key: str
    step: str
    kind: str
    pool: str | None
    priority: int
    status: str
    """PENDING, CLAIMED (running when `started_at` is set), PARKED, COMPLETED, FAILED, CANCELLED."""
    attempt: int
    losses: int = 0
    max_attempts: int = 3
    worker_id: str | None = None
    lease_until: str | None = None
    started_at: str | None = None
    available_at: str = ""
    checkpoint: Any = None


class TimerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A timer that is to fire."""

    execution_id: str
    timer_key: str
    kind: str
    due_at: str


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message that follows from a commit: to a child, to a parent, or to waiting runs.

    `kind` is `start_child`, `return`, `cancel_child`, `admit`, or `events`: the rows
    `first_seq..last_seq` are to be published.
    """

    outgoing_id: str
    execution_id: str
    kind: str
    payload: dict[str, Any]


class ExecutionRow(msgspec.Struct, frozen=True, kw_only=True):
    """The read model of a run, written with every append.

    What the start tells (`workload`, `labels`, `trace`, ...) never changes; `result` and `error`
    come with the end.
    """

    execution_id: str
    status: str
    catalog_id: str
    path: str
    version: int
    pool: str
    priority: int
    last_seq: int
    last_event_id: str
    started_at: str
    updated_at: str
    completed_at: str | None = None
    parent_execution_id: str | None = None
    parent_key: str | None = None
    concurrency_key: str | None = None
    dedup_key: str | None = None
    rerun_of: str | None = None
    forked_from: dict[str, Any] | None = None
    current_steps: tuple[str, ...] = ()
    progress: dict[str, int] = {}
    pending_commands: int = 0
    labels: dict[str, Any] = {}
    tenant_id: str = "default"
    organization_id: str = "default"
    kind: str = "playbook"
    root_execution_id: str | None = None
    last_event_type: str = ""
    workload: dict[str, Any] = {}
    result: Any = None
    """Inline, or `{"reference": {...}}` when it lies apart."""
    error: dict[str, Any] | None = None
    trace: dict[str, Any] | None = None
    created_by: str = ""
    request_id: str | None = None
    client_id: str | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """All that one commit writes for one execution."""

    execution_id: str
    expected_seq: int
    """`last_seq` before; 0 for a run that is to begin."""
    events: tuple[Recorded, ...]
    execution: ExecutionRow
    commands: tuple[CommandRow, ...] = ()
    timers: tuple[TimerRow, ...] = ()
    timers_gone: tuple[str, ...] = ()
    outgoing: tuple[Outgoing, ...] = ()
    callbacks: dict[str, str] = {}
    """Digest of a callback key to the command's id."""
    dedup: tuple[str, str, str] | None = None
    """Scope, key and end of the window under which this run was started."""
    dedup_digest: str = ""
    """What was asked for under that key, so that another wish under the same key is noticed."""
    replay: tuple[str, str, str] | None = None
    """A second key of the same kind; the run begins only if both are free."""
    snapshot: bytes | None = None


class Commit(Protocol):
    """Writes changes, as `EventLog.commit` does."""

    async def __call__(
        self, changes: Sequence[Change], delivered: Sequence[str] = ()
    ) -> frozenset[str]:
        """The executions that lost a race."""


class EventLog(Protocol):
    """The log: append with everything that follows, read in order."""

    async def commit(
        self, changes: Sequence[Change], delivered: Sequence[str] = ()
    ) -> frozenset[str]:
        """Write all changes at once; the executions that lost a race are returned, unwritten.

        `delivered` names outgoing messages that need not be kept any longer.
        """

    def holding(self, execution_id: str) -> AbstractAsyncContextManager[Commit]:
        """Keep everybody else from writing to a run; what is given writes for the holder.

        For a writer that lost again and again: what it reads inside the block stays true.
        """

    async def read(self, execution_id: str, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """Events in `seq` order."""

    async def find(self, execution_id: str, event_id: str) -> Recorded | None:
        """The event of that id, if it is stored."""

    async def located(self, event_id: str) -> Recorded | None:
        """The event of that id, whichever run it is of."""

    async def snapshot(self, execution_id: str) -> tuple[int, bytes] | None:
        """The newest snapshot and its `seq`; a cache, never needed."""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs a reader wants; every filter that is set must hold."""

    limit: int = 50
    after: str | None = None
    """The last run of the page before, in the order of the list."""
    is_ascending: bool = False
    """Oldest first; else newest first."""
    offset: int = 0
    tenant_id: str | None = None
    allowed: tuple[str, ...] | None = None
    """Only runs of these paths; each as `path`."""
    denied: tuple[str, ...] = ()
    """No run of these paths; each as `path`."""
    execution_ids: tuple[str, ...] = ()
    """Only these; an unknown one is none."""
    status: tuple[str, ...] = ()
    path: str | None = None
    """Exact; ending in `*`, a prefix."""
    catalog_id: str | None = None
    version: int | None = None
    parent_execution_id: str | None = None
    """Of that parent; `none` for runs that have none."""
    labels: dict[str, str] = {}
    pool: str | None = None
    created_by: str | None = None
    since: str | None = None
    """Started at or after."""
    until: str | None = None
    """Started before."""
    has_error: bool | None = None
    request_id: str | None = None
    """For that request; `*` for runs that have one."""
    client_id: str | None = None
    q: str | None = None
    """What the path, or the message of the error, begins with."""
    idle_since: str | None = None
    """Running, driven here, without an open command, and not written to since."""


class Executions(Protocol):
    """The read model."""

    async def get(self, execution_id: str) -> ExecutionRow | None:
        """One run."""

    async def listed(self, listing: Listing) -> list[ExecutionRow]:
        """A page of runs, in the order of their ids."""

    async def counted(self) -> dict[str, int]:
        """How many runs that have not ended there are, by status."""

    async def running(self, tenant_id: str) -> int:
        """How many runs of a tenant have not ended."""

    async def children(self, execution_id: str) -> list[ExecutionRow]:
        """The runs that this one asked for."""

    async def started_as(self, scope: str, key: str, now: str) -> tuple[str, str] | None:
        """The run that a dedup key has started within its window, and the digest of its wish."""

    async def holders(self, concurrency_key: str) -> list[ExecutionRow]:
        """Runs of a concurrency key that have not ended, oldest first."""


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for one pool, and what its workers hold."""

    pool: str
    pending: int
    claimed: int
    oldest_at: str | None = None
    """Since when the oldest pending command could be claimed."""


class Commands(Protocol):
    """Open commands, for claims and leases."""

    async def get(self, command_id: str) -> CommandRow | None:
        """One command."""

    async def those(self, ids: Sequence[str]) -> dict[str, CommandRow]:
        """Several commands by their ids, those that there are."""

    async def pending(
        self, pool: str, limit: int, exclude_kinds: Sequence[str] = ()
    ) -> list[CommandRow]:
        """Claimable commands of a pool: higher priority first, then oldest; none of paused runs."""

    async def extend(
        self,
        worker_id: str,
        held: Sequence[tuple[str, int]],
        until: str,
        *,
        pool: str | None = None,
    ) -> list[str]:
        """Extend leases; the commands that this worker still holds under that attempt.

        With `pool`, those of this pool only.
        """

    async def keep(self, command_id: str, attempt: int, checkpoint: object) -> None:
        """Keep how far an attempt is, for the next one if this one is lost."""

    async def expired(self, now: str, limit: int = 1000) -> list[CommandRow]:
        """Claimed commands whose lease has ended."""

    async def unhinted(self, before: str, limit: int = 1000, *, told: str = "") -> list[CommandRow]:
        """Pending commands that nobody claimed or was told of since `before`.

        They count as told at `told`, which may lie ahead (`before` when it is not given).
        """

    async def of_worker(self, worker_id: str) -> list[CommandRow]:
        """Commands that a worker holds."""

    async def queues(self) -> list[Queue]:
        """Every pool that has open commands, and how many."""


class Timers(Protocol):
    """Timers that are to fire."""

    async def due(self, now: str, limit: int = 1000) -> list[TimerRow]:
        """Timers whose time has come, oldest first; those of paused runs wait."""

    async def next_due(self) -> str | None:
        """When the next timer is due."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A message that somebody has taken to publish it."""

    outgoing: Outgoing
    attempts: int


class Backlog(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for its delivery."""

    due: int
    """Publications that could be taken now."""
    oldest_at: str | None = None
    """When the oldest message of any kind was committed."""


class Outbox(Protocol):
    """Messages that follow from commits, kept until they are delivered."""

    async def waiting(
        self, limit: int = 1000, *, before: str | None = None, kinds: Sequence[str] = ()
    ) -> list[Outgoing]:
        """Undelivered messages, oldest first; with `before`, those committed earlier than that.

        With `kinds`, those of these kinds only.
        """

    async def delivered(self, ids: Sequence[str]) -> None:
        """Forget messages."""

    async def take(self, limit: int, now: str, *, committed_before: str) -> list[Taken]:
        """Take publications for a while, so that nobody else gets them.

        Those of commits before a moment; tried ones when their time has come, taken ones when
        whoever took them has not been heard of for a minute.
        """

    async def published(self, ids: Sequence[str], now: str) -> int:
        """Note that taken messages were published; how many of them were taken."""

    async def failed(
        self, outgoing_id: str, error: str, now: str, *, most_delay_s: int
    ) -> float | None:
        """Give a taken message back until later; in how many seconds, none when it was not taken.

        The wait grows with every try; after the fiftieth nobody tries again.
        """

    async def backlog(self, now: str, *, committed_before: str) -> Backlog:
        """How much waits."""


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a document."""

    catalog_id: str
    path: str
    version: int
    kind: str
    content: str
    digest: str
    created_at: str
    message: str = ""
    created_by: str = ""
    tenant_id: str = "default"
    meta: dict[str, Any] = {}
    archived_at: str | None = None
    removed_at: str | None = None
    """Only runs that began before still find it, by its id."""


class CatalogListing(msgspec.Struct, frozen=True, kw_only=True):
    """Which documents a reader wants."""

    limit: int = 50
    after: tuple[str, int] | None = None
    """Path and version of the last entry before, in the order of the list."""
    kind: str | None = None
    path_prefix: str | None = None
    q: str | None = None
    """A part of the path, the name, the description or a tag, in any case."""
    tests: str | None = None
    """The path of a playbook that the documents test (`meta.tests`)."""
    all_versions: bool = False
    """Else the version that a path means; of a path that means none, the newest archived one."""
    include_archived: bool = False
    with_content: bool = True


class Catalog(Protocol):
    """Documents of a tenant by path and version; what became of versions is told by `Versions`."""

    async def add(
        self, entry: CatalogEntry, *, activate: bool = True, if_version: int | None = None
    ) -> CatalogEntry:
        """Keep a document under the next version; equal to the newest one, that one is answered.

        A new version becomes what its path means unless `activate` is false. `NotNewest` when the
        newest version (0: there is none) is not `if_version`.
        """

    async def get(self, catalog_id: str) -> CatalogEntry | None:
        """One version by its id, of whichever tenant, one that was removed included."""

    async def resolve(
        self, tenant_id: str, path: str, version: int | None = None
    ) -> CatalogEntry | None:
        """A version of a path that is not archived; without a number, the one the path means."""

    async def listed(self, tenant_id: str, listing: CatalogListing) -> list[CatalogEntry]:
        """A page of documents by path, then newest version first."""


class Callbacks(Protocol):
    """Keys that resume parked commands."""

    async def command_of(self, key_sha256: str) -> tuple[str, str] | None:
        """The execution and command that a key belongs to."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line that a task wrote; execution, command, attempt and `n` name it."""

    execution_id: str
    command_id: str
    attempt: int
    n: int
    ts: str
    text: str
    step: str = ""
    task: str = ""
    stream: str = "log"
    level: str = "info"


class Output(Protocol):
    """Lines that steps wrote."""

    async def add(self, lines: Sequence[Line]) -> None:
        """Keep lines; one that is kept already is ignored."""

    async def read(
        self,
        execution_id: str,
        *,
        step: str | None = None,
        after: tuple[str, str, int, int] | None = None,
        limit: int = 1000,
    ) -> list[Line]:
        """Lines of a run in the order of time; `after` is time, command, attempt, `n` of the last.

        Two lines of one moment are told apart by command, attempt and `n`.
        """


class RuntimeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A process that made itself known: a worker, a server, a gateway."""

    runtime_id: str
    name: str
    kind: str
    pool: str = ""
    status: str = "ready"
    uri: str = ""
    hostname: str = ""
    capacity: int = 0
    free_slots: int = 0
    labels: dict[str, Any] = {}
    capabilities: dict[str, Any] = {}
    runtime: dict[str, Any] = {}
    machine_id: int | None = None
    heartbeat: str = ""
    created_at: str = ""


class Runtimes(Protocol):
    """Processes that are alive, whichever server they talk to."""

    async def join(
        self, row: RuntimeRow, *, silent_since: str, is_bound: bool = False
    ) -> RuntimeRow:
        """Keep a process under its kind and name.

        It is given a machine number that no process holds which was heard of after `silent_since`;
        one that comes back keeps its number and its `runtime_id`. One that is bound to its pool
        does not take the name of one of another pool that was heard of since then (`OtherPool`).
        """

    async def beat(
        self,
        kind: str,
        name: str,
        now: str,
        free_slots: int | None = None,
        *,
        pool: str | None = None,
    ) -> bool:
        """Note that a process was heard of; false when it is not known, or not in the pool."""

    async def mark(self, kind: str, name: str, status: str) -> bool:
        """Give a process a status (`ready`, `draining`); false when it is not known."""

    async def leave(self, kind: str, name: str, *, pool: str | None = None) -> bool:
        """Forget a process; false when it is not known, or not in the pool."""

    async def listed(self, kind: str | None = None, pool: str | None = None) -> list[RuntimeRow]:
        """Known processes, by name."""

    async def forget(self, before: str) -> int:
        """Forget those that were last heard of before; how many there were."""


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A time table by which a playbook is started."""

    schedule_id: str
    name: str
    path: str
    cron: str | None = None
    interval_s: int | None = None
    timezone: str = "UTC"
    payload: dict[str, Any] = {}
    policy: dict[str, Any] = {}
    """`overlap`, `catchup`, `max_catchup`, `jitter_s`, `start_at`, `end_at`, `pool`, `version`."""
    enabled: bool = True
    next_run_at: str | None = None
    last_run_at: str | None = None
    last_execution_id: str | None = None
    last_status: str = ""
    origin: str = "trigger"
    """`trigger`: written in a playbook, replaced when it is registered; else `api`."""
    tenant_id: str = "default"
    created_by: str = ""


class ScheduleListing(msgspec.Struct, frozen=True, kw_only=True):
    """Which time tables a reader wants."""

    limit: int = 10_000
    after: str | None = None
    """The name of the last one before."""
    tenant_id: str | None = None
    path: str | None = None
    enabled: bool | None = None


class Schedules(Protocol):
    """Time tables."""

    async def replace(
        self, path: str, rows: Sequence[ScheduleRow], tenant_id: str = "default"
    ) -> None:
        """Make these the triggers of a path; one of the same name and times keeps its place."""

    async def add(self, row: ScheduleRow, *, most: int) -> None:
        """Keep a new one; `NameTaken`, or `TooMany` when the tenant has so many."""

    async def get(self, schedule_id: str) -> ScheduleRow | None:
        """One time table."""

    async def change(self, row: ScheduleRow) -> bool:
        """Write one anew, all but what its last run was; false when it is gone; `NameTaken`."""

    async def remove(self, schedule_id: str) -> bool:
        """Forget one; false when it is gone."""

    async def counted(self, tenant_id: str) -> int:
        """How many a tenant has."""

    async def listed(self, listing: ScheduleListing | None = None) -> list[ScheduleRow]:
        """Time tables, by name."""

    async def due(self, now: str, limit: int = 100) -> list[ScheduleRow]:
        """Enabled ones whose time has come, oldest first."""

    async def next_due(self) -> str | None:
        """When the next one is due."""

    async def fired(self, before: ScheduleRow, after: ScheduleRow) -> bool:
        """Move one on; false when it was moved by somebody else (`next_run_at` differs)."""


class Projections(Protocol):
    """The read models apart from commits."""

    async def known(self, event_ids: Sequence[str]) -> frozenset[str]:
        """Which of these events are stored."""

    async def refresh(self, row: ExecutionRow) -> bool:
        """Write the read model of a run anew; false when the run has gone on meanwhile."""

    async def prepare(self, execution_ids: Sequence[str]) -> None:
        """Make room for runs that are to be imported, however old they are."""

    async def imported(self, execution_id: str) -> None:
        """Note where a run came from."""

    async def figures(self, tenant_id: str, since: str) -> Figures:
        """What a tenant has."""


class Roles(Protocol):
    """What only one process of a cluster does at a time."""

    def lead(self, role: str) -> AbstractAsyncContextManager[asyncio.Event]:
        """Wait for a role and hold it; the event is set when it was lost."""

    def exclusive(self, key: str) -> AbstractAsyncContextManager[None]:
        """Wait for a name and hold it for a short while."""


class Store(Protocol):
    """All facts of one shard."""

    log: EventLog
    executions: Executions
    reading: Reading
    commands: Commands
    timers: Timers
    outbox: Outbox
    catalog: Catalog
    versions: Versions
    callbacks: Callbacks
    output: Output
    runtimes: Runtimes
    schedules: Schedules
    tokens: Tokens
    sessions: Sessions
    sign_ins: SignIns
    accounts: Accounts
    rights: Rights
    tenants: Tenants
    audit: Audit
    roles: Roles
    upkeep: Upkeep
    variables: Variables
    results: Results
    requests: Requests
    held: Held
    exports: Exports
    credentials: Credentials
    keychain: Keychain
    execution_secrets: ExecutionSecrets
    turns: Turns
    records: Records
    projections: Projections
    keys: Keys
    subscriptions: Subscriptions
    ticks: Ticks
    outcomes: Outcomes
    letters: Letters
    deliveries: Deliveries
    circuits: Circuits
