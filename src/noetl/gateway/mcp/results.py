"""What a tool answers: a document of a request, or of the server, as MCP has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.errors import NoetlError
from noetl.gateway.errors import SERVER_FAULT, title_of, told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.api.gateway import RequestDocument

POLL_MS: Final = 2_000
_TASKS: Final = {
    "accepted": "working", "running": "working", "completed": "completed",
    "cancelled": "cancelled", "failed": "failed", "timeout": "failed", "rejected": "failed",
}  # fmt: skip
_STATUSES: Final = {
    "accepted": "RUNNING", "running": "RUNNING", "completed": "COMPLETED",
    "cancelled": "CANCELLED", "failed": "FAILED", "timeout": "TIMEOUT", "rejected": "FAILED",
}  # fmt: skip


def of_document(document: RequestDocument) -> dict[str, Any]:
    """The result of a call whose run is as the document says."""
    made: dict[str, Any] = {
        "execution_id": document.execution_id,
        "request_id": document.request_id,
        "status": _STATUSES[document.state],
    }
    if document.state == "completed":
        made["result"] = document.result
    if document.result_ref is not None:
        made["result_ref"] = msgspec.to_builtins(document.result_ref)
    if document.error is not None:
        made["error"] = msgspec.to_builtins(document.error)
    return of_value(made, is_error=not document.is_open and document.state != "completed")


def of_value(value: object, *, is_error: bool = False) -> dict[str, Any]:
    """A value as the result of a call."""
    text = msgspec.json.encode(value).decode()
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": value if isinstance(value, dict) else {"result": value},
        "isError": is_error,
    }


def of_faults(faults: Sequence[dict[str, str]]) -> dict[str, Any]:
    """Arguments that are not what the tool takes; each place is named."""
    lines = [f"{one['pointer'] or '/'}: {one['message']}" for one in faults]
    text = "The arguments do not fit the input schema.\n" + "\n".join(lines)
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": {"status": "INVALID", "problems": list(faults)},
        "isError": True,
    }


def of_error(error: NoetlError) -> dict[str, Any]:
    """A refusal as the result of a call; never a text of the server's own troubles."""
    seen = told(error)
    if not isinstance(seen, NoetlError):
        raise seen
    message = seen.message if seen.status < SERVER_FAULT else title_of(seen)
    made: dict[str, Any] = {"code": seen.code, "message": message}
    problems = list(getattr(seen, "errors", ()) or ())
    body: dict[str, Any] = {"status": "REFUSED", "error": made}
    if problems:
        body["problems"] = problems
    run = getattr(seen, "execution_id", None)
    if run:
        body["execution_id"] = run
    return {
        "content": [{"type": "text", "text": f"{seen.code}: {message}"}],
        "structuredContent": body,
        "isError": True,
    }


def task_of(document: RequestDocument, *, is_modern: bool) -> dict[str, Any]:
    """A run as a task."""
    made: dict[str, Any] = {
        "taskId": document.request_id,
        "status": _TASKS[document.state],
        "createdAt": document.created_at,
        "lastUpdatedAt": document.created_at,
    }
    if document.error is not None:
        made["statusMessage"] = document.error.message
    if is_modern:
        return made | {"ttlMs": None, "pollIntervalMs": POLL_MS}
    return made | {"ttl": None, "pollInterval": POLL_MS}
