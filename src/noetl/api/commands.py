"""Commands as workers see them: claimed, kept alive, given back."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

MOST_ATTEMPTS: Final = 2**31 - 1
Attempt = Annotated[int, msgspec.Meta(ge=0, le=MOST_ATTEMPTS)]
"""The number of an attempt, as somebody from outside tells it."""


class CommandContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the work is: the tool's kind, the values it may read, and where it stopped before."""

    tool: dict[str, Any]
    bindings: dict[str, Any]
    refs: dict[str, Any]
    checkpoint: dict[str, Any] | None = None
    awaited: dict[str, Any] | None = None


class CommandWork(msgspec.Struct, frozen=True, kw_only=True):
    """What the work of a command is."""

    tool: dict[str, Any]
    bindings: dict[str, Any]
    refs: dict[str, Any]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One claimed unit of work; the step itself is read from the catalog by `catalog_id`."""

    execution_id: str
    event_id: str
    command_id: str
    command_key: str
    node_id: str
    node_name: str
    action: str
    attempt: int
    max_attempts: int
    lease_seconds: float
    lease_until: str
    pool: str
    priority: int
    idempotency_key: str
    catalog_id: str
    path: str
    version: int
    context: CommandContext
    status: str = "ok"
    idempotent: bool = True
    iteration: int | None = None
    frame: int | None = None
    is_claim: bool = False
    deadline: str | None = None
    trace: dict[str, Any] | None = None
    meta: dict[str, Any] = {}


class CommandState(msgspec.Struct, frozen=True, kw_only=True):
    """A command as it stands, open or closed."""

    status: Literal["PENDING", "CLAIMED", "RUNNING", "PARKED", "COMPLETED", "FAILED", "CANCELLED"]
    event_id: str
    execution_id: str
    command_id: str
    command_key: str
    node_id: str
    node_name: str
    action: str
    attempt: int
    max_attempts: int
    pool: str
    priority: int
    worker_id: str | None
    lease_until: str | None
    started_at: str | None
    idempotency_key: str
    iteration: int | None
    context: CommandWork
    meta: dict[str, Any]


class Claim(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A worker asks for work of its pool; with `wait_seconds` the request is parked.

    With `event_ids`, of which there are at most 64, it asks for these commands.
    """

    worker_id: str
    pool: str
    free_slots: int = 1
    event_ids: tuple[str | int, ...] = ()
    exclude_kinds: tuple[str, ...] = ()
    wait_seconds: float = 0.0


class Claimer(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Who claims a command that it was told of."""

    worker_id: str
    free_slots: int = 1
    locality: str = ""


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A command that was asked for and not given; `no_free_slot`: others have taken the slots."""

    event_id: str
    code: str


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """The commands that the worker now holds."""

    claimed: tuple[Command, ...] = ()
    skipped: tuple[Skipped, ...] = ()


class Held(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A command that a worker holds; a checkpoint saves its finished tasks from being repeated."""

    command_id: str | int
    attempt: Attempt
    checkpoint: dict[str, Any] | None = None
    progress: Any = None
    """How far it is, for whoever looks; nothing is decided on it."""
    is_started: bool = True
    """Whether its tool may have begun; one that did not is given back as the same attempt."""


class Heartbeat(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One beat extends every lease of a worker."""

    worker_id: str
    commands: tuple[Held, ...] = ()
    free_slots: int = 0


class Beat(msgspec.Struct, frozen=True, kw_only=True):
    """The answer: what is still held, what is lost, what to stop."""

    extended: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    cancel: tuple[str, ...] = ()
    drain: bool = False
    pressure: Literal["ok", "slow", "stop"] = "ok"
    status: str = "ok"
    message: str = ""


class HeldOne(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A worker keeps, or gives back, the one command that the path names."""

    worker_id: str
    attempt: Attempt
    progress: Any = None
    checkpoint: dict[str, Any] | None = None
    reason: str = "drain"


class Extended(msgspec.Struct, frozen=True, kw_only=True):
    """The lease goes on."""

    lease_until: str
    status: str = "ok"


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """Others may claim what was given back."""

    status: str = "ok"


class Release(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Commands that a worker gives back at once."""

    worker_id: str
    commands: tuple[Held, ...]
    reason: str = "drain"
