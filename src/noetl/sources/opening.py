"""The one way to a source: its fields are read, its client is loaded, and it lasts.

The runtime, the CLI and the tool open sources here. Brokers are reached as they are written: who
registers a subscription or starts a listener decides where it listens. The tool, whose tasks are
anybody's, passes its guard as `addresses`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from noetl.sources.base import Facts, SourceError, unavailable
from noetl.sources.places import KafkaPlace, NatsPlace, as_written, place_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from noetl.clock import Clock
    from noetl.sources.base import AckReport, PolledMessage, Source
    from noetl.sources.nats import NatsSource
    from noetl.sources.places import Addresses, Place

T = TypeVar("T")
_VENDORS: Final = {"kafka": frozenset({"aiokafka"}), "pubsub": frozenset({"google", "grpc"})}

_BROKEN: Final = frozenset({"connection", "ack_timeout"})
"""Codes of acks that nobody heard."""


async def open_source(  # noqa: PLR0913 - what a source is made of
    kind: str,
    fields: Mapping[str, Any],
    auth_fields: Mapping[str, Any],
    clock: Clock,
    *,
    addresses: Addresses = as_written,
    emulator: str = "",
    is_heir: bool = False,
) -> Source:
    """Open a source; one whose connection breaks is made anew with the next call.

    Args:
        kind: nats, kafka or pubsub.
        fields: The connection as the document has it.
        auth_fields: The fields of the credential that the document names; the document's win.
        clock: Tells when messages were received.
        addresses: What a host may be reached at.
        emulator: Where an emulator of Pub/Sub listens (`PUBSUB_EMULATOR_HOST`).
        is_heir: Whether what another has fetched and not settled comes first, to stay in order.
    """
    place = place_of(kind, fields, auth_fields, emulator=emulator)
    source = LastingSource(
        lambda: opened(place, clock, addresses), is_remade_by_acks=isinstance(place, NatsPlace)
    )
    first = await source.open()
    if is_heir and isinstance(place, NatsPlace):
        cast("NatsSource", first).inherit()
    return source


async def opened(
    place: Place,
    clock: Clock,
    addresses: Addresses = as_written,
    *,
    ack_wait_s: float | None = None,
) -> Source:
    """Open the source of a place, once; `ack_wait_s` is for Kafka, which has no such wait."""
    if isinstance(place, NatsPlace):
        from noetl.sources.nats import NatsSource  # noqa: PLC0415 - its client comes with the first use

        return await NatsSource.at(place, clock, addresses=addresses)
    if isinstance(place, KafkaPlace):
        try:
            from noetl.sources.kafka import KafkaSource  # noqa: PLC0415 - an extra
        except ImportError as fault:
            raise _absent("kafka", fault) from fault
        return await KafkaSource.open(place, clock, addresses=addresses, ack_wait_s=ack_wait_s)
    try:
        from noetl.sources.pubsub import PubsubSource  # noqa: PLC0415 - an extra
    except ImportError as fault:
        raise _absent("pubsub", fault) from fault
    return await PubsubSource.open(place, clock, addresses=addresses)


def _absent(kind: str, fault: ImportError) -> Exception:
    """The client is not installed; anything else that cannot be imported is a fault of ours."""
    return unavailable(kind) if (fault.name or "").split(".")[0] in _VENDORS[kind] else fault


class LastingSource:
    """A source that is opened anew after its connection broke."""

    def __init__(
        self, make: Callable[[], Awaitable[Source]], *, is_remade_by_acks: bool = False
    ) -> None:
        """Take what opens it; where ids outlive a connection, an ack may renew it as well."""
        self._make = make
        self._is_remade_by_acks = is_remade_by_acks
        self._source: Source | None = None
        self._opening = asyncio.Lock()
        self._facts = Facts()

    async def open(self) -> Source:
        """The source as it is now."""
        async with self._opening:
            if self._source is None:
                self._source = await self._make()
                self._facts = self._source.facts()
            return self._source

    async def poll(self, batch: int, timeout_ms: int) -> list[PolledMessage]:
        """Poll; after any fault the next call begins with a new connection."""
        source = await self.open()
        return await self._kept(source, source.poll(batch, timeout_ms))

    async def ack(self, ack_ids: Sequence[str]) -> AckReport:
        """They need no further delivery."""
        source = await self.open()
        return await self._reported(source, source.ack(ack_ids))

    async def nack(self, ack_ids: Sequence[str], delay_ms: int = 0) -> AckReport:
        """Deliver them again, after a while."""
        source = await self.open()
        return await self._reported(source, source.nack(ack_ids, delay_ms))

    async def term(self, ack_ids: Sequence[str]) -> AckReport:
        """Never deliver them again."""
        source = await self.open()
        return await self._reported(source, source.term(ack_ids))

    async def extend(self, ack_ids: Sequence[str]) -> AckReport:
        """Somebody still works at them."""
        source = await self.open()
        return await self._reported(source, source.extend(ack_ids))

    async def backlog(self) -> int | None:
        """How many messages wait, where the source can tell."""
        source = await self.open()
        return await self._kept(source, source.backlog())

    def facts(self) -> Facts:
        """What was known of its patience when it was opened last."""
        return self._facts

    async def close(self) -> None:
        """Let go."""
        source, self._source = self._source, None
        if source is not None:
            await source.close()

    async def _kept(self, source: Source, call: Awaitable[T]) -> T:
        try:
            return await call
        except SourceError:
            await self._discard(source)
            raise

    async def _reported(self, source: Source, call: Awaitable[AckReport]) -> AckReport:
        report = await call
        if self._is_remade_by_acks and any(each.code in _BROKEN for each in report.errors):
            await self._discard(source)
        return report

    async def _discard(self, source: Source) -> None:
        if self._source is source:
            self._source = None
            await source.close()
