"""Starting runs, reading them, and steering them."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from noetl.api.shapes import Error, Refusal, Row  # noqa: TC001 - msgspec reads the types of the fields

MOST_START_BYTES: Final = 24 << 20
"""How large a request for runs may be.

The run of the largest message holds its body twice, and bytes are a third longer as text.
"""


class Dedup(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A key under which only one run is started within a window; either key is enough."""

    key: str
    window_secs: int = 300
    replay_key: str | None = None
    replay_window_secs: int = 300


class Ingress(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The message that a run is started for, and what its headers were allowed to decide."""

    message_id: str
    source: str
    downstream: str | None = None
    applied: tuple[dict[str, Any], ...] = ()
    refused: tuple[dict[str, Any], ...] = ()
    route_override: dict[str, str | None] = {}
    recv_seq: str | None = None
    spool_ref: str | None = None
    """Set when the message comes out of the spool."""
    listener: str | None = None
    """Where it was pushed to, if it was."""
    delivery_id: str | None = None
    """The request of the sender that brought it."""
    replay_of: str | None = None
    """The delivery that was rejected, and that a person has let in."""


class Execute(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A run is wanted: `path` or `catalog_id`, exactly one of them.

    `execution_id`, `request`, `trigger` and `ingress` are for the platform's own processes.
    """

    path: str | None = None
    catalog_id: str | int | None = None
    version: str | int | None = None
    payload: dict[str, Any] | None = None
    workload: dict[str, Any] | None = None
    """Another word for `payload`."""
    execution_id: str | int | None = None
    execution_pool: str | None = None
    priority: int = 5
    parent_execution_id: str | int | None = None
    trace: dict[str, Any] | None = None
    dedup: Dedup | None = None
    labels: dict[str, str] = {}
    start_at: str | None = None
    dry_run: bool = False
    resource_kind: Literal["playbook", "agent"] | None = None
    request: dict[str, Any] | None = None
    trigger: dict[str, Any] = {}
    ingress: Ingress | None = None


class Executes(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Many runs are wanted; each is started or refused on its own.

    The items are read one by one, so that a broken one is refused alone.
    """

    executions: tuple[msgspec.Raw, ...] = ()


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """The run that was started, or the one that the same key started before."""

    execution_id: str
    status: Literal["started", "duplicate"]
    commands_generated: int
    catalog_id: str
    path: str
    version: int


class Rehearsed(msgspec.Struct, frozen=True, kw_only=True):
    """What a dry run found; nothing was stored."""

    valid: bool
    entry_step: str | None = None
    workload: dict[str, Any] | None = None
    problems: tuple[dict[str, Any], ...] = ()


class BatchItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one item of a batch."""

    index: int
    status: Literal["started", "duplicate", "error"]
    commands_generated: int
    execution_id: str | None = None
    error: Refusal | None = None


class StartedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a batch."""

    count: int
    started: int
    duplicates: int
    failed: int
    results: tuple[BatchItem, ...]


class ExecutionItem(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list."""

    execution_id: str
    catalog_id: str
    path: str
    version: int
    status: str
    started_at: str
    completed_at: str | None
    duration_ms: int
    parent_execution_id: str | None
    current_steps: tuple[str, ...]
    steps: dict[str, int]
    event_count: int
    pending_commands: int
    pool: str
    priority: int
    labels: dict[str, Any]
    error: Error | None


class ExecutionPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of runs."""

    items: tuple[ExecutionItem, ...]
    next_cursor: str | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run is."""

    execution_id: str
    status: str
    current_step: str | None
    current_steps: tuple[str, ...]
    progress: dict[str, int]
    is_cancelled: bool
    is_terminal: bool
    error: Error | None
    last_seq: int


class CancellationCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a run was cancelled."""

    execution_id: str
    is_cancelled: bool
    status: str


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """One run as every reader sees it; its status is derived in one place.

    `ctx`, `failed_steps` and `step_states` are of the state, told when it was asked for.
    """

    execution_id: str
    status: str
    catalog_id: str
    path: str
    version: int
    pool: str
    started_at: str
    updated_at: str
    completed_at: str | None = None
    duration_ms: int = 0
    parent_execution_id: str | None = None
    current_steps: tuple[str, ...] = ()
    progress: dict[str, int] = {}
    steps: dict[str, int] = {}
    event_count: int = 0
    pending_commands: int = 0
    priority: int = 5
    workload: dict[str, Any] = {}
    ctx: dict[str, Any] = {}
    result: Any = None
    reference: dict[str, Any] | None = None
    error: Error | None = None
    failed_steps: tuple[str, ...] = ()
    step_states: dict[str, Any] = {}
    last_seq: int = 0
    rerun_of: str | None = None
    forked_from: dict[str, Any] | None = None
    labels: dict[str, Any] = {}
    trace: dict[str, Any] | None = None
    created_by: str = ""
    tenant_id: str = "default"
    events: tuple[Row, ...] = ()


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a run's log, in `seq` order, as rows."""

    items: tuple[Row, ...]
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
    """A new run of the same playbook.

    `execution_id`, `request` and `added` are for the platform's own processes.
    """

    payload: dict[str, Any] | None = None
    version: str | int | None = None
    pool: str | None = None
    """Where it runs; else in the pool of the first."""
    execution_id: str | int | None = None
    request: dict[str, Any] | None = None
    added: dict[str, Any] = {}
    """Put over the workload, whether it is that of the first run or another."""


class Fork(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A new run that begins where another one was."""

    from_seq: int | None = None
    from_event_id: str | int | None = None
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
