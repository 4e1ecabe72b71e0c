"""What a listener works through: a server and its brokers, or this machine alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from noetl.blobs.spool.base import SpoolStore
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.intake.audit import Poster
    from noetl.intake.circuit_stores import CircuitStore
    from noetl.intake.dispatch import Starter
    from noetl.intake.keeping import LetterBox
    from noetl.intake.metrics import IntakeMetrics
    from noetl.intake.outcomes import RunOutcome
    from noetl.sources.base import PolledMessage, Source
    from noetl.subscription.state import Listened, Task
    from noetl.telemetry.traces.tracer import Tracer


class Control(Protocol):
    """Says what is to be done with a subscription."""

    @property
    def task(self) -> Task:
        """What is to be done now."""

    @property
    def is_unauthorized(self) -> bool:
        """Whether the server does not let us do it."""

    @property
    def requests(self) -> Sequence[Mapping[str, Any]]:
        """Redrives and discards that were asked for."""

    async def start(self) -> Listened:
        """Make the subscription known."""

    async def activate(self) -> None:
        """Set it going, unless a person has stopped it."""

    async def look(self) -> Listened:
        """See what it is to be now, and by which version."""

    def unauthorized(self) -> None:
        """The server has refused us."""

    async def drained(self) -> None:
        """What was begun is done."""

    async def stop(self) -> None:
        """Nobody listens any more."""


class Endings(Protocol):
    """Tells how runs end."""

    async def begin(self, listened: Listened) -> None:
        """Make sure that no run which is started later is missed."""

    async def follow(
        self, listened: Listened, told: Callable[[RunOutcome], Awaitable[None]]
    ) -> None:
        """Tell of every run of a subscription that ends, until cancelled."""

    async def of(self, execution_id: str) -> RunOutcome | None:
        """How a run has ended; none while it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """What the listener of one subscription works through."""

    name: str
    """Of this process, which no other has."""
    clock: Clock
    ids: Ids
    control: Control
    starter: Starter
    endings: Endings
    poster: Poster
    circuits: CircuitStore
    letters: Callable[[Listened], LetterBox]
    source: Callable[[Listened], Awaitable[Source]]
    """Opens the source; `SourceError` when it cannot be opened."""
    spool: Callable[[Listened], AbstractAsyncContextManager[SpoolStore | None]]
    """Where messages wait, while it is open; none when they do not."""
    metrics: IntakeMetrics
    state_poll_s: float = 5.0
    grace_s: float = 20.0
    """How long what was begun may take to end after the first signal."""
    tracer: Tracer | None = None
    on_received: Callable[[Sequence[PolledMessage]], None] | None = None
    """Told of messages as they come."""
    left: Callable[[], int | None] = lambda: None
    """How many messages may still come at all; none: as many as there are."""
