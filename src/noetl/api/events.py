"""What workers report, and what they are answered: the hot route of the product."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.api.commands import Command  # noqa: TC001 - msgspec reads the types of the fields

MOST_EVENTS = 256
MOST_LINES = 1_000


class Report(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One event from a worker; `payload` holds the fields of that event's own."""

    execution_id: str
    event_id: str
    event_type: str
    step: str
    command_id: str
    attempt: int
    status: str | None = None
    created_at: str | None = None
    duration_ms: float | None = None
    payload: dict[str, Any] = {}


class Reports(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Reports of one worker, and how much work it can take on with the answer."""

    worker_id: str
    pool: str
    events: tuple[Report, ...] = ()
    free_slots: int = 0
    exclude_kinds: tuple[str, ...] = ()


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

    execution_id: str
    command_id: str
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


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a run, in order."""

    items: list[dict[str, Any]]
    next_cursor: str | None = None
