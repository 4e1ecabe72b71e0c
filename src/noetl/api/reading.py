"""Runs looked into: their graph, their timeline, why they wait, what they were at any event."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.api.shapes import Error, Refusal  # noqa: TC001 - msgspec reads the types of the fields


class GraphNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step; `state` is `pending running waiting completed failed skipped not_taken cancelled`.

    A node of a loop counts its items: `{mode, total?, done, failed, in_flight}`.
    """

    id: str
    kind: Literal["step", "end"]
    label: str
    state: str
    runs: int
    """How often it was entered."""
    attempts: int
    """How often a worker has taken it on."""
    tool: str | None = None
    desc: str | None = None
    loop: dict[str, Any] | None = None
    is_entry: bool = False
    is_final: bool = False
    started_at: str | None = None
    ended_at: str | None = None
    error: Error | None = None


class GraphEdge(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"from_": "from"}
):
    """An arc; `times` counts how often it was taken by this run."""

    from_: str
    to: str
    taken: bool
    times: int = 0
    when: str | None = None
    label: str | None = None


class RunGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The graph of a run, as it was after the event `as_of_seq`."""

    execution_id: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    as_of_seq: int


class Lane(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attempt of a command: when it could be claimed, when it was, and when it ended.

    A command that the engine runs itself (a child, a wait) has one lane and no worker.
    """

    step: str
    attempt: int
    worker_id: str | None
    issued: str
    claimed: str | None
    ended: str | None
    state: str
    """PENDING CLAIMED RUNNING PARKED while it is open; COMPLETED FAILED PARKED LOST CANCELLED."""
    command_id: str | None = None
    """Left out of a later attempt whose first one lies on an earlier page."""
    index: int | None = None


class Gap(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A time in which no lane was open."""

    from_: str
    to: str
    ms: int


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Lanes in the order in which they could be claimed, and the gaps between them."""

    execution_id: str
    lanes: tuple[Lane, ...]
    gaps: tuple[Gap, ...]
    as_of_seq: int
    next_cursor: str | None = None


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a run waits for; `hint` says what to do about it."""

    code: str
    since: str | None
    step: str | None
    detail: str
    hint: str
    command_id: str | None = None
    attempt: int | None = None
    pool: str | None = None
    place: int | None = None
    """Commands that are claimed before it."""
    live_workers: int | None = None
    live_slots: int | None = None
    worker_id: str | None = None
    heartbeat: str | None = None
    lease_until: str | None = None
    due_at: str | None = None
    execution_id: str | None = None
    """The run that it waits for."""
    done: int | None = None
    in_flight: int | None = None
    total: int | None = None
    concurrency_key: str | None = None


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run does not move."""

    execution_id: str
    status: str
    summary: str
    reasons: tuple[Reason, ...]


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """The folded state of a run after one of its events.

    `state_digest` is the sha256 of the canonical JSON of all parts, whatever `projection` shows.
    """

    tenant_id: str
    organization_id: str
    execution_id: str
    projection: str
    event_count: int
    last_event_id: str | None
    last_event_type: str | None
    execution: dict[str, Any]
    steps: dict[str, Any]
    commands: dict[str, Any]
    loops: dict[str, Any]
    stages: dict[str, Any]
    frames: dict[str, Any]
    business_objects: dict[str, Any]
    ctx: dict[str, Any]
    state_digest: str
    is_cut: bool = False
    """A part has more than `limit` entries; the first ones are shown."""


class BulkFilter(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Which runs are meant: the filters of their list, or their ids."""

    execution_ids: tuple[str | int, ...] = ()
    status: str | tuple[str, ...] = ()
    path: str | None = None
    catalog_id: str | int | None = None
    version: str | int | None = None
    parent_execution_id: str | int | None = None
    label: str | tuple[str, ...] = ()
    pool: str | None = None
    created_by: str | None = None
    since: str | None = None
    until: str | None = None
    has_error: bool | None = None
    request_id: str | None = None
    client_id: str | None = None
    q: str | None = None


class Bulk(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One thing is to be done with many runs."""

    action: Literal["cancel", "pause", "resume", "rerun"]
    filter: BulkFilter
    limit: int = 10_000
    dry_run: bool = False
    reason: str = ""


class BulkResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one run."""

    execution_id: str
    outcome: Literal["ok", "error", "matched"]
    status: str | None = None
    started: str | None = None
    """The run that a rerun has started."""
    error: Refusal | None = None


class Bulked(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all of them, each on its own."""

    action: str
    dry_run: bool
    matched: int
    done: int
    failed: int
    has_more: bool
    """More runs fit the filter than `limit` allows; the same call again goes on with them."""
    results: tuple[BulkResult, ...]


class Retry(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A failed step is to be tried again."""

    reason: str = ""


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """The new visit of a step."""

    execution_id: str
    step: str
    visit: int
    status: str
