"""Time tables by which playbooks are started."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Overlap = Literal["allow", "skip", "cancel_previous", "queue"]
Catchup = Literal["none", "latest", "all"]


class ScheduleBody(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A time table is wanted: `cron` or `interval_seconds`, exactly one of them."""

    name: str
    path: str
    version: str | int | None = None
    cron: str | None = None
    interval_seconds: int | None = None
    timezone: str = "UTC"
    payload: dict[str, Any] | None = None
    input: dict[str, Any] | None = None
    """Another word for `payload`."""
    enabled: bool = True
    start_at: str | None = None
    end_at: str | None = None
    jitter_s: float = 0
    catchup: Catchup = "latest"
    max_catchup: int = 100
    overlap: Overlap = "skip"
    pool: str | None = None
    priority: int | None = None


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A time table; one of origin `trigger` is written in its playbook and changed there."""

    schedule_id: str
    name: str
    path: str
    version: str | int | None
    cron: str | None
    interval_seconds: int | None
    timezone: str
    payload: dict[str, Any]
    enabled: bool
    start_at: str | None
    end_at: str | None
    jitter_s: float
    catchup: str
    max_catchup: int
    overlap: str
    pool: str | None
    priority: int | None
    next_run_at: str | None
    last_run_at: str | None
    last_execution_id: str | None
    last_status: str
    origin: str
    created_by: str


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """Time tables, by name."""

    items: tuple[Schedule, ...]
    next_cursor: str | None = None


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    """It is no more."""

    schedule_id: str
    status: str = "deleted"


class Fired(msgspec.Struct, frozen=True, kw_only=True):
    """The run of one time; of a refused one the code says why there is none."""

    due_at: str
    status: str
    """`started`, `duplicate` or `error`."""
    execution_id: str | None = None
    code: str | None = None


class Backfill(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Times that have passed are to be run after all, the oldest first."""

    from_: str = msgspec.field(name="from")
    to: str
    limit: int = 100


class Backfilled(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each time."""

    schedule_id: str
    items: tuple[Fired, ...]
    has_more: bool = False
    """The limit was reached before `to`."""


class Fires(msgspec.Struct, frozen=True, kw_only=True):
    """When it fires next, as far as its beginning and end allow."""

    schedule_id: str
    items: tuple[str, ...]
