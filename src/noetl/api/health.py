"""How an installation is, and what may be asked of it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Alive(msgspec.Struct, frozen=True, kw_only=True):
    """The process turns."""

    status: Literal["ok"] = "ok"


class Readiness(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether work may be sent, and else what is not well."""

    status: Literal["ok", "unready"]
    failing: tuple[str, ...] = ()


class ServerHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is; without a bus work goes on, only slower."""

    status: Literal["ok", "degraded", "unhealthy"]
    database: Literal["ok", "down"]
    nats: Literal["ok", "down"]
    uptime_seconds: float
    version: str


class PoolStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The connections to the database, by the counters of the driver; `none`: there are none."""

    status: Literal["ok", "busy", "saturated", "none"]
    pool_min: int | None = None
    pool_max: int | None = None
    pool_size: int | None = None
    pool_available: int | None = None
    requests_waiting: int | None = None
    utilization: float | None = None
    slots_available: int | None = None
    """Free connections without the requests that wait for one."""


class MachineUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is in use on the machine, as far as it tells."""

    cpu_percent: float | None = None
    memory_percent: float | None = None
    memory_total_mb: float | None = None
    load_1m: float | None = None


class ProcessUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the process uses, as far as the machine tells."""

    pid: int
    tasks: int
    uptime_seconds: float
    rss_mb: float | None = None
    fds: int | None = None


class IngestUse(msgspec.Struct, frozen=True, kw_only=True):
    """What waits to be written, and how many events a write holds in the middle."""

    queue: float
    batch_p50: float


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the machine and the process use."""

    system: MachineUse
    process: ProcessUse
    ingest: IngestUse


class KeptMonth(msgspec.Struct, frozen=True, kw_only=True):
    """A month that is old and stays, with some of the runs that keep it."""

    partition: str
    blockers: tuple[str, ...]


class ShardHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One database: a shard, or the one that all shards share."""

    shard: int | None
    role: str
    """`shard` or `cluster`."""
    status: str
    """`ok` or `down`."""
    latency_ms: float | None = None
    lag: float | None = None
    """Seconds that the oldest undelivered message has waited."""
    migrations: str = ""
    """The newest one that was applied."""
    partitions_ahead: int = 0
    default_rows: int = 0
    kept_partitions: tuple[KeptMonth, ...] = ()


class ShardsHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Every database of the installation."""

    items: tuple[ShardHealth, ...]


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of a tenant."""

    live: dict[str, int]
    """By status, exact."""
    ended_24h: dict[str, int]
    """By status, exact: runs that were started within a day and have ended."""
    total_estimated: int
    """All that are kept, as the statistics of the database tell."""


class QueueCount(msgspec.Struct, frozen=True, kw_only=True):
    """What waits for a pool."""

    pool: str
    pending: int
    in_flight: int
    oldest_pending_at: str | None = None


class DashboardStats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures for a first look; each was measured at `at`."""

    at: str
    executions: RunCounts
    playbooks: int
    workers: dict[str, int]
    """By status."""
    queues: tuple[QueueCount, ...]


class Contract(msgspec.Struct, frozen=True, kw_only=True):
    """What a client can rely on."""

    version: str
    contract_version: str
    routes: dict[str, tuple[str, ...]]
    """`public` and `protected`, each as `METHOD /path`."""
    cli_operation_mapping: dict[str, str]
    limits: dict[str, int]
    features: dict[str, Any]
    event_types: tuple[str, ...]
