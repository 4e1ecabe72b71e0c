"""What becomes of a message that cannot run now: it waits here or at its source, or is given up."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.api.subscriptions import PutDeadLetter
from noetl.blobs.spool.base import SpoolError, SpoolFull
from noetl.intake.audit import NotTold
from noetl.intake.deliveries import item_of, ref_of_delivery
from noetl.intake.spans import spanned
from noetl.sources.ordering import SERVER
from noetl.telemetry.failpoint import armed, failpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.api.client import Client
    from noetl.blobs.spool.item import Item
    from noetl.blobs.spool.spool import Spool
    from noetl.clock import Clock
    from noetl.dsl.subscription.document import SubscriptionSpec
    from noetl.intake.breakers import Breakers
    from noetl.intake.deliveries import Delivery, Listener
    from noetl.intake.outcomes import Disposition
    from noetl.telemetry.traces.tracer import Tracer

OFF: Final = "off"
BUFFER: Final = "buffer_and_ack"
HYBRID: Final = "hybrid"
LEAST_DELAY_MS: Final = 1_000
MOST_DELAY_MS: Final = 60_000
_LAST_DELIVERIES: Final = 2
_OLD: Final = 0.5
_log: Final = logging.getLogger(__name__)


class LetterBox(Protocol):
    """Keeps dead letters where there is no spool."""

    async def put(self, item: Item, reason: str) -> None:
        """Keep one; `NotTold` when it is not kept."""


def mode_of(spec: SubscriptionSpec) -> str:
    """`off`, `buffer_and_ack` or `hybrid`."""
    mode = spec.spool.mode if spec.spool else None
    return mode or (BUFFER if spec.mode == "push" else OFF)


class Keeping:
    """Decides by the mode of the spool."""

    def __init__(  # noqa: PLR0913 - its parts, met in one place
        self,
        listener: Listener,
        *,
        spool: Spool | None,
        letters: LetterBox,
        breakers: Breakers,
        clock: Clock,
        tracer: Tracer | None = None,
    ) -> None:
        self.mode = mode_of(listener.spec) if spool is not None else OFF
        self._listener = listener
        self._spool = spool
        self._letters = letters
        self._breakers = breakers
        self._clock = clock
        self._tracer = tracer
        self.began: Callable[[], None] = lambda: None
        """Is called when a first message waits for a downstream."""
        self.fault = ""
        """Why the spool has not stored the last message; nothing when it has."""

    def must_queue(self, delivery: Delivery) -> bool:
        """Whether others wait that have to go first."""
        spool, spec = self._spool, self._listener.spec
        if spool is None:
            return False
        if spec.spool is not None and spec.spool.drain.on_recovery == "interleave":
            return spool.has_lane(delivery.downstream, delivery.lane)
        return spool.pending(delivery.downstream) > 0 or spool.has_lane(
            delivery.downstream, delivery.lane
        )

    def buffers(self, *names: str) -> bool:
        """Whether messages for these are taken in while they are away."""
        if self.mode != HYBRID:
            return self.mode == BUFFER
        if self._listener.spec.source == "webhook":
            return True
        outage = self._breakers.outage_ms(*names)
        return outage is not None and outage >= self._escalate_after_ms

    def may_be_forgotten(self, *names: str) -> bool:
        """Whether these are away for so long that their messages become too old at the source."""
        lasts_s, outage = self._listener.retention_s, self._breakers.outage_ms(*names)
        if self.mode != HYBRID or lasts_s is None or outage is None:
            return False
        return outage >= lasts_s * _OLD * 1000

    async def limit(self, delivery: Delivery) -> Disposition:
        """There were too many of late: into the spool, or back to its source."""
        if self.buffers(SERVER, delivery.downstream):
            return await self.spool(delivery, "rate_limited")
        return self.back(delivery, "rate_limited")

    async def hold(self, delivery: Delivery) -> Disposition:
        """It cannot go now: into the spool, or back to its source."""
        if self.mode == BUFFER:
            return await self.spool(delivery, "circuit_open")
        if self.mode == HYBRID and self._is_urgent(delivery):
            return await self.spool(delivery, "hybrid_escalate")
        return self.back(delivery, "circuit_open")

    def back(self, delivery: Delivery, reason: str, delay_ms: int | None = None) -> Disposition:
        """Its source is to deliver it again, when it may pass."""
        wait = self._breakers.wait_ms(SERVER, delivery.downstream) if delay_ms is None else delay_ms
        delay = min(max(wait, LEAST_DELAY_MS), MOST_DELAY_MS)
        return delivery.settled("nack", "held", delay_ms=delay, reason=reason)

    async def spool(
        self, delivery: Delivery, reason: str, *, is_new_run: bool = False
    ) -> Disposition:
        """It waits here; without room its source keeps it."""
        if self._spool is None:
            return self.back(delivery, reason)
        item = item_of(self._listener, delivery, reason, self._clock, is_new_run=is_new_run)
        if armed:
            await failpoint("subscription.put")
        try:
            with spanned(self._tracer, "subscription.spool.put", None, {"reason": reason}):
                is_waiting = await self._spool.put(item)
        except (SpoolFull, SpoolError) as fault:
            return self._unstored(delivery, fault)
        self.fault = ""
        if self._spool.pending(delivery.downstream) == 1:
            self.began()
        if armed:
            await failpoint("subscription.stored")
        if not is_waiting:
            return delivery.settled("term", "dead_lettered", spool_ref=item.ref, reason="too_large")
        return delivery.settled("ack", "spooled", spool_ref=item.ref, reason=reason)

    async def dead(self, delivery: Delivery, reason: str) -> Disposition:
        """It is given up, and kept; while it cannot be kept its source keeps it."""
        item = item_of(self._listener, delivery, reason, self._clock)
        try:
            if self._spool is not None:
                await self._spool.dead_letters.bury(item, reason)
                self.fault = ""
            else:
                await self._letters.put(item, reason)
        except SpoolError as fault:
            return self._unstored(delivery, fault)
        except NotTold:
            return self.back(delivery, "spool_unavailable")
        ref = ref_of_delivery(self._listener, delivery)
        return delivery.settled("term", "dead_lettered", spool_ref=ref, reason=reason)

    def _unstored(self, delivery: Delivery, fault: SpoolFull | SpoolError) -> Disposition:
        """The spool takes no message: its source keeps it; told once, until it does again."""
        code = "spool_full" if isinstance(fault, SpoolFull) else "spool_unavailable"
        if self.fault != code:
            about = {"subscription": self._listener.path, "code": code, "reason": fault.message}
            _log.warning("the spool takes no message", extra=about)
        self.fault = code
        return self.back(delivery, code)

    @property
    def _escalate_after_ms(self) -> float:
        return self._listener.spec.spool.escalate_after_ms if self._listener.spec.spool else 0.0

    def _is_urgent(self, delivery: Delivery) -> bool:
        """Whether its source may not keep it much longer."""
        if self.buffers(SERVER, delivery.downstream):
            return True
        most, lasts_s = self._listener.max_deliver, self._listener.retention_s
        if most is not None and most > 0 and delivery.delivered >= most - _LAST_DELIVERIES:
            return True
        if lasts_s is None or delivery.sent_at is None:
            return False
        age_s = (self._clock.now() - delivery.sent_at).total_seconds()
        return age_s > lasts_s * _OLD


class ServerLetters:
    """Has the server keep dead letters; it tells of them too."""

    def __init__(self, client: Client, subscription_id: str) -> None:
        self._client = client
        self._subscription_id = subscription_id

    async def put(self, item: Item, reason: str) -> None:
        """Keep one."""
        letter = PutDeadLetter(
            ref=item.ref,
            message_id=item.message_id,
            reason=reason,
            item=msgspec.to_builtins(item),
            attempts=item.attempts,
            recv_seq=item.recv_seq,
            downstream=item.downstream,
        )
        try:
            await self._client.put_dead_letter(self._subscription_id, letter)
        except (NoAnswer, Refused) as fault:
            raise NotTold(fault.message) from fault
