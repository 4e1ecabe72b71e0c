"""Errors to HTTP bodies: the one table of titles, and the one place that makes a problem."""

from __future__ import annotations

import re
from http import HTTPStatus
from math import ceil
from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response

from noetl.api.problems import Problem
from noetl.errors import NoetlError
from noetl.ids import random_key

if TYPE_CHECKING:
    from starlette.requests import Request

MEDIA_TYPE: Final = "application/problem+json"
_PREFIX: Final = "https://noetl.dev/e/"
_COME_BACK: Final = (429, 503)
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_encode: Final = msgspec.json.Encoder().encode

TITLES: Final = {
    "active_claim": "The command is claimed",
    "already_terminal": "It has ended",
    "auth_required": "A token is needed",
    "bad_cursor": "Not a cursor of this list",
    "bad_json": "The body is not JSON",
    "bad_media_type": "The body is of a kind that is not read",
    "bad_method": "The path has no such method",
    "bad_position": "The log has no such position",
    "bad_query": "The query is not valid",
    "bad_ref": "Not a reference",
    "bad_status": "Not a status",
    "bad_time": "Not a time",
    "bad_transition": "It cannot change like that",
    "bad_value": "A value that JSON may not hold here",
    "batch_size_invalid": "Too many items",
    "body_too_large": "The body is too large",
    "broker_unreachable": "The broker cannot be reached",
    "child_depth": "Runs are nested too deeply",
    "concurrency_limit": "The limit of the concurrency key is reached",
    "db_unavailable": "The database cannot be reached",
    "dedup_conflict": "The key was used for another request",
    "digest_mismatch": "The bytes are not the announced ones",
    "draining": "The server is stopping",
    "execution_cancelled": "The execution was cancelled",
    "execution_paused": "The execution is paused",
    "expired": "It has expired",
    "field_not_allowed": "A field that this caller may not set",
    "forbidden": "Not allowed",
    "forbidden_event": "Workers may not post this event",
    "headers_too_large": "The headers are too large",
    "in_use": "It is in use",
    "internal": "The server has failed",
    "internal_token_mismatch": "Not the internal token",
    "internal_token_unset": "The server has no internal token",
    "invalid_id": "Not an id",
    "invalid_input": "The payload does not fit",
    "invalid_playbook": "The document is not valid",
    "kek_unavailable": "The key service cannot be reached",
    "listener_taken": "The listener is taken",
    "no_entry_step": "The playbook has no entry step",
    "not_compilable": "It cannot be compiled",
    "not_executable": "The document cannot be run",
    "not_found": "Not found",
    "not_overridable": "It cannot be overridden",
    "not_paused": "The execution is not paused",
    "not_retryable": "It cannot be tried again",
    "not_running": "The execution is not running",
    "path_invalid": "Not a path",
    "plugin_invalid": "The plug-in is not valid",
    "pool_forbidden": "The token is for another pool",
    "pool_invalid": "Not a pool",
    "pool_saturated": "Too much is queued",
    "quota_exceeded": "The quota is used up",
    "rate_limited": "Too many requests",
    "requirement_missing": "The playbook requires what is not there",
    "reserved_namespace": "The path is reserved",
    "reserved_pool": "The pool is reserved",
    "reserved_tool_kind": "The kind of tool is reserved",
    "residency_denied": "The value may not leave its region",
    "result_gone": "The object is gone",
    "result_too_large": "The object is too large to read here",
    "revision_conflict": "It was changed meanwhile",
    "session_expired": "The session has expired",
    "stale_attempt": "Another attempt has taken over",
    "storage_full": "The storage is full",
    "test_gate": "Its tests do not pass",
    "timeout": "The request took too long",
    "token_expired": "The token has expired",
    "unknown_command": "There is no such command",
    "unknown_event_type": "There is no such event",
    "unknown_execution": "There is no such execution",
    "unknown_field": "The body has an unknown field",
    "unknown_listener": "There is no such listener",
    "unknown_parameter": "The query has an unknown name",
    "unknown_path": "The catalog has no such document",
    "unknown_subscription": "There is no such subscription",
    "unknown_worker": "There is no such worker",
    "upstream_unreachable": "The service behind cannot be reached",
    "validation_failed": "The request is not valid",
    "version_conflict": "The versions do not fit",
    "worker_key_missing": "The worker has registered no key",
}


def problem_of(error: BaseException, request_id: str | None = None) -> Problem:
    """The body of an error; what nobody raised on purpose tells nothing of itself."""
    if not isinstance(error, NoetlError):
        return Problem(
            type=f"{_PREFIX}internal",
            title=TITLES["internal"],
            status=500,
            code="internal",
            detail="an error that is not the caller's; the server's log has it",
            request_id=request_id,
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
        retry_after=_retry_after(error),
        request_id=request_id,
    )


def _retry_after(error: NoetlError) -> float | None:
    """When to come back: always told where the status promises it."""
    known: float | None = getattr(error, "retry_after", None)
    return 1.0 if known is None and error.status in _COME_BACK else known


def answer_of(error: BaseException, request_id: str | None = None) -> Response:
    """The answer of an error."""
    problem = problem_of(error, request_id)
    headers = {}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(max(1, ceil(problem.retry_after)))
    if problem.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(
        _encode(problem), status_code=problem.status, headers=headers, media_type=MEDIA_TYPE
    )


async def refused(request: Request, error: Exception) -> Response:
    """What the router itself refuses."""
    status = getattr(error, "status_code", HTTPStatus.NOT_FOUND)
    code = "bad_method" if status == HTTPStatus.METHOD_NOT_ALLOWED else "not_found"
    request_id = named(request) or f"r-{random_key()}"
    problem = Problem(
        type=_PREFIX + code,
        title=TITLES[code],
        status=status,
        code=code,
        detail=f"{request.method} {request.url.path}",
        request_id=request_id,
    )
    headers = {"X-Request-ID": request_id, **(getattr(error, "headers", None) or {})}
    return Response(_encode(problem), status_code=status, headers=headers, media_type=MEDIA_TYPE)


def named(request: Request) -> str:
    """The caller's own name for a request, if it is one."""
    given = request.headers.get("x-request-id")
    return given if given is not None and _REQUEST_ID.match(given) else ""
