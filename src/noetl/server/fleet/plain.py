"""Reports in their one form, whatever words their sender uses."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.events import PostedAnswer, Report, Reports
from noetl.edge.errors import Forbidden, Unacceptable, UnknownExecution
from noetl.edge.moments import moment_of
from noetl.engine.upcast import status_word
from noetl.ids import parse

if TYPE_CHECKING:
    from noetl.api.events import Posted, Reported
    from noetl.errors import NoetlError

_SHORT: Final = 19
"""Every id of fewer digits is within the bounds of one."""
_TIME: Final = len("2026-01-01T00:00:00.000000Z")
_STATUSES: Final = frozenset({
    "PENDING", "STARTED", "CLAIMED", "RUNNING", "PARKED", "PAUSED", "COMPLETED", "FAILED",
    "CANCELLED", "CONTEXT",
})  # fmt: skip
_REFUSALS: Final[dict[str, tuple[type[NoetlError], str]]] = {
    "unknown_execution": (UnknownExecution, "there is no such execution"),
    "forbidden_event": (Forbidden, "workers may not post this event"),
    "pool_forbidden": (Forbidden, "the command is of another pool"),
    "unknown_event_type": (Unacceptable, "there is no such event"),
}


def plain(report: Report, place: int, body: Reports) -> Report:
    """A report in its one form: ids as texts, aliases resolved; most are in it already."""
    if report.status is not None and status_word(report.status) not in _STATUSES:
        raise Unacceptable(
            f"`{report.status}` is not a status",
            code="bad_status",
            errors=({"pointer": f"/events/{place}/status", "code": "bad_status"},),
        )
    name = report.event_type or report.name
    if not name:
        raise Unacceptable(
            "an event has no `event_type`",
            errors=({"pointer": f"/events/{place}/event_type", "code": "validation_failed"},),
        )
    event_id = _id(report.event_id)
    execution_id = _id(report.execution_id or body.execution_id)
    payload = report.payload if report.context is None else report.context
    created_at = report.created_at
    if created_at is not None and not _is_plain_time(created_at):
        created_at = moment_of(created_at, "created_at")
    is_plain = (
        event_id == report.event_id
        and execution_id == report.execution_id
        and name == report.event_type
        and payload is report.payload
        and created_at == report.created_at
        and type(report.command_id) is str
    )
    if is_plain:
        return report
    return msgspec.structs.replace(
        report,
        event_id=event_id,
        execution_id=execution_id,
        event_type=name,
        payload=payload,
        created_at=created_at,
        command_id=str(report.command_id),
    )


def _id(value: str | int) -> str:
    """An id in its one form; nearly all come in it."""
    is_plain = (
        type(value) is str
        and len(value) < _SHORT
        and value.isascii()
        and value.isdigit()
        and value[0] != "0"
    )
    return str(value) if is_plain else parse(value)


def _is_plain_time(text: str) -> bool:
    if len(text) != _TIME or text[-1] != "Z" or text[10] != "T" or not text[5].isdigit():
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def id_of_command(name: str | int) -> str:
    """The id of a command by any of its outward names."""
    if isinstance(name, str) and ":" in name:
        parts = name.split(":")
        return parse(parts[2] if len(parts) > 2 else name)  # noqa: PLR2004 - execution, step, id
    return parse(name)


def single(body: Posted, event_id: str, pool: str) -> Reports:
    """One event as a batch; `event_id` is for an event that has none."""
    report = Report(
        execution_id=body.execution_id,
        event_id=body.event_id or event_id,
        event_type=body.event_type,
        name=body.name,
        step=body.step,
        command_id=body.command_id,
        attempt=body.attempt,
        status=body.status,
        created_at=body.created_at,
        duration_ms=body.duration_ms,
        payload=_payload(body),
    )
    return Reports(worker_id=body.worker_id, pool=pool, events=(report,))


def answer_to(reported: Reported) -> PostedAnswer:
    """What became of the one event; a refusal is raised."""
    receipt = reported.results[0]
    if receipt.outcome == "rejected":
        code = receipt.code or "validation_failed"
        kind, message = _REFUSALS.get(code, (Unacceptable, "the event is not valid"))
        raise kind(message, code=code)
    return PostedAnswer(
        event_id=receipt.event_id,
        outcome=receipt.outcome,
        seq=receipt.seq,
        commands_generated=reported.commands_generated,
    )


def _payload(body: Posted) -> Any:  # noqa: ANN401 - JSON of the caller's own
    """What a single event says: its payload, its error, or where its result lies."""
    given = body.payload if body.payload is not None else body.context
    if body.error is not None and (given is None or isinstance(given, dict)):
        return {**(given or {}), "error": body.error}
    if body.result_kind == "ref" and body.result_uri is not None and not given:
        return {"reference": {"ref": body.result_uri, "store": "object"}}
    return {} if given is None else given
