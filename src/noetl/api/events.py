"""What workers report, and what they are answered: the hot route of the product."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.api.commands import Command  # noqa: TC001 - msgspec reads the types of the fields
from noetl.api.shapes import LogRow  # noqa: TC001 - as above

MOST_EVENTS = 256
MOST_LINES = 1_000


class Report(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One event from a worker; `payload` holds the fields of that event's own, or its result.

    Without `execution_id` the one of the batch is meant, without `attempt` the open one.
    """

    execution_id: str | int = ""
    event_id: str | int = ""
    event_type: str = ""
    step: str = ""
    command_id: str | int = ""
    attempt: int | None = None
    status: str | None = None
    created_at: str | None = None
    duration_ms: float | None = None
    payload: Any = {}
    name: str = ""
    """Another word for `event_type`."""
    context: Any = None
    """Another word for `payload`."""


class Reports(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Reports of one worker, and how much work it can take on with the answer."""

    worker_id: str
    pool: str
    events: tuple[Report, ...] = ()
    free_slots: int = 0
    exclude_kinds: tuple[str, ...] = ()
    execution_id: str | int = ""


class Posted(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A single event, in the words of every client there is."""

    execution_id: str | int
    step: str = ""
    event_type: str = ""
    name: str = ""
    payload: Any = None
    context: Any = None
    meta: dict[str, Any] | None = None
    worker_id: str = ""
    event_id: str | int = ""
    command_id: str | int = ""
    attempt: int | None = None
    iteration: int | None = None
    result_kind: Literal["data", "ref", "refs"] = "data"
    result_uri: str | None = None
    event_ids: tuple[str | int, ...] = ()
    actionable: bool = True
    informative: bool = True
    status: str | None = None
    created_at: str | None = None
    error: dict[str, Any] | None = None
    duration_ms: float | None = None


class PostedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a single event."""

    event_id: str
    outcome: Literal["stored", "duplicate", "late", "rejected"]
    seq: int | None = None
    commands_generated: int = 0
    claimed: tuple[Command, ...] = ()
    status: str = "ok"


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one report."""

    event_id: str
    outcome: Literal["stored", "duplicate", "late", "rejected"]
    seq: int | None = None
    code: str | None = None


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: receipts, the next work, and what to stop."""

    status: str = "ok"
    event_ids: tuple[str, ...] = ()
    results: tuple[Receipt, ...] = ()
    commands_generated: int = 0
    claimed: tuple[Command, ...] = ()
    cancelled: tuple[str, ...] = ()
    pressure: Literal["ok", "slow", "stop"] = "ok"


class LogLine(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One line that a task wrote."""

    execution_id: str | int
    command_id: str | int
    attempt: int
    n: int
    ts: str
    text: str
    step: str = ""
    task: str = ""
    stream: Literal["stdout", "stderr", "log"] = "log"
    level: str = "info"


class LogBatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines of one worker."""

    entries: tuple[LogLine, ...] = ()


class LinesTaken(msgspec.Struct, frozen=True, kw_only=True):
    """How many lines were taken."""

    count: int
    status: str = "ok"


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a run, in order."""

    items: list[LogRow]
    next_cursor: str | None = None
