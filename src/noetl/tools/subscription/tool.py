"""A bounded batch of messages: polled, and settled when the server knows of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from noetl.dsl.draining import TICK_S
from noetl.dsl.tasks import Subscription
from noetl.dsl.tasks.polls import MOST_TIMEOUT_MS, TIMEOUT_MS
from noetl.dsl.views import Outcome
from noetl.sources.base import SOURCES
from noetl.tools.base import ToolError, Traits
from noetl.tools.nats.places import stream_of
from noetl.tools.subscription.holding import Holding
from noetl.tools.subscription.places import invalid, place_of_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.clock import Clock
    from noetl.dsl.tasks.task import Task
    from noetl.sources.base import AckReport, PolledMessage, Source
    from noetl.sources.places import Place
    from noetl.tools.base import ToolContext
    from noetl.tools.nats.connections import Connections
    from noetl.tools.subscription.spools import Spools

MOST_IDS: Final = 10_000
_MODES: Final = {
    "true": "on_success",
    "false": "manual",
    "defer": "manual",
    "peek": "none",
}
"""Other words for the ways to acknowledge."""
_KEPT: Final = frozenset({"manual"})


@dataclass(slots=True)
class Fetched:
    """Messages that came, by their source."""

    messages: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SOURCES, 0))


class SubscriptionTool:
    """The kind `subscription`."""

    kind: ClassVar[str] = "subscription"
    Config: ClassVar[type[Task]] = Subscription
    traits: ClassVar[Traits] = Traits(credentialed=True)

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        *,
        emulator: str = "",
        spools: Spools | None = None,
        tick_s: float = TICK_S,
    ) -> None:
        """Take the connections of the kind `nats`; `emulator` is `PUBSUB_EMULATOR_HOST`.

        A tick may take `tick_s`.
        """
        self._tick_s = tick_s
        self._connections = connections
        self._clock = clock
        self._spools = spools
        self._emulator = emulator
        self._holding = Holding(connections, clock)
        self.fetched = Fetched()

    async def run(self, config: Subscription, ctx: ToolContext) -> Outcome:
        """Poll, or settle what a poll has returned."""
        place = await place_of_task(config, ctx, self._emulator)
        if config.operation == "drain":
            # The engine of subscriptions comes with the first tick.
            from noetl.tools.subscription.draining import Ticks  # noqa: PLC0415 - see above

            ticks = Ticks(self._holding, self._clock, self._spools, self._tick_s)
            drained = await ticks.drain(place, ctx)
            self.fetched.messages[config.source] += drained["received"]
            return Outcome(data=drained)
        if config.operation == "poll":
            return Outcome(data=await self._poll(config, place, ctx))
        return Outcome(data=await self._settled(config, place, ctx))

    async def cancel(self, ctx: ToolContext) -> None:
        """Cancelling the task ends the poll; what came with it is delivered again."""

    async def close(self) -> None:
        """End every connection."""
        await self._holding.close()
        await self._connections.close()

    # ------------------------------------------------------------------ messages in

    async def _poll(self, config: Subscription, place: Place, ctx: ToolContext) -> dict[str, Any]:
        timeout_ms = _timeout_ms(config)
        mode = _mode(config.ack)
        loop = asyncio.get_running_loop()
        async with self._holding.polling(place) as source:
            began = loop.time()
            found = await source.poll(int(config.batch), timeout_ms)
            took_ms = round((loop.time() - began) * 1000, 3)
            self.fetched.messages[config.source] += len(found)
            acked = await self._acknowledge(mode, source, found)
        ack_ids = [str(message.ack_id) for message in found]
        if mode == "on_success" and ack_ids:
            ctx.after_report(lambda: self._acked(place, ack_ids))
        return {
            "status": "success",
            "source": config.source,
            "operation": "poll",
            "count": len(found),
            "messages": [_shown(message, keeps_id=mode in _KEPT) for message in found],
            "acked": acked,
            "ack_mode": mode,
            "ack_ids": ack_ids if mode in _KEPT else [],
            "metrics": {
                "fetch_ms": took_ms,
                "bytes": sum(message.metadata["size_bytes"] for message in found),
            },
        }

    async def _acknowledge(self, mode: str, source: Source, found: list[PolledMessage]) -> bool:
        """Whether the messages are, or will be, acknowledged without the author's doing."""
        if mode != "auto" or not found:
            return mode in {"on_success", "auto"}
        report = await source.ack([str(message.ack_id) for message in found])
        return not report.errors

    async def _acked(self, place: Place, ack_ids: Sequence[str]) -> None:
        """The server has the messages: they need no further delivery."""
        report = await self._settle(place, "ack", ack_ids)
        if report.errors:
            message = f"{len(report.errors)} messages were not acknowledged and come again"
            raise ToolError("connection", "ack_failed", message)

    # ------------------------------------------------------------------ messages settled

    async def _settled(
        self, config: Subscription, place: Place, ctx: ToolContext
    ) -> dict[str, Any]:
        operation = "nack" if config.operation == "nak" else config.operation
        ack_ids = _ids(config.ack_ids)
        if config.source == "nats":
            from noetl.sources.nats import stream_of as stream_of_id  # noqa: PLC0415 - its client comes with the first task

            async with self._holding.settling(place, ack_ids):
                for ack_id in ack_ids:
                    stream_of(stream_of_id(ack_id), ctx)
        report = await self._settle(place, operation, ack_ids, int(config.nack_delay_ms))
        return {
            "status": "partial" if report.errors else "success",
            "operation": operation,
            "requested": report.requested,
            "disposed": report.disposed,
            "errors": [msgspec.to_builtins(error) for error in report.errors],
        }

    async def _settle(
        self, place: Place, operation: str, ack_ids: Sequence[str], delay_ms: int = 0
    ) -> AckReport:
        async with self._holding.settling(place, ack_ids) as source:
            if operation == "nack":
                return await source.nack(ack_ids, delay_ms)
            return await (source.term if operation == "term" else source.ack)(ack_ids)


def _timeout_ms(config: Subscription) -> int:
    if config.timeout_ms is None:
        return TIMEOUT_MS[config.source]
    timeout_ms, most = int(config.timeout_ms), MOST_TIMEOUT_MS[config.source]
    if timeout_ms > most:
        raise invalid("timeout_ms", f"is at most {most} with the source {config.source}")
    return timeout_ms


def _mode(ack: Any) -> str:  # noqa: ANN401 - a flag or a word
    word = str(ack).lower()
    return _MODES.get(word, word)


def _ids(given: Any) -> list[str]:  # noqa: ANN401 - a list, or what a template made of one
    found = given or []
    if isinstance(found, str):
        try:
            found = msgspec.json.decode(found)
        except msgspec.DecodeError:
            found = [found]
    if not isinstance(found, list | tuple) or not all(isinstance(item, str) for item in found):
        raise invalid("ack_ids", "is a list of what a poll returned")
    if len(found) > MOST_IDS:
        raise invalid("ack_ids", f"holds {MOST_IDS} ids at most")
    return list(dict.fromkeys(found))


def _shown(message: PolledMessage, *, keeps_id: bool) -> dict[str, Any]:
    made = message.as_json()
    if not keeps_id:
        made.pop("ack_id", None)
    return made
