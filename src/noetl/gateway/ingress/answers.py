"""What a sender is told: that its delivery is safe, or why it is not taken."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from noetl.api.codes import PROBLEMS
from noetl.api.problems import Problem
from noetl.edge.problems import MEDIA_TYPE
from noetl.gateway.ingress.refusals import (
    CIRCUIT_OPEN,
    CONFIG_UNAVAILABLE,
    DISPATCH_FAILED,
    NOT_ACTIVE,
    OVERLOADED,
    RATE_LIMITED,
    SPOOL_FULL,
    SPOOL_UNAVAILABLE,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from noetl.gateway.ingress.challenge import Reply
    from noetl.intake.outcomes import Disposition

ACCEPTED: Final = "accepted"
DUPLICATE: Final = "duplicate"
SPOOLED: Final = "spooled"
DEAD_LETTERED: Final = "dead_lettered"
FAILED: Final = "failed"
REJECTED: Final = "rejected"
_TAKEN: Final = 202
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"
_TYPE: Final = "https://noetl.dev/e/"
_UNAUTHORIZED: Final = 401
_COME_BACK: Final = frozenset({429, 503})
_UNREAD: Final = frozenset({408, 413})
_WAIT_S: Final[Mapping[str, float]] = {NOT_ACTIVE: 30.0, CONFIG_UNAVAILABLE: 5.0}
"""When to come back at the earliest, where it is not a second."""
_CODES: Final[Mapping[str, str]] = {
    "circuit_open": CIRCUIT_OPEN,
    "paused": NOT_ACTIVE,
    "rate_limited": RATE_LIMITED,
    "spool_full": SPOOL_FULL,
    "spool_unavailable": SPOOL_UNAVAILABLE,
    "lane_busy": OVERLOADED,
    "held": OVERLOADED,
}
"""What a sender is told of why a delivery was given back; of any other reason `dispatch_failed`."""
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a delivery, as its sender and the log of deliveries see it."""

    status: int
    outcome: str
    code: str = ""
    """Why it was not taken."""
    reason: str = ""
    """Why it waits, or was given up."""
    retry_after: float | None = None
    execution_id: str | None = None
    spool_ref: str | None = None


LEFT: Final = Answer(status=499, outcome=FAILED, reason="client_gone")
"""The sender did not wait; whether there is a run is told when it comes again."""


def answer_of(done: Disposition) -> Answer:
    """What a sender is told of a delivery that somebody has dealt with."""
    if done.outcome in {"started", "duplicate"}:
        outcome = ACCEPTED if done.outcome == "started" else DUPLICATE
        return Answer(status=_TAKEN, outcome=outcome, execution_id=done.execution_id)
    if done.settle != "nack" and done.outcome in {SPOOLED, DEAD_LETTERED}:
        return Answer(
            status=_TAKEN, outcome=done.outcome, reason=done.reason, spool_ref=done.spool_ref
        )
    code = _CODES.get(done.reason, DISPATCH_FAILED)
    return failed(code, done.delay_ms / 1000 or None)


def failed(code: str, retry_after: float | None = None) -> Answer:
    """Nothing was kept: the sender is to send it again."""
    return Answer(
        status=PROBLEMS[code].status,
        outcome=FAILED,
        code=code,
        reason=code,
        retry_after=_wait_s(code, retry_after),
    )


def rejected(code: str, retry_after: float | None = None) -> Answer:
    """The delivery is not one that is taken."""
    return Answer(
        status=PROBLEMS[code].status,
        outcome=REJECTED,
        code=code,
        reason=code,
        retry_after=_wait_s(code, retry_after),
    )


def response_of(
    answer: Answer,
    delivery_id: str,
    request_id: str | None,
    *,
    methods: Iterable[str] = (),
    is_whole: bool = True,
) -> Response:
    """The answer as HTTP; a connection whose body was not read to its end is closed."""
    if not answer.code:
        return Response(_encode(_told(answer, delivery_id)), _TAKEN, media_type=_JSON)
    known = PROBLEMS[answer.code]
    problem = Problem(
        type=_TYPE + answer.code,
        title=known.title,
        status=answer.status,
        code=answer.code,
        detail="",
        retry_after=answer.retry_after,
        request_id=request_id,
    )
    headers = {}
    if answer.retry_after is not None:
        headers["retry-after"] = str(max(1, ceil(answer.retry_after)))
    if answer.status == _UNAUTHORIZED:
        headers["www-authenticate"] = "Bearer"
    if methods:
        headers["allow"] = ", ".join(methods)
    if not is_whole or answer.status in _UNREAD:
        headers["connection"] = "close"
    return Response(_encode(problem), answer.status, headers=headers, media_type=MEDIA_TYPE)


def reply_of(reply: Reply) -> Response:
    """The answer to a handshake."""
    if reply.document is not None:
        return Response(_encode(reply.document), headers=dict(reply.headers), media_type=_JSON)
    text = reply.text or ""
    return Response(text, headers=dict(reply.headers), media_type=_TEXT if text else None)


def _told(answer: Answer, delivery_id: str) -> dict[str, Any]:
    if answer.outcome == DUPLICATE:
        return {"status": DUPLICATE, "execution_id": answer.execution_id}
    if answer.outcome == ACCEPTED:
        return {
            "status": ACCEPTED,
            "execution_id": answer.execution_id,
            "delivery_id": delivery_id,
        }
    return {"status": answer.outcome, "delivery_id": delivery_id, "spool_ref": answer.spool_ref}


def _wait_s(code: str, told_s: float | None) -> float | None:
    if PROBLEMS[code].status not in _COME_BACK:
        return None
    return max(_WAIT_S.get(code, 1.0), told_s or 0.0)
