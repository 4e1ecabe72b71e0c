"""Errors to HTTP bodies: the one table of titles, and the one place that makes a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response

from noetl.api.problems import Problem
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from starlette.requests import Request

MEDIA_TYPE: Final = "application/problem+json"
_PREFIX: Final = "https://noetl.dev/e/"
_encode: Final = msgspec.json.Encoder().encode

TITLES: Final = {
    "active_claim": "The command is claimed",
    "already_terminal": "It has ended",
    "bad_method": "The path has no such method",
    "bad_json": "The body is not JSON",
    "bad_position": "The log has no such position",
    "bad_ref": "Not a reference",
    "bad_status": "Not a status",
    "batch_size_invalid": "Too many items",
    "body_too_large": "The body is too large",
    "child_depth": "Runs are nested too deeply",
    "concurrency_limit": "The limit of the concurrency key is reached",
    "draining": "The server is stopping",
    "execution_cancelled": "The execution was cancelled",
    "execution_paused": "The execution is paused",
    "expired": "It has expired",
    "forbidden_event": "Workers may not post this event",
    "internal": "The server has failed",
    "invalid_id": "Not an id",
    "invalid_input": "The payload does not fit",
    "invalid_playbook": "The document is not valid",
    "not_executable": "The document cannot be run",
    "not_found": "Not found",
    "not_paused": "The execution is not paused",
    "not_running": "The execution is not running",
    "pool_invalid": "Not a pool",
    "pool_saturated": "Too much is queued",
    "requirement_missing": "The playbook requires what is not there",
    "result_gone": "The object is gone",
    "result_too_large": "The object is too large to read here",
    "unknown_command": "There is no such command",
    "unknown_event_type": "There is no such event",
    "unknown_execution": "There is no such execution",
    "unknown_field": "The body has an unknown field",
    "unknown_parameter": "The query has an unknown name",
    "unknown_path": "The catalog has no such document",
    "validation_failed": "The request is not valid",
    "version_conflict": "The versions do not fit",
}


def problem_of(error: BaseException) -> Problem:
    """The body of an error; what nobody raised on purpose tells nothing of itself."""
    if not isinstance(error, NoetlError):
        return Problem(
            type=f"{_PREFIX}internal",
            title=TITLES["internal"],
            status=500,
            code="internal",
            detail="an error that is not the caller's; the server's log has it",
        )
    code = error.code
    return Problem(
        type=_PREFIX + code,
        title=TITLES.get(code, code.replace("_", " ").capitalize()),
        status=error.status,
        code=code,
        detail=error.message,
        hint=error.hint,
        errors=tuple(getattr(error, "errors", ())),
        execution_id=getattr(error, "execution_id", None),
        retry_after=getattr(error, "retry_after", None),
    )


def answer_of(error: BaseException) -> Response:
    """The answer of an error."""
    problem = problem_of(error)
    headers = {}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(problem.retry_after)))
    return Response(
        _encode(problem), status_code=problem.status, headers=headers, media_type=MEDIA_TYPE
    )


async def refused(request: Request, error: Exception) -> Response:
    """What the router itself refuses."""
    status = getattr(error, "status_code", 404)
    code = "bad_method" if status == 405 else "not_found"  # noqa: PLR2004 - method not allowed
    problem = Problem(
        type=_PREFIX + code,
        title=TITLES.get(code, "Wrong method"),
        status=status,
        code=code,
        detail=f"{request.method} {request.url.path}",
    )
    return Response(_encode(problem), status_code=status, media_type=MEDIA_TYPE)
