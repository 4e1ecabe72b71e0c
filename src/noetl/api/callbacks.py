"""Answers from outside: to commands that wait, of containers that ended, and to clients."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

ContainerState = Literal[
    "succeeded",
    "failed",
    "failed_image_pull",
    "failed_oom",
    "failed_node_lost",
    "failed_timeout",
]


class CallbackTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The command that was resumed."""

    execution_id: str
    command_id: str
    status: str = "ok"


class ContainerCallback(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A container job has ended."""

    state: ContainerState
    job_name: str
    job_uid: str | None = None
    completed_at: str | None = None
    exit_code: int | None = None
    reason: str | None = None
    stdout_uri: str | None = None
    stderr_uri: str | None = None
    command_id: str | int | None = None
    output: Any = None


class ContainerTaken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of it: taken, known already, or nobody waits for it."""

    status: Literal["accepted_in_flight", "accepted_stale", "duplicate"]
    event_id: str | None = None


class ObjectKept(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that lie under a key."""

    key: str
    size: int
    sha256: str


class RequestResultKept(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a client's request."""

    request_id: str
    size: int
    sha256: str
    status: Literal["stored", "duplicate"]


class Collect(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Objects of runs that there are not are to be removed."""

    dry_run: bool = False
    grace_seconds: int = 86_400
    """How old a run must be to be missed."""
    limit: int = 1_000
    """How many objects are removed at most."""


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and removed unless it was a rehearsal."""

    scanned: int
    orphans: int
    removed: int
    dry_run: bool


class SinkState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs whose data a sink has yet to take, or has taken."""

    execution_ids: tuple[str | int, ...] = ()
    execution_id: str | int | None = None
    """One run, in the place of a list."""


class SinkMarked(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that there are, and whether retention keeps them."""

    execution_ids: tuple[str, ...]
    unexported: bool
    status: str = "ok"
