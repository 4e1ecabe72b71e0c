"""What a commit writes, by the names of columns, and rows of events and runs back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from noetl.clock import rfc3339
from noetl.engine.rows import from_row, to_row
from noetl.store.base import ExecutionRow
from noetl.store.postgres.documents import (
    shown,
    shown_or_none,
    value_of,
)
from noetl.store.postgres.values import id_of, moment, text_of, told

if TYPE_CHECKING:
    import asyncpg

    from noetl.engine.events import Recorded
    from noetl.store.base import Change, CommandRow, Outgoing, TimerRow

_ROWS_OWN: Final = ("parent_execution_id", "catalog_id")
"""Facts of the run that its first row tells outward; as columns they are in `execution`."""
_EXACT_TIME: Final = "@event_time"
_OPEN: Final = frozenset({"PENDING", "CLAIMED", "PARKED"})

EVENT_COLUMNS: Final = """execution_id, seq, event_id, prev_event_id, event_type, step, node_type,
    status, attempt, worker_id, parent_event_id, created_at, event_time, duration_ms, context,
    result, meta, error, trace, idempotency_key"""
EXECUTION_COLUMNS: Final = """execution_id, status, catalog_id, path, version, pool, priority,
    last_seq, last_event_id, started_at, updated_at, completed_at, parent_execution_id, parent_key,
    concurrency_key, dedup_key, rerun_of, forked_from, current_steps, steps, pending_commands,
    labels, tenant_id, organization_id, kind, root_execution_id, last_event_type, workload, result,
    error, trace, created_by, request_id, client_id"""


def needed(text: str) -> int:
    """An id that must be one."""
    number = id_of(text)
    if number is None:
        raise ValueError(f"{text!r} is no id")
    return number


def event_document(recorded: Recorded) -> dict[str, Any]:
    """An event by the names of its columns; what has no column of its own is in `meta`."""
    row = to_row(recorded)
    del row["node_name"]
    meta = row.get("meta")
    own: dict[str, Any] = {key: row.pop(key) for key in _ROWS_OWN if key in row}
    if recorded.event_time is not None:
        row["event_time"], exact = _event_time(recorded.event_time)
        if exact is not None:
            own[_EXACT_TIME] = exact
    if own:
        row["meta"] = meta = {**(meta or {}), **own}
    if meta is not None and "index" in meta:
        row["iteration"] = meta["index"]
    if row["event_type"] == "command.issued":
        row["command_id"] = recorded.event_id
    return row


def event_of(row: asyncpg.Record) -> Recorded:
    """The event of its columns."""
    meta = value_of(row["meta"]) or {}
    own = {key: meta.pop(key) for key in _ROWS_OWN if key in meta}
    fields = {
        "execution_id": str(row["execution_id"]),
        "seq": row["seq"],
        "event_id": str(row["event_id"]),
        "prev_event_id": text_of(row["prev_event_id"]),
        "event_type": row["event_type"],
        "step": shown(row["step"]),
        "status": row["status"],
        "attempt": row["attempt"],
        "worker_id": shown_or_none(row["worker_id"]),
        "parent_event_id": text_of(row["parent_event_id"]),
        "created_at": rfc3339(row["created_at"]),
        "event_time": meta.pop(_EXACT_TIME, told(row["event_time"])),
        "duration_ms": row["duration_ms"],
        "context": value_of(row["context"]),
        "result": value_of(row["result"]),
        "meta": meta,
        "error": value_of(row["error"]),
        "trace": value_of(row["trace"]),
        "idempotency_key": shown_or_none(row["idempotency_key"]),
    }
    return from_row(fields | own)


def _event_time(text: str) -> tuple[str | None, str | None]:
    """The creator's time, and its own words when the column would tell them otherwise."""
    try:
        time = told(moment(text))
    except (ValueError, OverflowError):
        return None, text
    return time, None if time == text else text


def head_document(change: Change) -> dict[str, Any]:
    """What an append changes of its run."""
    row = change.execution
    found: dict[str, Any] = {
        "status": row.status,
        "last_seq": change.events[-1].seq if change.events else row.last_seq,
        "last_event_id": row.last_event_id,
        "last_event_type": row.last_event_type,
        "current_steps": row.current_steps,
        "steps": row.progress,
        "pending_commands": row.pending_commands,
        "updated_at": row.updated_at,
        "completed_at": row.completed_at,
        "result": row.result,
    }
    if row.error is not None:
        found["error"] = row.error
        found["error_message"] = str(row.error.get("message", ""))
    if change.snapshot is not None:
        found["snapshot"] = binary(change.snapshot)
    return found


