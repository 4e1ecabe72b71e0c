"""Refusals of the gateway, and what an error is called on each way out: HTTP, JSON-RPC, GraphQL.

NoetlError
├── MissingToken, InvalidSession, QueryTokenDisabled, TicketUsed, CallbackTokenMissing   401
├── CsrfRejected, OriginRefused, ClientNotYours, CallbackTokenWrong                      403
├── BadPath, BadSubprotocol 400, UnknownRequest 404, ExecutionMismatch 409, BadStatus 422
├── TooManyClients 429
├── AuthHookInvalid 502, AuthBackendBusy 503
├── AuthUnavailable, UpstreamUnavailable, ShardMapMismatch 503, UpstreamTimeout 504
└── NoAnswer ── UpstreamUnreachable                                                      502
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from noetl.api.codes import PROBLEMS
from noetl.api.gateway import Failure
from noetl.api.http import NoAnswer
from noetl.api.problems import Problem, Refused
from noetl.errors import NoetlError

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
PLAYBOOK_FAILED: Final = -32000
DEADLINE_PASSED: Final = -32001
UNAUTHORIZED: Final = -32002
FORBIDDEN: Final = -32003
CANCELLED: Final = -32004
RATE_LIMITED: Final = -32005
TOO_LARGE: Final = -32006
UNAVAILABLE: Final = -32007
NOT_FOUND: Final = -32008

SERVER_FAULT: Final = 500
_CODES: Final = {
    400: INVALID_PARAMS, 401: UNAUTHORIZED, 403: FORBIDDEN, 404: NOT_FOUND, 405: METHOD_NOT_FOUND,
    408: UNAVAILABLE, 409: INVALID_PARAMS, 410: NOT_FOUND, 413: TOO_LARGE, 415: INVALID_PARAMS,
    422: INVALID_PARAMS, 429: RATE_LIMITED,
}  # fmt: skip
_WORDS: Final = {
    UNAUTHORIZED: "UNAUTHENTICATED", FORBIDDEN: "FORBIDDEN", NOT_FOUND: "NOT_FOUND",
    INVALID_PARAMS: "BAD_USER_INPUT", RATE_LIMITED: "RATE_LIMITED", TOO_LARGE: "LIMIT_EXCEEDED",
}  # fmt: skip
_CONFLICT: Final = 409
_OUR_OWN_FAULT: Final = frozenset(
    {"bad_identity", "internal_token_mismatch", "internal_token_unset", "auth_required"}
)
"""What a server says when it does not believe the gateway: no caller can help that."""
_ENDED: Final = frozenset({"session_expired", "token_expired"})


class MissingToken(NoetlError):
    """The request says not whose it is."""

    code = "missing_token"
    status: ClassVar[int] = 401


class InvalidSession(NoetlError):
    """The session is unknown, has expired or was ended."""

    code = "invalid_session"
    status: ClassVar[int] = 401


class QueryTokenDisabled(NoetlError):
    """A session in the query, where addresses are logged by everybody on the way."""

    code = "query_token_disabled"
    status: ClassVar[int] = 401


class TicketUsed(NoetlError):
    """A ticket works once, for a short while and for one purpose."""

    code = "ticket_used"
    status: ClassVar[int] = 401


class AuthUnavailable(NoetlError):
    """Nobody can say now whether the session lasts."""

    code = "auth_unavailable"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 1.0


class AuthBackendBusy(NoetlError):
    """The playbook that signs people in did not answer in time."""

    code = "auth_backend_busy"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 5.0


class AuthHookInvalid(NoetlError):
    """The playbook that signs people in has answered what nobody understands."""

    code = "auth_hook_invalid"
    status: ClassVar[int] = 502


class CsrfRejected(NoetlError):
    """A page of somebody else tried to use the cookie."""

    code = "csrf_rejected"
    status: ClassVar[int] = 403


class OriginRefused(NoetlError):
    """The page that asks is none of those that may."""

    code = "origin_refused"
    status: ClassVar[int] = 403


class ClientNotYours(NoetlError):
    """The client belongs to another session."""

    code = "client_not_yours"
    status: ClassVar[int] = 403


class TooManyClients(NoetlError):
    """A session or a user has as many clients as it may."""

    code = "too_many_clients"
    status: ClassVar[int] = 429
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 30.0


class UnknownRequest(NoetlError):
    """There is no such request, or it is somebody else's."""

    code = "unknown_request"
    status: ClassVar[int] = 404


