"""Subscriptions: what is told of them, what may be asked of them, and how they end up.

`subscription_id` names the subscription for ever, and the log of its own events.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from noetl.api.ingress import KeepRejected  # noqa: TC001 - msgspec reads the types of the fields

State = Literal["REGISTERED", "ACTIVE", "PAUSED", "DRAINING", "DEACTIVATED"]
Action = Literal["register", "activate", "pause", "resume", "drain", "deactivate"]
Desired = Literal["running", "paused", "draining", "stopped"]

STOPPED_BY_ITSELF = "runtime_stopped"
"""The reason that a runtime gives when it stops as the last one; its next start goes on."""
NOW = "now"
"""A cursor of outcomes: only those that are yet to come."""


class RegisterSubscription(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A subscription of the catalog is to be known."""

    path: str
    reason: str = ""


class SubscriptionAction(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Why somebody activates, pauses, resumes, drains or deactivates one."""

    reason: str = ""


class Instances(msgspec.Struct, frozen=True, kw_only=True):
    """The processes that listen."""

    instances: int = 0
    last_seen: str | None = None
    backlog: int | None = None
    """Messages that wait at the source; none when it does not tell."""
    in_flight: int = 0
    rate_per_minute: float | None = None


class SpoolFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What waits in the spool, as the process that drains it has told last."""

    items: int = 0
    bytes: int = 0
    oldest_at: str | None = None
    dlq: int = 0


class Circuit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The breaker of one downstream, by its newest event."""

    phase: Literal["closed", "open", "half_open"]
    since: str | None = None
    trips: int = 0
    reason: str = ""


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription; `spec` and `content` are told of one, not in a list.

    `desired` is what a runtime that starts now is to do: after a person paused or stopped it, a
    runtime waits; after the last runtime stopped by itself, the next one goes on.
    """

    subscription_id: str
    path: str
    catalog_id: str
    version: int
    state: State
    last_event_type: str
    updated_at: str
    desired: Desired
    runtime: Instances
    circuit: dict[str, Circuit]
    spool: SpoolFigures
    pending_actions: tuple[dict[str, Any], ...] = ()
    """Redrives and discards that were asked for and are not done yet."""
    source: str = ""
    mode: str = ""
    activation: str = ""
    pool: str = ""
    playbook: str = ""
    listener: str | None = None
    actor: str = ""
    """Who brought it into its state."""
    reason: str = ""
    rate_limited_at: str | None = None
    """Since when it is held back by its limits, if its newest events say so."""
    next_tick_at: str | None = None
    last_execution_id: str | None = None
    """The run of the last tick."""
    tenant_id: str = "default"
    spec: dict[str, Any] | None = None
    content: str | None = None


class Subscriptions(msgspec.Struct, frozen=True, kw_only=True):
    """Subscriptions, by path."""

    subscriptions: tuple[Subscription, ...]


class OutcomeError(msgspec.Struct, frozen=True, kw_only=True):
    """Why the run of a message failed."""

    kind: str
    code: str = ""
    message: str = ""
    retryable: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the run of one message ended."""

    execution_id: str
    message_id: str | None
    status: str
    downstream: str | None = None
    error: OutcomeError | None = None


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that ended, in an order that never changes; the cursor goes on behind the last."""

    outcomes: tuple[Outcome, ...]
    cursor: str


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is not tried any more."""

    ref: str
    message_id: str | None
    reason: str
    attempts: int
    at: str
    result_ref: str | None = None
    """Where the server keeps the message, when there is no spool to keep it."""
    item: dict[str, Any] | None = None
    """The message as a spool would keep it, when it was asked for and the server has it."""


class DeadLetters(msgspec.Struct, frozen=True, kw_only=True):
    """A page of dead letters, oldest first."""

    items: tuple[DeadLetter, ...]
    next_cursor: str | None = None


class PutDeadLetter(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A message that a runtime cannot dispatch and has no spool for.

    `item` is the whole item as a spool would keep it (subscriptions.md 8.2). A repeat of the same
    `ref` stores nothing.
    """

    ref: str
    message_id: str
    reason: str
    item: dict[str, Any]
    attempts: int = 0
    recv_seq: str | None = None
    downstream: str | None = None
    event_id: str | None = None
    """The id of the event that tells of it; minted when it is not given."""


class LettersWanted(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Dead letters to send again or to drop: these, or all; a redrive may be slowed down."""

    refs: tuple[str, ...] = ()
    all: bool = False
    rate: float | None = None
    reason: str = ""


class LettersRequested(msgspec.Struct, frozen=True, kw_only=True):
    """The request stands in the log; whoever keeps the letters does it."""

    request_id: str
    """The id of the event that tells of it."""
    count: int
    status: str = "requested"


class SubscriptionStats(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one subscription; runs are those of the last hour."""

    subscription_id: str
    state: State
    executions: dict[str, int]
    events: dict[str, int]
    """How often each kind of event was told, over its whole life."""
    runtime: Instances
    circuit: dict[str, Circuit]
    spool: SpoolFigures
    dead_letters: int


class Delivery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request that a sender of messages made, and what became of it."""

    delivery_id: str
    at: str
    outcome: str
    reason: str | None = None
    status: int | None = None
    message_id: str | None = None
    execution_id: str | None = None
    duration_ms: float | None = None
    bytes: int | None = None
    directives: dict[str, Any] | None = None
    body_ref: str | None = None
    replay_of: str | None = None


class Deliveries(msgspec.Struct, frozen=True, kw_only=True):
    """A page of deliveries, newest first."""

    items: tuple[Delivery, ...]
    next_cursor: str | None = None


class PutDelivery(Delivery, frozen=True, kw_only=True, omit_defaults=True):
    """A delivery as a gateway tells of it."""

    rejected: KeepRejected | None = None
    """What came, when it was rejected and its listener keeps such."""


class PutDeliveries(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Deliveries that a gateway has taken; one that is known already is ignored."""

    items: tuple[PutDelivery, ...]


class DeliveriesKept(msgspec.Struct, frozen=True, kw_only=True):
    """How many were new."""

    count: int
    status: str = "ok"


class CircuitDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A small document that several processes share: a breaker, or a lease."""

    path: str
    state: dict[str, Any]
    revision: int
