"""Errors as callers see them: a word, a code, and never a text of the server behind."""

from __future__ import annotations

from typing import Any, Final

from graphql import GraphQLError

from noetl.errors import NoetlError
from noetl.gateway.errors import (
    INVALID_PARAMS,
    SERVER_FAULT,
    Passed,
    graphql_code_of,
    rpc_of,
    title_of,
    told,
)
from noetl.gateway.graphql.limits import LimitExceeded
from noetl.gateway.rpc import noted

BAD_INPUT: Final = "BAD_USER_INPUT"
_KEPT: Final = {"UNAUTHENTICATED": 401, "FORBIDDEN": 403, "RATE_LIMITED": 429}
"""What callers of HTTP react to keeps its status, as it does for JSON-RPC."""
_BAD: Final = 400


def shown(error: BaseException, request_id: str) -> dict[str, Any]:
    """One error of an answer."""
    made: dict[str, Any] = {}
    cause: BaseException | None = error
    if isinstance(error, GraphQLError):
        cause = _cause_of(error)
        if error.locations:
            made["locations"] = [one.formatted for one in error.locations]
        if error.path:
            made["path"] = error.path
    if cause is None:
        message, more = str(getattr(error, "message", error)), _code(BAD_INPUT, INVALID_PARAMS)
    else:
        message, more = _said(cause)
    return {"message": message, **made, "extensions": {**more, "requestId": request_id}}


def refused(errors: list[dict[str, Any]], data: object = None) -> int:
    """The status of an answer that has errors; one that has data as well is a good one."""
    if data is not None:
        return 200
    words = {one["extensions"]["code"] for one in errors}
    if len(words) == 1 and (status := _KEPT.get(min(words))) is not None:
        return status
    return 200 if any("path" in one for one in errors) else _BAD


def outcome(errors: list[dict[str, Any]]) -> str:
    """What became of an operation, as metrics name it."""
    words = {one["extensions"]["code"] for one in errors}
    if not words:
        return "ok"
    if words <= {"LIMIT_EXCEEDED", "RATE_LIMITED"}:
        return "limited"
    return "refused" if words <= {BAD_INPUT, *_KEPT} else "error"


def _said(cause: BaseException) -> tuple[str, dict[str, Any]]:
    if isinstance(cause, LimitExceeded):
        return cause.message, _code(cause.word, cause.rpc_code)
    noted(cause)
    seen, failure = told(cause), rpc_of(cause)
    message = failure.message
    if isinstance(seen, NoetlError) and (isinstance(seen, Passed) or seen.status >= SERVER_FAULT):
        message = title_of(seen)
    more = _code(graphql_code_of(cause), failure.code)
    for name in ("retryAfter", "executionId"):
        if name in (failure.data or {}):
            more[name] = (failure.data or {})[name]
    return message, more


def _cause_of(error: GraphQLError) -> BaseException | None:
    """What a resolver raised; none when the document itself is wrong."""
    cause: BaseException | None = error.original_error
    while isinstance(cause, GraphQLError):
        cause = cause.original_error
    return cause


def _code(word: str, number: int) -> dict[str, Any]:
    return {"code": word, "rpcCode": number}
