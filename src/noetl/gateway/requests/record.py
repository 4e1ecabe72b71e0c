"""A request as it is kept: who waits for which run, how far it is, and for how long it is known.

Pure. A request is accepted, then runs, and ends once: whoever comes second changes nothing.
"""

from __future__ import annotations

import re
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from noetl.api.gateway import OPEN, DataRef, Failure, RequestDocument
from noetl.bus.subjects import token

if TYPE_CHECKING:
    from noetl.gateway.requests.outcomes import Outcome

State = Literal["accepted", "running", "completed", "failed", "cancelled", "timeout", "rejected"]
Delivery = Literal["client", "session", "user", "none"]

SLACK_S: Final = 120.0
"""A record outlives its deadline by this, so that somebody can note that it has passed."""
KEY_LIFE_S: Final = 86_400.0
"""How long an idempotency key is known."""
SWEEPER: Final = "sweeper"
"""The key of the lease of whoever looks after all requests."""
WHOLE: Final = "whole"
"""A key that is there as long as the bucket was not lost."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")
_OPEN_NAME: Final = re.compile(r"o\.(?P<at>[0-9]+)\.(?P<id>[A-Za-z0-9_-]{1,128})\Z")


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a request."""

    request_id: str
    execution_id: str
    playbook_path: str
    user_id: str
    created_at: str
    deadline: str
    changed_at: str
    session_id: str = ""
    client_id: str = ""
    tenant: str = "default"
    delivery: Delivery = "session"
    on_timeout: Literal["leave", "cancel"] = "leave"
    state: State = "accepted"
    callback_hash: str = ""
    """The digest of the token that callbacks show; without one no callback counts."""
    result: Any = None
    error: Failure | None = None
    result_ref: DataRef | None = None
    late_result: dict[str, Any] | None = None
    """How the run ended after the deadline."""
    delivered_at: dict[str, str] = {}
    """When which client has said that it has the result."""

    @property
    def owner(self) -> tuple[str, str]:
        """Whose request it is; ids of users may be alike in two tenants."""
        return self.user_id, self.tenant

    @property
    def is_open(self) -> bool:
        """Whether the end is still to come."""
        return self.state in OPEN


def finished(record: Record, outcome: Outcome, now: str) -> Record | None:
    """The record with its end; none when it has one."""
    if not record.is_open:
        return None
    return msgspec.structs.replace(
        record,
        state=outcome.state,
        changed_at=now,
        result=outcome.result,
        error=outcome.error,
        result_ref=outcome.result_ref,
    )


def ended_late(record: Record, outcome: Outcome, now: str) -> Record | None:
    """The record of a request that was given up, with how its run ended; none when it is known."""
    if record.state != "timeout" or record.late_result is not None:
        return None
    late: dict[str, Any] = {"status": outcome.status, "at": now}
    if outcome.error is not None:
        late["error"] = msgspec.to_builtins(outcome.error)
    elif outcome.result_ref is not None:
        late["resultRef"] = msgspec.to_builtins(outcome.result_ref)
    else:
        late["result"] = outcome.result
    return msgspec.structs.replace(record, late_result=late, changed_at=now)


def running(record: Record, now: str) -> Record | None:
    """The record of a run that the server has begun; none when more is known."""
    if record.state != "accepted":
        return None
    return msgspec.structs.replace(record, state="running", changed_at=now)


def rejected(record: Record, why: Failure, now: str) -> Record | None:
    """The record of a run that was not begun; none when it was."""
    if record.state != "accepted":
        return None
    return msgspec.structs.replace(record, state="rejected", error=why, changed_at=now)


def acknowledged(record: Record, client_id: str, now: str) -> Record | None:
    """The record of an end that a client has; none when that is known."""
    if record.is_open or client_id in record.delivered_at:
        return None
    return msgspec.structs.replace(record, delivered_at={**record.delivered_at, client_id: now})


def document_of(record: Record) -> RequestDocument:
    """What callers are told of a request."""
    return RequestDocument(
        request_id=record.request_id,
        execution_id=record.execution_id,
        playbook_path=record.playbook_path,
        state=record.state,
        created_at=record.created_at,
        deadline=record.deadline,
        result=record.result,
        error=record.error,
        result_ref=record.result_ref,
        late_result=record.late_result,
    )


def life_s(record: Record, now: datetime, ttl_s: float) -> float:
    """How long a record that is written now is kept: never less than up to its deadline."""
    if not record.is_open:
        return ttl_s
    return max(ttl_s, (moment(record.deadline) - now).total_seconds() + SLACK_S)


def index_life_s(record: Record, now: datetime, ttl_s: float) -> float:
    """How long an index is kept: as long as any later change may keep its record."""
    return life_s(record, now, ttl_s) + ttl_s


def moment(text: str) -> datetime:
    """A time of a record."""
    return datetime.fromisoformat(text)


def is_name(request_id: str) -> bool:
    """Whether a text can be the id of a request."""
    return bool(_NAME.match(request_id))


def key_of(request_id: str) -> str:
    """Where a record is."""
    return f"r.{request_id}"


def open_key(record: Record) -> str:
    """Says by its name alone until when a request may take; there until its end was told."""
    return f"o.{int(moment(record.deadline).timestamp() * 1000)}.{record.request_id}"


def opened(key: str) -> tuple[float, str] | None:
    """The deadline and the request of an open key."""
    found = _OPEN_NAME.match(key)
    return (int(found["at"]) / 1000, found["id"]) if found else None


def of_client(client_id: str) -> str:
    """Below which the requests of a client are listed."""
    return f"c.{token(client_id)}"


def owed_key(client_id: str) -> str:
    """There while a client is still to be told again what has ended."""
    return f"t.{token(client_id)}"


def of_execution(execution_id: str) -> str:
    """Below which the requests of a run are listed."""
    return f"e.{token(execution_id)}"


def of_user(user_id: str) -> str:
    """Below which the requests of somebody are listed."""
    return f"u.{token(user_id)}"


def index_keys(record: Record) -> list[str]:
    """Every key by which a request is found; the id of the run in it tells how new it is."""
    above = [of_user(record.user_id)]
    if record.client_id:
        above.append(of_client(record.client_id))
    run = of_execution(record.execution_id)
    return [
        f"{run}.{record.request_id}",
        *(f"{prefix}.{token(record.execution_id)}.{record.request_id}" for prefix in above),
        open_key(record),
    ]


def indexed(key: str) -> tuple[int, str]:
    """How new the request of an index is among others, and its id."""
    _, at, request_id = key.rsplit(".", 2)
    return int(at) if at.isdecimal() else 0, request_id


def wish_key(owner: tuple[str, str], key: str) -> str:
    """Where an idempotency key of somebody is."""
    return "i." + sha256(msgspec.json.encode((*owner, key))).hexdigest()


def digest(text: str) -> str:
    """A token as it is kept."""
    return sha256(text.encode()).hexdigest()
