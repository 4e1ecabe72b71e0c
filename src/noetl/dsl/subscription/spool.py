"""Models of `spec.spool`: where messages wait while a downstream is away."""

from __future__ import annotations

from typing import ClassVar

from noetl.dsl.shape import (
    Constraint,
    ListOf,
    Model,
    NotBoth,
    Number,
    Of,
    Text,
    key,
    model,
    whole,
)
from noetl.dsl.shape.units import Size
from noetl.dsl.subscription.sections import Alias, word

GIB = 1024**3
ESCALATE_AFTER_MS = 30_000
BUCKET = r"^((s3|gs)://)?[A-Za-z0-9][A-Za-z0-9._-]*(/[^\s{}]*)?$"
ORDERING_KEY = r"^([A-Za-z0-9_-]{1,128}|message\.(data|attributes|metadata)(\.[^\s.{}]+)+)$"


@model
class Downstream(Model):
    """Something that runs depend on, with its own circuit."""

    name: str = key(Text(pattern=r"^\S{1,128}$"), "name, or the pool it stands for")
    probe: str = key(
        word("http", "tcp", "nats", "passive"),
        "how it is asked whether it is back",
        default="passive",
        aliases=("type",),
    )
    target: str | None = key(Text(), "address of the probe", default=None)


@model
class Circuit(Model):
    """When a downstream counts as away, and when it is asked again."""

    trip_after: int = key(whole(1), "failures in a row that open it", default=5)
    probe_after_ms: int = key(whole(100), "first probe after", default=30_000)
    probe_interval_ms: int = key(whole(100), "then every", default=5_000)
    downstream: tuple[Downstream, ...] = key(
        ListOf(Of(Downstream)), "what runs depend on (one passive `default`)", default=()
    )


@model
class Retention(Model):
    """How long and how much is kept."""

    max_age_hours: float | None = key(Number(above=0), "then to the dead letters", default=None)
    max_bytes: int = key(Size(), "most bytes kept", default=GIB)
    dlq_max_bytes: int | None = key(Size(), "most dead letters (`max_bytes`)", default=None)
    on_full: str = key(
        word("stop_acking", "drop_to_dlq", "alert_only"), "when it is full", default="stop_acking"
    )


@model
class Drain(Model):
    """How the backlog comes back."""

    on_recovery: str = key(
        word("ordered_then_live", "interleave"),
        "backlog first, or among live messages",
        default="ordered_then_live",
    )
    rate_per_sec: float | None = key(Number(above=0), "messages a second", default=None)
    lanes: int = key(whole(1, 256), "lanes at once", default=16)
    max_replay_attempts: int = key(whole(1, 1000), "then to the dead letters", default=5)


@model
class Spool(Model):
    """Keeps messages while a downstream is away."""

    constraints: ClassVar[tuple[Constraint, ...]] = (
        NotBoth(("hybrid_escalate_after_ms", "hybrid_after_secs")),
    )

    mode: str | None = key(
        word("off", "buffer_and_ack", "hybrid"), "pull: off; push: buffer_and_ack", default=None
    )
    backend: str | None = key(
        word("local_disk", "nats_object", "s3", "gcs"),
        "where (the installation's default)",
        default=None,
    )
    bucket: str | None = key(
        Text(pattern=BUCKET), "bucket and prefix of nats_object, s3, gcs", default=None
    )
    path: str | None = key(Text(), "folder of local_disk", default=None)
    auth: str | None = key(Alias(), "credential (the process's own identity)", default=None)
    credential: str | None = key(Alias(), "same as `auth`", default=None)
    ordering: str = key(word("per_key", "global", "none"), "what stays in order", default="per_key")
    ordering_key: str | None = key(
        Text(pattern=ORDERING_KEY), "a name, or `message.data.x` (the source's key)", default=None
    )
    circuit: Circuit = key(Of(Circuit), "when a downstream is away", default_factory=Circuit)
    retention: Retention = key(Of(Retention), "what is kept", default_factory=Retention)
    drain: Drain = key(Of(Drain), "how the backlog comes back", default_factory=Drain)
    hybrid_escalate_after_ms: float | None = key(
        Number(0), "hybrid: outage before it buffers (30000)", default=None
    )
    hybrid_after_secs: float | None = key(Number(0), "the same in seconds", default=None)

    @property
    def alias(self) -> str | None:
        """The credential of the backend, under either name."""
        return self.auth or self.credential

    @property
    def escalate_after_ms(self) -> float:
        """How long an outage lasts before `hybrid` buffers, from either key."""
        if self.hybrid_after_secs is not None:
            return self.hybrid_after_secs * 1000
        if self.hybrid_escalate_after_ms is not None:
            return self.hybrid_escalate_after_ms
        return ESCALATE_AFTER_MS