class CallbackTokenMissing(NoetlError):
    """A callback that does not show that it belongs to its request."""

    code = "callback_token_missing"
    status: ClassVar[int] = 401


class CallbackTokenWrong(NoetlError):
    """A callback with the token of another request."""

    code = "callback_token_wrong"
    status: ClassVar[int] = 403


class ExecutionMismatch(NoetlError):
    """A callback that names another run than its request has."""

    code = "execution_mismatch"
    status: ClassVar[int] = 409


class BadStatus(NoetlError):
    """A word that is no status."""

    code = "bad_status"
    status: ClassVar[int] = 422


class BadPath(NoetlError):
    """A path that may mean something else to the server than it says."""

    code = "bad_path"
    status: ClassVar[int] = 400


class BadSubprotocol(NoetlError):
    """A WebSocket in a protocol that is not spoken here."""

    code = "bad_subprotocol"
    status: ClassVar[int] = 400


class UpstreamUnreachable(NoAnswer):
    """The server did not answer: it is away, or the connection was lost."""

    code = "upstream_unreachable"
    status: ClassVar[int] = 502


class UpstreamTimeout(NoetlError):
    """The server did not begin to answer in time."""

    code = "upstream_timeout"
    status: ClassVar[int] = 504
    retryable: ClassVar[bool] = True


class UpstreamUnavailable(NoetlError):
    """Not now; a run may have been started all the same when an id is told."""

    code = "upstream_unavailable"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        execution_id: str | None = None,
        retry_after: float = 1.0,
    ) -> None:
        super().__init__(message, hint=hint)
        self.execution_id = execution_id
        self.retry_after = retry_after


class ShardMapMismatch(NoetlError):
    """Gateway and server disagree about the shards, so nobody knows where a run is."""

    code = "shard_map_mismatch"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 5.0


class Passed(NoetlError):
    """What the server refused, with its own code and status."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail, hint=problem.hint, code=problem.code)
        self.status = problem.status  # type: ignore[misc] # of this answer, not of the class
        self.errors = problem.errors
        self.execution_id = problem.execution_id
        self.retry_after = problem.retry_after


def told(error: BaseException) -> BaseException:
    """An error as callers of the gateway may see it: one of the server's is ours from here on."""
    if isinstance(error, Refused):
        problem = error.problem
        if problem.code in _ENDED:
            return InvalidSession("the session has ended", hint="sign in again")
        if problem.code in PROBLEMS and problem.code not in _OUR_OWN_FAULT:
            return Passed(problem)
        return UpstreamUnavailable("the server cannot do this now", retry_after=1.0)
    if isinstance(error, NoAnswer) and not isinstance(error, UpstreamUnreachable):
        return UpstreamUnreachable("the server did not answer")
    return error


def rpc_of(error: BaseException) -> Failure:
    """An error in the codes of JSON-RPC."""
    seen = told(error)
    if not isinstance(seen, NoetlError):
        return Failure(code=INTERNAL_ERROR, message="internal error")
    data: dict[str, Any] = {"code": seen.code}
    for name, attribute in (
        ("retryAfter", "retry_after"),
        ("executionId", "execution_id"),
        ("errors", "errors"),
    ):
        value = getattr(seen, attribute, None)
        if value:
            data[name] = list(value) if name == "errors" else value
    code = _rpc_code(seen)
    message = seen.message if seen.status < SERVER_FAULT else title_of(seen)
    return Failure(code=code, message=message, data=data)


def graphql_code_of(error: BaseException) -> str:
    """An error in the words of `extensions.code`."""
    seen = told(error)
    if isinstance(seen, NoetlError) and seen.status == _CONFLICT:
        return "CONFLICT"
    return _WORDS.get(rpc_of(seen).code, "UPSTREAM")


def title_of(error: NoetlError) -> str:
    """What a code stands for, without any text of whoever raised it."""
    known = PROBLEMS.get(error.code)
    return error.code.replace("_", " ").capitalize() if known is None else known.title


def _rpc_code(error: NoetlError) -> int:
    if error.code == "internal":
        return INTERNAL_ERROR
    is_fault = error.status >= SERVER_FAULT
    return UNAVAILABLE if is_fault else _CODES.get(error.status, INVALID_PARAMS)