def start_document(change: Change) -> dict[str, Any]:
    """What a start tells of its run for ever."""
    row = change.execution
    return {
        "execution_id": row.execution_id,
        "has_key": change.dedup is not None,
        "tenant_id": row.tenant_id,
        "organization_id": row.organization_id,
        "catalog_id": row.catalog_id,
        "path": row.path,
        "version": row.version,
        "kind": row.kind,
        "workload": row.workload,
        "labels": row.labels,
        "trace": row.trace,
        "pool": row.pool,
        "priority": row.priority,
        "concurrency_key": row.concurrency_key,
        "dedup_key": row.dedup_key,
        "request_id": row.request_id,
        "client_id": row.client_id,
        "parent_execution_id": row.parent_execution_id,
        "parent_key": row.parent_key,
        "root_execution_id": row.root_execution_id,
        "forked_from": row.forked_from,
        "rerun_of": row.rerun_of,
        "created_by": row.created_by,
        "started_at": row.started_at,
    }


def execution_of(row: asyncpg.Record) -> ExecutionRow:
    """The run of its columns."""
    return ExecutionRow(
        execution_id=str(row["execution_id"]),
        status=row["status"],
        catalog_id=str(row["catalog_id"]),
        path=row["path"],
        version=row["version"],
        pool=row["pool"],
        priority=row["priority"],
        last_seq=row["last_seq"],
        last_event_id=str(row["last_event_id"]),
        started_at=rfc3339(row["started_at"]),
        updated_at=rfc3339(row["updated_at"]),
        completed_at=told(row["completed_at"]),
        parent_execution_id=text_of(row["parent_execution_id"]),
        parent_key=shown_or_none(row["parent_key"]),
        concurrency_key=shown_or_none(row["concurrency_key"]),
        dedup_key=shown_or_none(row["dedup_key"]),
        rerun_of=text_of(row["rerun_of"]),
        forked_from=value_of(row["forked_from"]),
        current_steps=tuple(row["current_steps"]),
        progress=value_of(row["steps"]) or {},
        pending_commands=row["pending_commands"],
        labels=value_of(row["labels"]) or {},
        tenant_id=row["tenant_id"],
        organization_id=row["organization_id"],
        kind=row["kind"],
        root_execution_id=text_of(row["root_execution_id"]),
        last_event_type=row["last_event_type"],
        workload=value_of(row["workload"]) or {},
        result=value_of(row["result"]),
        error=value_of(row["error"]),
        trace=value_of(row["trace"]),
        created_by=shown(row["created_by"]),
        request_id=shown_or_none(row["request_id"]),
        client_id=shown_or_none(row["client_id"]),
    )


def command_document(row: CommandRow, change: Change) -> dict[str, Any]:
    """A command by the names of its columns."""
    run = change.execution
    status = row.status
    if run.completed_at is not None and status in _OPEN:
        status = "CANCELLED"
    found: dict[str, Any] = {
        "execution_id": row.execution_id,
        "command_id": row.command_id,
        "command_key": row.command_key,
        "step": row.step,
        "tool_kind": row.kind,
        "pool": row.pool,
        "priority": row.priority,
        "status": status,
        "is_paused": run.status == "PAUSED",
        "attempt": row.attempt,
        "losses": row.losses,
        "max_attempts": row.max_attempts,
        "started_at": row.started_at,
        "available_at": row.available_at or None,
        "checkpoint": row.checkpoint,
    }
    if status not in _OPEN:
        found["completed_at"] = run.updated_at
        return found
    found["worker_id"] = row.worker_id
    found["lease_until"] = row.lease_until
    if status == "CLAIMED" and row.started_at is None:
        found["claimed_at"] = run.updated_at
    return found


def outgoing_document(item: Outgoing, available_at: str) -> dict[str, Any]:
    """A message by the names of its columns."""
    return {
        "outbox_id": item.outgoing_id,
        "execution_id": item.execution_id,
        "kind": item.kind,
        "payload": item.payload,
        "first_seq": item.payload.get("first_seq"),
        "last_seq": item.payload.get("last_seq"),
        "available_at": available_at,
    }


def timer_document(row: TimerRow, *, is_paused: bool) -> dict[str, Any]:
    """A timer by the names of its columns."""
    return {
        "execution_id": row.execution_id,
        "timer_key": row.timer_key,
        "due_at": row.due_at,
        "kind": row.kind,
        "is_paused": is_paused,
    }


def binary(data: bytes) -> str:
    """Bytes as PostgreSQL reads them in a text."""
    return "\\x" + data.hex()
