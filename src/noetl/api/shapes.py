"""Objects that stay plain objects in a program and have a shape of their own in the document.

A reader keeps every member of them, those too that only a newer server knows.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

_PLACE = "#/components/schemas/"


class EventRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of a run: what a reader looks for first stands by name, the rest in `context`."""

    execution_id: str
    seq: int
    event_id: str
    prev_event_id: str | None
    event_type: str
    node_type: str
    status: str
    created_at: str
    step: str
    node_name: str
    node_id: str
    parent_event_id: str | None = None
    event_time: str | None = None
    command_id: str | None = None
    attempt: int | None = None
    iteration: int | None = None
    worker_id: str | None = None
    duration_ms: float | None = None
    idempotency_key: str | None = None
    parent_execution_id: str | None = None
    catalog_id: str | None = None
    trace: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    """`{status, context?: {data}, reference?}`."""
    meta: dict[str, Any] = {}
    context: dict[str, Any] = {}


class LogItem(msgspec.Struct, frozen=True, kw_only=True):
    """One line that a task wrote; command, attempt and `n` name it."""

    execution_id: str
    command_id: str
    attempt: int
    n: int
    ts: str
    text: str
    step: str
    task: str
    stream: str
    level: str


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was found in a document."""

    code: str
    severity: Literal["error", "warning"]
    message: str
    hint: str
    line: int
    column: int
    end_line: int
    end_column: int
    pointer: str
    doc: str


class RunError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a task, a step or a run has failed."""

    kind: str
    code: str
    message: str
    retryable: bool = False
    step: str | None = None
    task: str | None = None
    index: int | None = None
    details: dict[str, Any] | None = None


class ItemError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why one item of many was refused."""

    code: str
    detail: str
    retryable: bool
    errors: tuple[dict[str, Any], ...] = ()


SHAPES = (EventRow, LogItem, Finding, RunError, ItemError)


def _shown_as(model: type[msgspec.Struct]) -> msgspec.Meta:
    return msgspec.Meta(extra_json_schema={"$ref": _PLACE + model.__name__})


Row = Annotated[dict[str, Any], _shown_as(EventRow)]
LogRow = Annotated[dict[str, Any], _shown_as(LogItem)]
Found = Annotated[dict[str, Any], _shown_as(Finding)]
Error = Annotated[dict[str, Any], _shown_as(RunError)]
Refusal = Annotated[dict[str, Any], _shown_as(ItemError)]
