"""Starting runs, reading them, and steering them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Dedup(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A key under which only one run is started within a window."""

    key: str
    window_secs: int = 300


class Execute(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A run is wanted: `path` or `catalog_id`, exactly one of them."""

    path: str | None = None
    catalog_id: str | None = None
    version: str | int | None = None
    payload: dict[str, Any] = {}
    execution_id: str | None = None
    execution_pool: str | None = None
    priority: int = 5
    parent_execution_id: str | None = None
    trace: dict[str, Any] | None = None
    dedup: Dedup | None = None
    labels: dict[str, str] = {}
    trigger: dict[str, Any] = {}


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The run that was started, or the one that the same key started before."""

    execution_id: str
    status: Literal["started", "duplicate"]
    commands_generated: int
    catalog_id: str
    path: str
    version: int


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One run as every reader sees it; its status is derived in one place."""

    execution_id: str
    status: str
    catalog_id: str
    path: str
    version: int
    pool: str
    started_at: str
    updated_at: str
    completed_at: str | None = None
    parent_execution_id: str | None = None
    current_steps: tuple[str, ...] = ()
    progress: dict[str, int] = {}
    workload: dict[str, Any] = {}
    ctx: dict[str, Any] = {}
    result: Any = None
    reference: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    failed_steps: tuple[str, ...] = ()
    steps: dict[str, Any] = {}
    last_seq: int = 0
    rerun_of: str | None = None
    forked_from: dict[str, Any] | None = None
    labels: dict[str, Any] = {}


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a run's log, in `seq` order, as rows."""

    items: tuple[dict[str, Any], ...]
    last_seq: int
    next_cursor: str | None = None


class Control(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Cancel, pause or resume a run."""

    reason: str = ""
    cascade: bool = True


class Finalize(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """End a run by hand."""

    status: str
    error: dict[str, Any] | None = None
    result: Any = None
    reason: str = ""


class Rerun(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A new run of the same playbook."""

    payload: dict[str, Any] | None = None
    version: str | int | None = None


class Fork(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A new run that begins where another one was."""

    from_seq: int | None = None
    from_event_id: str | None = None
    from_step: str | None = None
    payload: dict[str, Any] | None = None
    set: dict[str, Any] = {}
    results: dict[str, Any] = {}
    version: str | int | None = None


class Controlled(msgspec.Struct, frozen=True, kw_only=True):
    """What a control call did."""

    execution_id: str
    status: str
    message: str = ""
    commands_cancelled: int = 0
    cancelled_children: int = 0
