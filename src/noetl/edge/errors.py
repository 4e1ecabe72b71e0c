"""Refusals of the control plane, each with the code and status that its answer carries."""

from __future__ import annotations

from typing import Any, ClassVar

from noetl.errors import NoetlError


class UnknownExecution(NoetlError):
    """There is no run of that id."""

    code = "unknown_execution"
    status: ClassVar[int] = 404


class UnknownCommand(NoetlError):
    """There is no command of that id."""

    code = "unknown_command"
    status: ClassVar[int] = 404


class UnknownPath(NoetlError):
    """The catalog has no such document."""

    code = "unknown_path"
    status: ClassVar[int] = 404


class NotFound(NoetlError):
    """There is no such thing."""

    code = "not_found"
    status: ClassVar[int] = 404


class Conflict(NoetlError):
    """The request does not fit the state that the thing is in."""

    code = "conflict"
    status: ClassVar[int] = 409

    def __init__(
        self, message: str, *, code: str, hint: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retry_after = retry_after


class Unacceptable(NoetlError):
    """The request is well formed and cannot be meant."""

    code = "validation_failed"
    status: ClassVar[int] = 422

    def __init__(
        self,
        message: str,
        *,
        code: str = "validation_failed",
        hint: str = "",
        errors: tuple[dict[str, Any], ...] = (),
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.errors = errors


class BadJson(NoetlError):
    """The body is no JSON."""

    code = "bad_json"
    status: ClassVar[int] = 400


class BadQuery(NoetlError):
    """Names of a query that exclude each other."""

    code = "bad_query"
    status: ClassVar[int] = 400


class BadReference(NoetlError):
    """A text that names no stored value."""

    code = "bad_ref"
    status: ClassVar[int] = 400


class TooLarge(NoetlError):
    """The body is over its limit."""

    code = "body_too_large"
    status: ClassVar[int] = 413


class TooLargeToRead(NoetlError):
    """A stored value that an expression may not read as a whole."""

    code = "result_too_large"
    status: ClassVar[int] = 413


class Forbidden(NoetlError):
    """The caller may not do this."""

    code = "forbidden"
    status: ClassVar[int] = 403


class Expired(NoetlError):
    """It was there, and its time has passed."""

    code = "expired"
    status: ClassVar[int] = 410


class NoObjectStore(NoetlError):
    """A value is to lie in an object store, and there is none."""

    code = "no_object_store"
    status: ClassVar[int] = 422


class PoolSaturated(NoetlError):
    """More is queued than the server takes on."""

    code = "pool_saturated"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 1.0


class Draining(NoetlError):
    """The server is about to stop and takes on nothing new."""

    code = "draining"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 1.0


class RaceLost(NoetlError):
    """Another server started the run, or wrote to it again and again, before this one could."""

    code = "version_conflict"
    status: ClassVar[int] = 409
    retryable: ClassVar[bool] = True


class AuthRequired(NoetlError):
    """The request says not, or not credibly, whose it is."""

    code = "auth_required"
    status: ClassVar[int] = 401


class RateLimited(NoetlError):
    """Too many requests of one kind in a short while."""

    code = "rate_limited"
    status: ClassVar[int] = 429
    retryable: ClassVar[bool] = True

    def __init__(self, message: str, *, hint: str = "", retry_after: float = 1.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class QuotaExceeded(NoetlError):
    """A limit of the tenant is reached."""

    code = "quota_exceeded"
    status: ClassVar[int] = 429
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 1.0


class BadCredentials(NoetlError):
    """A name and a password that do not belong together, for whichever reason."""

    code = "bad_credentials"
    status: ClassVar[int] = 401


class InternalTokenUnset(NoetlError):
    """Internal routes are closed: the server was given no internal token."""

    code = "internal_token_unset"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    retry_after: ClassVar[float] = 5.0


class RequestTimeout(NoetlError):
    """The request took longer than it may."""

    code = "timeout"
    status: ClassVar[int] = 408
    retryable: ClassVar[bool] = True


class BadMediaType(NoetlError):
    """The body is of a kind, or packed in a way, that the route does not read."""

    code = "bad_media_type"
    status: ClassVar[int] = 415


class HeadersTooLarge(NoetlError):
    """The headers are over their limit."""

    code = "headers_too_large"
    status: ClassVar[int] = 431
