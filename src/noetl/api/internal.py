"""What the platform's own processes ask of a server."""

from __future__ import annotations

from typing import Any

import msgspec


class OutboxClaim(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Messages are to be published by the caller."""

    limit: int | None = None
    shard: int | None = None


class OutboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """A message; its `event_id` is the id under which a bus knows it."""

    outbox_id: str
    event_id: str
    execution_id: str
    subject: str
    payload: Any
    attempts: int
    payload_codec: str = "json"
    shard: int = 0


class OutboxClaimed(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that nobody else gets for a minute."""

    rows: tuple[OutboxRow, ...]
    claimed: int


class OutboxPublished(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Claimed messages were published."""

    outbox_ids: tuple[str | int, ...] = ()
    shard: int | None = None


class OutboxMarked(msgspec.Struct, frozen=True, kw_only=True):
    """How many were claimed, and are noted now."""

    marked: int
    available_at_in: float | None = None
    """Seconds until one that failed is tried again."""


class OutboxFailed(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A claimed message could not be published."""

    outbox_id: str | int
    error: str = ""
    attempts: int | None = None
    """Taken for the sake of older callers; the server counts by itself."""
    max_delay_seconds: int = 300
    shard: int | None = None


class OutboxPending(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages could be claimed now."""

    pending: int


class Project(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Events of other installations; each is read on its own."""

    events: tuple[Any, ...] = ()


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope that is no event, or does not fit its run."""

    index: int
    code: str


class Projected(msgspec.Struct, frozen=True, kw_only=True):
    """What became of them."""

    projected: int
    duplicates: int
    rejected: tuple[Rejected, ...] = ()


class Advance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The read models of runs are to be made anew from their logs."""

    execution_ids: tuple[str | int, ...] = ()


class NotAdvanced(msgspec.Struct, frozen=True, kw_only=True):
    """A run whose read model stayed as it was."""

    execution_id: str
    code: str


class Advanced(msgspec.Struct, frozen=True, kw_only=True):
    """Which were."""

    advanced: tuple[str, ...]
    failed: tuple[NotAdvanced, ...] = ()


class Purge(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What is old is to go; 0 keeps it."""

    command_retention_days: int = 7
    runtime_stale_minutes: int = 60
    event_retention_days: int = 0
    dedup: bool = True
    dry_run: bool = False


class KeptPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A month that is old and stays, with some of the runs that keep it."""

    partition: str
    blockers: tuple[str, ...]


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """How much went, or would go."""

    commands_purged: int
    runtime_purged: int
    dedup_purged: int
    event_partitions_dropped: tuple[str, ...]
    event_partitions_kept: tuple[KeptPartition, ...] = ()
    dry_run: bool = False
