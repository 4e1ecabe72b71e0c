"""What a store keeps of subscriptions: their rows, their logs, and what became of messages.

The log of a subscription lies beside those of runs, under its own id. An append names the row that
its writer saw; whoever loses a race writes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import msgspec

from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.engine.events import Recorded


class ListenerTaken(NoetlError):
    """Another subscription listens under the same name."""

    code = "listener_taken"
    status: ClassVar[int] = 409
    errors: ClassVar[tuple[dict[str, Any], ...]] = (
        {"pointer": "/spec/ingress/gateway_path", "code": "listener_taken"},
    )


class SubscriptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription as its log leaves it."""

    subscription_id: str
    tenant_id: str
    path: str
    catalog_id: str
    version: int
    state: str
    listener: str | None = None
    """The last part of the address that senders push to; no two have the same."""
    last_event_type: str = ""
    last_event_id: str | None = None
    last_seq: int = 0
    updated_at: str = ""
    next_tick_at: str | None = None
    last_execution_id: str | None = None
    """The run of the last tick."""
    summary: dict[str, Any] = {}
    """What the newest events say beside the state: `actor`, `reason`, `circuit`, `counts` ..."""


class LetterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is not tried any more."""

    ref: str
    message_id: str | None
    reason: str
    attempts: int
    at: str
    result_ref: str | None = None


class Appended(msgspec.Struct, frozen=True, kw_only=True):
    """All that one append writes for one subscription."""

    row: SubscriptionRow
    """As it is afterwards; `last_seq` is that of the last event."""
    expected_seq: int
    events: tuple[Recorded, ...] = ()
    letters: tuple[LetterRow, ...] = ()
    letters_gone: tuple[str, ...] = ()
    """Letters that are tried again, or were dropped."""


class Subscriptions(Protocol):
    """Subscriptions by id, and by tenant and path."""

    async def register(self, row: SubscriptionRow, event: Recorded) -> SubscriptionRow:
        """Keep a new one with its first event; the known one of that tenant and path as it is.

        `ListenerTaken` when another one has its listener.
        """

    async def get(self, subscription_id: str) -> SubscriptionRow | None:
        """One by its id."""

    async def find(self, tenant_id: str, path: str) -> SubscriptionRow | None:
        """The one of a path."""

    async def listening(self, listener: str) -> SubscriptionRow | None:
        """The one that listens under a name."""

    async def listed(
        self, tenant_id: str | None = None, state: str | None = None
    ) -> list[SubscriptionRow]:
        """All of a tenant, or of every tenant, by path."""

    async def append(self, change: Appended) -> bool:
        """Write events and the row together; false when another writer was faster.

        A change without events writes the row alone. `ListenerTaken` as `register`.
        """

    async def known(self, subscription_id: str, event_ids: Sequence[str]) -> dict[str, int]:
        """Those of these events that its log has, and where."""


class Keys(Protocol):
    """Keys under which runs were started."""

    async def held(self, keys: Sequence[tuple[str, str]], now: str) -> frozenset[tuple[str, str]]:
        """Those of these scopes and keys that have started a run within their windows."""


class Ticks(Protocol):
    """Subscriptions that are drained by the clock."""

    async def due(self, now: str, limit: int = 100) -> list[SubscriptionRow]:
        """Those whose time has come, oldest first."""

    async def next_due(self) -> str | None:
        """When the next one is due."""


class OutcomeRow(msgspec.Struct, frozen=True, kw_only=True):
    """How the run of a message ended."""

    execution_id: str
    status: str
    error: dict[str, Any] | None = None
    subscription: dict[str, Any] = {}
    """What its start says of the message."""


class Outcomes(Protocol):
    """Ends of runs whose parent is a subscription, in an order that never changes."""

    async def after(
        self, subscription_id: str, cursor: str, limit: int
    ) -> tuple[list[OutcomeRow], str]:
        """The ends behind a cursor (empty: from the first one kept), and the cursor behind them.

        An end that is not told yet is never passed over.
        """

    async def newest(self, subscription_id: str) -> str:
        """The cursor behind all that has ended by now."""

    async def counted(self, subscription_id: str, since: str) -> dict[str, int]:
        """How many runs of its messages began since a moment, by status."""


class Letters(Protocol):
    """Dead letters; appends write them."""

    async def page(
        self, subscription_id: str, after: tuple[str, str] | None, limit: int
    ) -> list[LetterRow]:
        """A page, oldest first; `after` is time and reference of the last one before."""

    async def get(self, subscription_id: str, ref: str) -> LetterRow | None:
        """One letter."""

    async def counted(self, subscription_id: str, *, is_here: bool = False) -> int:
        """How many there are; or how many of them lie here."""

    async def wanted(self) -> list[str]:
        """Subscriptions of which letters are wanted, and that have some that lie here."""


NOT_TOLD: Final = "not_told"
"""The reason in the row of a delivery of which only its run is known."""


class DeliveryRow(msgspec.Struct, frozen=True, kw_only=True):
    """One request that a sender made, and what became of it."""

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


class DeliveryListing(msgspec.Struct, frozen=True, kw_only=True):
    """Which deliveries a reader wants."""

    limit: int = 50
    after: tuple[str, str] | None = None
    """Time and id of the last one before."""
    outcome: str | None = None
    reason: str | None = None
    message_id: str | None = None
    since: str | None = None
    until: str | None = None
    is_oldest_first: bool = False
    """The other way round, and without replays; such a list has no `after`."""


class Deliveries(Protocol):
    """What senders delivered."""

    async def add(self, subscription_id: str, rows: Sequence[DeliveryRow]) -> int:
        """Keep some; how many were new."""

    async def get(self, subscription_id: str, delivery_id: str) -> DeliveryRow | None:
        """One of them."""

    async def page(self, subscription_id: str, listing: DeliveryListing) -> list[DeliveryRow]:
        """A page, newest first."""

    async def ran(self, subscription_id: str, rows: Sequence[DeliveryRow]) -> None:
        """Note the runs of deliveries that have waited; the first one of each counts.

        Of a delivery that was not told yet the rest is taken from `add` when it is.
        """


class CircuitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A small document that several processes share."""

    path: str
    state: dict[str, Any]
    revision: int


class Circuits(Protocol):
    """Small documents by tenant and path, written by compare and set."""

    async def get(self, tenant_id: str, path: str) -> CircuitRow | None:
        """One document."""

    async def put(
        self, tenant_id: str, path: str, state: dict[str, Any], revision: int | None
    ) -> int | None:
        """Write a document that is still at a revision (none: that is not there yet).

        Its new revision; none when somebody else was faster.
        """

    async def remove(self, tenant_id: str, path: str, revision: int | None = None) -> bool:
        """Forget one that is still at a revision; false when it is not."""
