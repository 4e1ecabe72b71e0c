"""One job as whoever watches over it knows it, and how it ended."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from noetl.api.callbacks import ContainerCallback, ContainerState

Secrets = tuple[str, ...] | None
"""Texts that a job was given and nobody may see; none when nobody can say which they are."""
MOST_LOG_BYTES: Final = 10 << 20
MOST_MESSAGE_BYTES: Final = 4096
MOST_REASON: Final = 2000


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """Which job it is, and who waits for it."""

    name: str
    runtime: str
    execution_id: str
    step: str
    command_id: str
    key: str
    timeout_s: float
    namespace: str = ""
    uid: str | None = None
    began_at: str = ""


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended."""

    state: ContainerState
    exit_code: int | None = None
    reason: str | None = None
    completed_at: str | None = None
    output: Any = None


def callback(ticket: Ticket, end: End, stdout_uri: str | None) -> ContainerCallback:
    """What the server is told."""
    return ContainerCallback(
        state=end.state,
        job_name=ticket.name,
        job_uid=ticket.uid,
        completed_at=end.completed_at,
        exit_code=end.exit_code,
        reason=None if end.reason is None else end.reason[:MOST_REASON],
        stdout_uri=stdout_uri,
        command_id=ticket.command_id,
        output=end.output,
    )


def output_of(message: str | bytes | None) -> dict[str, Any] | None:
    """The object that a container left as its last word; other words are none."""
    raw = message.encode() if isinstance(message, str) else message or b""
    if not raw.lstrip().startswith(b"{") or len(raw) > MOST_MESSAGE_BYTES:
        return None
    try:
        found = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None
