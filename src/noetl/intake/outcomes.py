"""What becomes of a message: of one attempt to start its run, of its run, and at its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from noetl.api.subscriptions import Outcome

Kind = Literal["accepted", "duplicate", "unavailable", "refused", "misconfigured"]
Settled = Literal["ack", "nack", "term"]

LONGEST_WAIT_S: Final = 60.0
RETRYABLE_KINDS: Final = frozenset(
    {"connection", "timeout", "server_error", "rate_limit", "db_connection", "db_timeout"}
)
"""Failures of a run that say that what it needs is away."""
_BUSY: Final = frozenset({408, 425, 429})
_UNKNOWN_CALLER: Final = frozenset({401, 403})
_NOT_OURS: Final = frozenset(
    {"unauthorized", "unauthenticated", "forbidden", "field_not_allowed", "permission_denied"}
)
_SERVER_ERROR: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class StartOutcome:
    """What came of one attempt to start a run."""

    kind: Kind
    execution_id: str | None = None
    code: str = ""
    detail: str = ""
    retry_after_s: float | None = None
    is_outage: bool = False
    """Whether the server was away: no connection, no answer in time, or an error of its own."""
    is_entry: bool = False
    """Whether the server answered for this one alone, so that it may be tried again alone."""

    @property
    def is_accepted(self) -> bool:
        """Whether there is a run, this one or that of the same key."""
        return self.kind in {"accepted", "duplicate"}

    @property
    def is_of_all(self) -> bool:
        """Whether nothing else could be started now either."""
        return self.kind in {"unavailable", "misconfigured"} and not self.is_entry


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """How a run has ended."""

    execution_id: str
    status: str
    message_id: str | None = None
    downstream: str | None = None
    error_kind: str = ""
    is_retryable: bool = False

    @property
    def is_completed(self) -> bool:
        """Whether it did what it was to do."""
        return self.status == "COMPLETED"

    @property
    def is_outage(self) -> bool:
        """Whether it failed because something it needs is away."""
        return self.status == "FAILED" and self.is_retryable and self.error_kind in RETRYABLE_KINDS

    @classmethod
    def of(cls, told: Outcome) -> RunOutcome:
        """The outcome as the server tells it."""
        error = told.error
        return cls(
            execution_id=told.execution_id,
            status=told.status,
            message_id=told.message_id,
            downstream=told.downstream,
            error_kind="" if error is None else error.kind,
            is_retryable=error is not None and error.retryable,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Disposition:
    """What the source is to be told of a message."""

    message_id: str
    settle: Settled
    outcome: str
    """`started`, `duplicate`, `spooled`, `dead_lettered`, `failed` or `held`."""
    ack_id: str | None = None
    delay_ms: int = 0
    execution_id: str | None = None
    spool_ref: str | None = None
    reason: str = ""


def answered(status: int, code: str, detail: str, retry_after_s: float | None) -> StartOutcome:
    """The outcome of an answer that is no success."""
    kind: Kind = "refused"
    if status in _UNKNOWN_CALLER:
        kind = "misconfigured"
    elif status in _BUSY or status >= _SERVER_ERROR:
        kind = "unavailable"
    return StartOutcome(
        kind=kind,
        code=code,
        detail=detail,
        retry_after_s=retry_after_s,
        is_outage=status >= _SERVER_ERROR,
    )


def unanswered(detail: str, code: str = "no_answer") -> StartOutcome:
    """The outcome of a request that nobody has answered."""
    return StartOutcome(kind="unavailable", code=code, detail=detail, is_outage=True)


def of_entry(status: str, execution_id: str | None, error: Any) -> StartOutcome:  # noqa: ANN401 - JSON of the wire
    """The outcome of one entry of a batch."""
    if status in {"started", "duplicate"}:
        kind: Kind = "accepted" if status == "started" else "duplicate"
        return StartOutcome(kind=kind, execution_id=execution_id, is_entry=True)
    told = error if isinstance(error, dict) else {}
    code = str(told.get("code", ""))
    if told.get("retryable"):
        kind = "unavailable"
    else:
        kind = "misconfigured" if code in _NOT_OURS else "refused"
    return StartOutcome(kind=kind, code=code, detail=str(told.get("detail", "")), is_entry=True)
