"""Events as rows: the one outward form, for logs, answers, files and tables.

A row groups the facts of an event: what a reader looks for first stands by name, what belongs to
the machinery stands in `meta`, a result in `result`, and the rest in `context`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noetl.engine.events import KINDS, Event, Recorded
from noetl.engine.once import Once
from noetl.engine.upcast import upcast
from noetl.errors import NoetlError

TOP: Final = (
    "step", "attempt", "worker_id", "error", "duration_ms", "trace", "idempotency_key",
    "parent_execution_id", "catalog_id",
)  # fmt: skip
META: Final = (
    "command_key", "visit", "index", "frame", "tasks", "engine_version", "dedup_key", "rerun_of",
    "forked_from", "warnings", "iter", "of_step", "ends_loop", "is_claim", "child_key",
    "parent_key", "depth", "concurrency_key", "created_by", "request",
    "tenant_id",
)  # fmt: skip
_OF_ROW: Final = (
    "execution_id", "seq", "event_id", "prev_event_id", "created_at", "parent_event_id",
    "event_time",
)  # fmt: skip
RESULT: Final = ("result", "reference")
TYPES: Final = frozenset(KINDS)


class InvalidRow(NoetlError):
    """A row that is no event of the vocabulary."""

    code = "invalid_row"
    status = 422


def to_row(recorded: Recorded) -> dict[str, Any]:
    """The row of an event; the store, the readers and the bus ask for it one after the other."""
    return _recent(recorded).copy()


def _made(recorded: Recorded) -> dict[str, Any]:
    event = recorded.event
    fields: dict[str, Any] = msgspec.to_builtins(event)
    name = fields.pop("event_type")
    fields.pop("execution_id", None)
    row: dict[str, Any] = {
        "execution_id": recorded.execution_id,
        "seq": recorded.seq,
        "event_id": recorded.event_id,
        "prev_event_id": recorded.prev_event_id,
        "event_type": name,
        "node_type": event.node_type,
        "status": status_of(event),
        "created_at": recorded.created_at,
    }
    if recorded.parent_event_id is not None:
        row["parent_event_id"] = recorded.parent_event_id
    if recorded.event_time is not None:
        row["event_time"] = recorded.event_time
    row["step"] = fields.pop("step", "playbook")
    row["node_name"] = row["step"]
    row["node_id"] = fields.get("command_key", row["step"])
    fields.pop("outcome", None)
    result = _result(fields, row["status"])
    if result is not None:
        row["result"] = result
    row |= {key: fields.pop(key) for key in TOP if key in fields}
    meta = {key: fields.pop(key) for key in META if key in fields}
    if meta:
        row["meta"] = meta
    if fields:
        row["context"] = fields
    return row


_recent: Final = Once(_made, most=512)


def status_of(event: Event) -> str:
    """The status word of an event: of its kind, or of its outcome."""
    outcome: str = getattr(event, "outcome", "")
    return outcome or event.status


def _result(fields: dict[str, Any], status: str) -> dict[str, Any] | None:
    """`{status, context?, reference?}`, when the event has a result."""
    has_data = "result" in fields
    data = fields.pop("result", None)
    reference = fields.pop("reference", None)
    if not has_data and reference is None:
        return None
    made: dict[str, Any] = {"status": status}
    if has_data:
        made["context"] = {"data": data}
    if reference is not None:
        made["reference"] = reference
    return made


def from_row(row: dict[str, Any]) -> Recorded:
    """The event of a row, of this release or an older one."""
    try:
        today = upcast(row)
        name = today["event_type"]
        cls = KINDS.get(name)
        if cls is None:
            raise InvalidRow(f"there is no event `{name}`")
        fields = {**(today.get("context") or {}), **(today.get("meta") or {})}
        fields |= {key: today[key] for key in TOP if today.get(key) is not None}
        if "step" in cls.__struct_fields__:
            fields["step"] = today["step"]
        else:
            fields.pop("step", None)
        if "execution_id" in cls.__struct_fields__:
            fields["execution_id"] = today["execution_id"]
        if "outcome" in cls.__struct_fields__:
            fields["outcome"] = today["status"]
        result = today.get("result") or {}
        if "data" in (result.get("context") or {}):
            fields["result"] = result["context"]["data"]
        if result.get("reference") is not None:
            fields["reference"] = result["reference"]
        event: Any = msgspec.convert({"event_type": name, **fields}, cls)
        about = {key: today[key] for key in _OF_ROW if key in today}
        return Recorded(event=event, **about)
    except (KeyError, TypeError, AttributeError, msgspec.ValidationError) as fault:
        raise InvalidRow(f"the row is no event: {fault}") from None
