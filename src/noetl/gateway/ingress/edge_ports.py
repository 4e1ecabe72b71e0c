"""What the edge of a gateway works through: a server, a bus, and stores of messages that wait."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from noetl.blobs.spool.opening import DEFAULT, BadSpool, Means, opened
from noetl.blobs.spool.rules import Place
from noetl.dsl.subscription.spool import Spool
from noetl.gateway.parts import KIND
from noetl.intake.audit import ServerPoster
from noetl.intake.circuit_stores import KeysStore
from noetl.intake.dispatch import ServerStarter
from noetl.intake.endings import ServerEndings
from noetl.intake.keeping import OFF, ServerLetters, mode_of
from noetl.intake.metrics import IntakeMetrics
from noetl.intake.probes import probe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from noetl.api.client import Client
    from noetl.blobs.spool.base import SpoolStore
    from noetl.blobs.spool.jetstream import Messages
    from noetl.clock import Clock
    from noetl.gateway.ingress.listeners import Known
    from noetl.gateway.parts import GatewayParts
    from noetl.ids import Ids
    from noetl.intake.audit import Poster
    from noetl.intake.circuit_stores import CircuitStore
    from noetl.intake.dispatch import Starter
    from noetl.intake.endings import Followed
    from noetl.intake.keeping import LetterBox
    from noetl.intake.outcomes import RunOutcome
    from noetl.intake.probing import Ask
    from noetl.telemetry.traces.tracer import Tracer

    Lookup = Callable[[str], Awaitable[Known | None]]
    Opener = Callable[[Known], AbstractAsyncContextManager[SpoolStore | None]]

"""Where messages wait that no document and no setting has a place for."""
ENDINGS_AT_ONCE: Final = 32
"""Of so many listeners the server is asked at once how their runs have ended."""
DRAINED: Final = "drained"


class Control(Protocol):
    """What the server says of listeners, and is told of them."""

    async def names(self) -> Sequence[str]:
        """The listeners for which messages may wait."""

    async def requests(self, subscription_id: str) -> Sequence[Mapping[str, Any]]:
        """Redrives and discards of dead letters that somebody has asked for."""

    async def drained(self, subscription_id: str) -> None:
        """What was begun is done."""


class Endings(Protocol):
    """Tells how the runs of one subscription end."""

    async def begin(self, listened: Followed) -> None:
        """Make sure that no run which is started later is missed."""

    async def follow(
        self, listened: Followed, told: Callable[[RunOutcome], Awaitable[None]]
    ) -> None:
        """Tell of every run that ends, until cancelled."""

    async def of(self, execution_id: str) -> RunOutcome | None:
        """How a run has ended; none while it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgePorts:
    """What every edge of one gateway works through."""

    name: str
    """Of this replica, which no other has."""
    clock: Clock
    ids: Ids
    lookup: Lookup
    """Tells of a listener as it is now, but for what a cache may be behind; none: there is none."""
    control: Control
    starter: Starter
    poster: Poster
    circuits: CircuitStore
    endings: Callable[[], Endings]
    letters: Callable[[str], LetterBox]
    """Where dead letters of a subscription go that has no spool."""
    spool: Opener
    """Where messages wait, while it is open; none when they do not."""
    metrics: IntakeMetrics
    ask: Ask = probe
    tracer: Tracer | None = None

    @classmethod
    def of(cls, parts: GatewayParts, lookup: Lookup) -> EdgePorts:
        """Those of a gateway."""
        client, settings = parts.upstream.service(), parts.settings
        circuits = KeysStore(parts.bus.circuits)
        turns = asyncio.Semaphore(ENDINGS_AT_ONCE)
        return cls(
            name=parts.name,
            clock=parts.clock,
            ids=parts.ids,
            lookup=lookup,
            control=ServerControl(client),
            starter=ServerStarter(client),
            poster=ServerPoster(client, parts.name, KIND),
            circuits=circuits,
            endings=lambda: ServerEndings(client, circuits, turns),
            letters=lambda subscription_id: ServerLetters(client, subscription_id),
            spool=opener(
                settings.home.absolute(), settings.spool_default or DEFAULT, parts.bus.messages
            ),
            metrics=IntakeMetrics(()),
            tracer=parts.tracer,
        )


class ServerControl:
    """The server of a gateway."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def names(self) -> Sequence[str]:
        """The listeners for which messages may wait."""
        return (await self._client.ingress_listeners()).listeners

    async def requests(self, subscription_id: str) -> Sequence[Mapping[str, Any]]:
        """Redrives and discards of dead letters that somebody has asked for."""
        return (await self._client.subscription(subscription_id)).pending_actions

    async def drained(self, subscription_id: str) -> None:
        """What was begun is done: the subscription stops, as somebody has asked."""
        await self._client.steer_subscription(subscription_id, "deactivate", DRAINED)


def opener(home: Path, default: str, messages: Callable[[str], Messages] | None) -> Opener:
    """Opens the spool that a document means; `default` is where it goes that says nothing."""

    @asynccontextmanager
    async def opening(known: Known) -> AsyncIterator[SpoolStore | None]:
        spool = known.spec.spool or Spool()
        if mode_of(known.spec) == OFF:
            yield None
            return
        fields = fields_of(known)
        if fields is None:
            raise BadSpool(
                f"there is no credential `{spool.alias}` for the spool",
                hint=f"make it with `noetl credentials put {spool.alias} --type ...`",
            )
        means = Means(home=home, default=default, fields=fields, messages=messages)
        async with opened(spool, Place(known.tenant, known.path), means) as store:
            yield store

    return opening


def fields_of(known: Known) -> Mapping[str, Any] | None:
    """Those of the credential of a spool, empty where it needs none; none when there is none."""
    spool = known.spec.spool
    alias = None if spool is None else spool.alias
    return {} if alias is None else known.secrets.get(alias)
