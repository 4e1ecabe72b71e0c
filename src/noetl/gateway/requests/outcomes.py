"""How requests end: by a callback of the playbook, by the end of its run, or by the deadline.

Pure, but for values that lie elsewhere, which whoever asks fetches.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import msgspec

from noetl.api.gateway import DataRef, End, Failure, end_of, status_of
from noetl.gateway.errors import CANCELLED, DEADLINE_PASSED, PLAYBOOK_FAILED, BadStatus

MOST_INLINE: Final = 256 * 1024
"""A larger result is not put on streams."""
TERMINAL: Final = ("playbook.completed", "playbook.failed", "playbook.cancelled")
"""Events that end a run."""
MESSAGES: Final = {
    "failed": "the playbook failed",
    "cancelled": "the run was cancelled",
    "timeout": "the deadline of the request has passed",
}
_MOST_MESSAGE: Final = 2000
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """An end, as clients are told of it."""

    state: End
    result: Any = None
    error: Failure | None = None
    result_ref: DataRef | None = None

    @property
    def status(self) -> str:
        """The word of the result."""
        return status_of(self.state)


class Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A callback as the server keeps it; `data` stands last, so that it can be cut out."""

    status: str
    error: Failure | None = None
    late: bool = False
    """It came after the deadline had ended the request."""
    data: Any = None


def word_of(status: str) -> End:
    """What a status of a callback means."""
    found = end_of(status)
    if found is None:
        raise BadStatus(
            "the status of the callback is none that is known",
            hint="COMPLETED, FAILED, CANCELLED or TIMEOUT",
        )
    return found


def of_callback(status: str, data: object, error: object, execution_id: str) -> Outcome:
    """The end that a playbook tells."""
    word = word_of(status)
    if error is not None and word == "completed":
        word = "failed"
    if word == "completed":
        return Outcome(state="completed", result=data)
    code = {"cancelled": CANCELLED, "timeout": DEADLINE_PASSED}.get(word, PLAYBOOK_FAILED)
    about: dict[str, Any] = {"executionId": execution_id}
    if data is not None and data != {}:
        about["data"] = data
    failure = _failure(error, code, MESSAGES[word], about)
    return Outcome(state="cancelled" if word == "cancelled" else "failed", error=failure)


def _failure(error: object, code: int, message: str, about: dict[str, Any]) -> Failure:
    """The error of a callback: an object, or just a text."""
    if isinstance(error, str) and error:
        message = error
    elif isinstance(error, dict):
        told, more = error.get("code"), error.get("data")
        if isinstance(told, int) and not isinstance(told, bool):
            code = told
        elif told is not None:
            about["code"] = told
        message = str(error.get("message") or message)
        if isinstance(more, dict):
            about |= more
        elif more is not None:
            about["details"] = more
    return Failure(code=code, message=message[:_MOST_MESSAGE], data=about)


def of_deadline(execution_id: str) -> Outcome:
    """The end of a request that took too long."""
    error = Failure(
        code=DEADLINE_PASSED, message=MESSAGES["timeout"], data={"executionId": execution_id}
    )
    return Outcome(state="timeout", error=error)


def of_row(row: dict[str, Any], execution_id: str) -> Outcome:
    """The end that the last event of a run tells; its value may lie elsewhere."""
    kind = row["event_type"]
    if kind == "playbook.failed":
        return Outcome(state="failed", error=_failed(row, execution_id))
    if kind == "playbook.cancelled":
        reason = (row.get("context") or {}).get("reason")
        data = {"executionId": execution_id, **({"reason": reason} if reason else {})}
        error = Failure(code=CANCELLED, message=MESSAGES["cancelled"], data=data)
        return Outcome(state="cancelled", error=error)
    result = row.get("result") or {}
    reference = result.get("reference")
    if reference:
        return Outcome(state="completed", result_ref=_ref_of(reference))
    return Outcome(state="completed", result=(result.get("context") or {}).get("data"))


def _failed(row: dict[str, Any], execution_id: str) -> Failure:
    error, steps = row.get("error") or {}, (row.get("context") or {}).get("failed_steps")
    details = error.get("details") or {}
    told = {name: error[name] for name in ("kind", "code") if error.get(name)}
    return Failure(
        code=PLAYBOOK_FAILED,
        message=str(error.get("message") or MESSAGES["failed"])[:_MOST_MESSAGE],
        data={
            "step": error.get("step") or (steps[0] if steps else None),
            "details": {**told, **details} if isinstance(details, dict) else details,
            "executionId": execution_id,
        },
    )


def _ref_of(reference: dict[str, Any]) -> DataRef:
    return DataRef(
        ref=str(reference.get("ref", "")),
        bytes=int(reference.get("size") or 0),
        sha256=str(reference.get("sha256") or ""),
    )


def callback_ref(execution_id: str, request_id: str) -> str:
    """The name of the value that a callback left."""
    return f"noetl://execution/{execution_id}/result/callback/{request_id}"


def is_callback_ref(ref: str, request_id: str) -> bool:
    """Whether a value was left by the callback of this request."""
    return ref.endswith(f"/result/callback/{request_id}")


def kept_small(outcome: Outcome, execution_id: str, request_id: str) -> Outcome:
    """The end with a result that streams can carry; a larger one is named."""
    if outcome.state != "completed" or outcome.result_ref is not None:
        return outcome
    data = _encode(outcome.result)
    if len(data) <= MOST_INLINE:
        return outcome
    ref = DataRef(
        ref=callback_ref(execution_id, request_id),
        bytes=len(data),
        sha256=sha256(data).hexdigest(),
    )
    return Outcome(state="completed", result_ref=ref)


def stored(outcome: Outcome, *, late: bool) -> bytes:
    """The end of a callback, as the server keeps it."""
    if outcome.state == "completed":
        return _HEADS[late] + _encode(outcome.result) + b"}"
    return _encode(Stored(status=outcome.state, error=outcome.error, late=late))


def of_stored(body: bytes) -> tuple[Outcome, bool]:
    """The end that was stored, and whether it came too late."""
    kept = msgspec.json.decode(body, type=Stored)
    word = word_of(kept.status)
    if word == "completed":
        return Outcome(state=word, result=kept.data), kept.late
    return Outcome(state=word, error=kept.error), kept.late


def head_of(begin: bytes) -> int | None:
    """Where the value begins in what was stored; it ends before the last byte. None: no value."""
    return next((len(head) for head in _HEADS if begin.startswith(head)), None)


_HEADS: Final = tuple(
    _encode(Stored(status="completed", late=late))[:-1] + b',"data":' for late in (False, True)
)
LONGEST_HEAD: Final = max(map(len, _HEADS))
"""So many bytes of what was stored show where its value begins."""
