"""Processes make themselves known: workers above all."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from noetl.api.commands import Held  # noqa: TC001 - msgspec reads the types of the fields

MOST_SLOTS: Final = 1_000_000
"""Slots that a process may say to have."""
Slots = Annotated[int, msgspec.Meta(ge=0, le=MOST_SLOTS)]


class WorkerEntry(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A process joins; a worker names its pool in `runtime` or in its labels."""

    name: str
    labels: dict[str, str] = {}
    capacity: Slots = 0
    component_type: str = "worker_pool"
    kind: str | None = None
    """Another word for `component_type`."""
    uri: str = ""
    status: str = "ready"
    hostname: str = ""
    capabilities: dict[str, Any] = {}
    runtime: dict[str, Any] = {}


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """The process is known."""

    name: str
    lease_seconds: float
    status: str = "ok"
    runtime_id: str = ""
    machine_id: int | None = None
    """The part of ids that is this process's own."""
    servers: tuple[str, ...] = ()
    """Where work may be claimed."""


class PoolHeartbeat(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A worker is alive; the beat extends every lease that it names."""

    name: str
    free_slots: Slots | None = None
    commands: tuple[Held, ...] = ()
    kind: str = "worker_pool"
    component_type: str | None = None


class Left(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The process leaves."""

    name: str
    kind: str = "worker_pool"
    component_type: str | None = None


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process that is known; `stale` after 30 silent seconds, `offline` after 90."""

    runtime_id: str
    name: str
    kind: str
    pool: str
    status: str
    uri: str
    hostname: str
    capacity: int
    free_slots: int
    labels: dict[str, Any]
    capabilities: dict[str, Any]
    runtime: dict[str, Any]
    heartbeat: str
    created_at: str


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """What one pool can do, does, and has to do."""

    pool: str
    workers: int
    slots: int
    free_slots: int
    in_flight: int
    pending: int
    oldest_pending_at: str | None = None
    consumer_lag: int | None = None
    """Hints on the bus that no worker has fetched; none while the bus does not tell."""


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """The process is forgotten."""

    status: str = "ok"
    released: int = 0
    """Commands that it held, and that others may claim now."""


class Drain(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Workers of a pool are to finish what they hold and take on nothing more."""

    worker: str | None = None
    """The only one; none: all of the pool."""


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """Who is told so with the next heartbeat."""

    pool: str
    workers: tuple[str, ...]
    status: str = "draining"


class ShardInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run belongs."""

    execution_id: str
    shard_count: int
    shard_index: int
    source: str
    """`query`, or `server` when the caller named no count."""
    hash_function: str
    seed: int
    server_config: dict[str, Any]


class Pools(msgspec.Struct, frozen=True, kw_only=True):
    """Known processes, and their pools."""

    items: tuple[Process, ...]
    pools: tuple[Pool, ...]
