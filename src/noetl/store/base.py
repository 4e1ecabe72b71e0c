"""What a store keeps, as one Protocol per kind of fact, and the one change that writes them.

Everything that follows from one append is written by one `commit`: events, the read model of the
run, its commands, timers and outgoing messages. Whoever loses a race writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from noetl.engine.events import Recorded  # noqa: TC001 - msgspec reads the types of the fields

if TYPE_CHECKING:
    from collections.abc import Sequence


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

    `kind` is `start_child`, `return`, `cancel_child` or `admit`.
    """

    outgoing_id: str
    execution_id: str
    kind: str
    payload: dict[str, Any]


class ExecutionRow(msgspec.Struct, frozen=True, kw_only=True):
    """The read model of a run, written with every append."""

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
    snapshot: bytes | None = None


class EventLog(Protocol):
    """The log: append with everything that follows, read in order."""

    async def commit(self, changes: Sequence[Change]) -> frozenset[str]:
        """Write all changes at once; the executions that lost a race are returned, unwritten."""

    async def read(self, execution_id: str, after: int = 0, limit: int = 1000) -> list[Recorded]:
        """Events in `seq` order."""

    async def find(self, execution_id: str, event_id: str) -> Recorded | None:
        """The event of that id, if it is stored."""

    async def snapshot(self, execution_id: str) -> tuple[int, bytes] | None:
        """The newest snapshot and its `seq`; a cache, never needed."""


class Executions(Protocol):
    """The read model."""

    async def get(self, execution_id: str) -> ExecutionRow | None:
        """One run."""

    async def listed(self, *, limit: int = 50, before: str | None = None) -> list[ExecutionRow]:
        """The newest runs."""

    async def children(self, execution_id: str) -> list[ExecutionRow]:
        """The runs that this one asked for."""

    async def started_as(self, scope: str, key: str, now: str) -> str | None:
        """The run that a dedup key has started within its window."""

    async def holders(self, concurrency_key: str) -> list[ExecutionRow]:
        """Runs of a concurrency key that have not ended, oldest first."""


class Commands(Protocol):
    """Open commands, for claims and leases."""

    async def get(self, command_id: str) -> CommandRow | None:
        """One command."""

    async def pending(
        self, pool: str, limit: int, exclude_kinds: Sequence[str] = ()
    ) -> list[CommandRow]:
        """Claimable commands of a pool: higher priority first, then oldest; none of paused runs."""

    async def extend(
        self, worker_id: str, held: Sequence[tuple[str, int]], until: str
    ) -> list[str]:
        """Extend leases; the commands that this worker still holds under that attempt."""

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


class Timers(Protocol):
    """Timers that are to fire."""

    async def due(self, now: str, limit: int = 1000) -> list[TimerRow]:
        """Timers whose time has come, oldest first; those of paused runs wait."""

    async def next_due(self) -> str | None:
        """When the next timer is due."""


class Outbox(Protocol):
    """Messages that follow from commits, kept until they are delivered."""

    async def waiting(self, limit: int = 1000) -> list[Outgoing]:
        """Undelivered messages, oldest first."""

    async def delivered(self, ids: Sequence[str]) -> None:
        """Forget messages."""


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


class Catalog(Protocol):
    """Documents by path and version."""

    async def add(self, entry: CatalogEntry) -> CatalogEntry:
        """Keep a document under the next version; equal to the newest one, that one is answered."""

    async def get(self, catalog_id: str) -> CatalogEntry | None:
        """One version by its id."""

    async def resolve(self, path: str, version: int | None = None) -> CatalogEntry | None:
        """A version of a path; the newest when none is named."""

    async def versions(self, path: str) -> list[CatalogEntry]:
        """All versions of a path, newest first."""


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

    async def read(self, execution_id: str, *, step: str | None = None) -> list[Line]:
        """Lines of a run, in order."""


class Store(Protocol):
    """All facts of one shard."""

    log: EventLog
    executions: Executions
    commands: Commands
    timers: Timers
    outbox: Outbox
    catalog: Catalog
    callbacks: Callbacks
    output: Output
