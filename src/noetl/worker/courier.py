"""The way of reports to the server: one request at a time, sent until it is answered."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.events import Reports
from noetl.telemetry.failpoint import armed, failpoint
from noetl.worker.afterwards import Afterwards
from noetl.worker.meters import Meters
from noetl.worker.parcels import Undeliverable
from noetl.worker.patience import Backoff, is_denied, is_passing
from noetl.worker.sending import MOST_BYTES, Batch, Item, Queue
from noetl.worker.spill import Spill

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.api.client import Client
    from noetl.api.events import Receipt, Report, Reported
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.worker.held import Held
    from noetl.worker.outbox import Outbox
    from noetl.worker.parcels import Parcels

ENVELOPE_BYTES: Final = 512
ANSWER_S: Final = 10.0
"""How long an answer may take; then the connection may be lost, and sending again does no harm."""
_FINAL: Final = frozenset({"call.done", "call.error", "command.parked"})

_log = logging.getLogger("noetl.worker")


@dataclass(slots=True)
class Counts:
    """What the reporter did so far."""

    batches: int = 0
    events: int = 0
    retries: int = 0
    rejected: int = 0
    lost: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """Who reports, and what for."""

    client: Client
    clock: Clock
    ids: Ids
    worker_id: str
    pool: str
    held: Held
    on_answer: Callable[[Reported, dict[str, int]], None]
    """Told the answer, and the attempts whose reports came too late."""
    on_overflow: Callable[[], None] = lambda: None
    """Told that the outbox is about to be full."""
    outbox: Outbox | None = None
    parcels: Parcels | None = None
    """Large values that could not be stored yet."""
    meters: Meters = field(default_factory=Meters)


class Courier:
    """Carries what is queued; while the server is away, by way of the outbox."""

    def __init__(self, sender: Sender) -> None:
        self.counts = Counts()
        self.is_denied = False
        self.quiet = asyncio.Event()
        """Set while nothing waits to be sent: only then is a request for work alone worth it."""
        self.afterwards = Afterwards()
        self.spill = Spill(sender.outbox, sender.on_overflow)
        self._sender = sender
        self._queue = Queue()
        self._batch: Batch | None = None
        self._backoff = Backoff(spread=1.0)
        self._wake = asyncio.Event()
        if self.spill.is_empty:
            self.quiet.set()
        else:  # what the last run left goes first
            self._wake.set()

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more work should be taken."""
        return self._queue.is_full

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue or self._batch is not None or not self.spill.is_empty:
                await self._turn()
                await asyncio.sleep(0)  # what the answer brought may be done at once
            self.spill.is_disk_full = False  # nothing is left that would need the disk
            self.quiet.set()
            self._sender.held.changed.set()

    async def saved(self) -> None:
        """Leave what was not answered on the disk; for the end, when nothing is sent any more."""
        await self.spill.save(self._queue, self._batch)

    def _send_now(self) -> None:
        self.quiet.clear()
        self._wake.set()

    # ------------------------------------------------------------------ one request

    async def _turn(self) -> None:
        """Send the next batch, or the last one again."""
        batch = self._batch or await self._next()
        if batch is None:
            await self._rest(self._backoff.next())
            return
        self._batch = batch
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._deliver(batch)
            with self._sender.held.promise(batch.free_slots):
                if armed:
                    await failpoint("worker.report.before")
                async with asyncio.timeout(ANSWER_S):
                    answer = await self._sender.client.report(self._body(batch))
                if armed:
                    await failpoint("worker.report.after")
                self._settle(batch, answer)
        except Exception as fault:  # noqa: BLE001 - the border: whatever the transport raises, no report is lost
            await self._failed(batch, fault)
            return
        told = tuple(item.report.event_type for item in batch.items)
        self._sender.meters.emitted(told, loop.time() - began)
        self.is_denied = False
        self._queue.widen()
        self._backoff.reset()
        await self._over(batch)

    async def _deliver(self, batch: Batch) -> None:
        """Large values that lie here go before the reports that name them."""
        parcels = self._sender.parcels
        if parcels is None:
            return
        for place, item in enumerate(batch.items):
            try:
                batch.items[place] = await parcels.delivered(item)
            except Undeliverable as fault:
                # It was never sent, so that its id is still free.
                batch.items[place] = _instead(item, fault.message, item.event_id)

    async def _next(self) -> Batch | None:
        if self.spill.is_empty:
            held = self._sender.held
            return Batch(self._queue.batch(), 0 if self.is_full else held.wanted)
        await self.spill.save(self._queue)
        items = await self.spill.oldest(self._queue.most, MOST_BYTES)
        return Batch(items, 0, is_on_disk=True) if items else None

    def _body(self, batch: Batch) -> Reports:
        sender = self._sender
        return Reports(
            worker_id=sender.worker_id,
            pool=sender.pool,
            events=tuple(item.report for item in batch.items),
            free_slots=batch.free_slots,
            exclude_kinds=sender.held.full_kinds,
        )

    async def _failed(self, batch: Batch, fault: Exception) -> None:
        """No answer: wait and send again. A refusal: find the report that is not wanted."""
        self.is_denied = is_denied(fault)
        if is_passing(fault) or self.is_denied:
            self.counts.retries += 1
            await self._rest(self._backoff.after(fault))
            return
        self._queue.narrow(len(batch.items))
        if len(batch.items) > 1:
            self._batch = None
            if not batch.is_on_disk:
                self._queue.put_back(batch.items)
            return
        told = {"reason": str(fault), **_about(batch.items[0].report)}
        _log.error("the server refused a report", extra=told)
        self._rejected(batch.items[0], "refused")
        await self._over(batch)

    async def _rest(self, delay_s: float) -> None:
        """Wait; what is reported meanwhile is written down at once."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + delay_s
        while True:
            await self.spill.save(self._queue, self._batch)
            if (left_s := ends - loop.time()) <= 0:
                return
            self._wake.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            except TimeoutError:
                return

    async def _over(self, batch: Batch) -> None:
        """The batch needs no further try."""
        self._batch = None
        if self._sender.parcels is not None:
            await self._sender.parcels.forget(batch.items)
        if batch.is_on_disk and not await self.spill.drop(batch.items):
            await self._rest(self._backoff.next())  # they are sent again, which changes nothing

    # ------------------------------------------------------------------ its answer

    def _settle(self, batch: Batch, answer: Reported) -> None:
        self.counts.batches += 1
        self.counts.events += len(batch.items)
        receipts = {receipt.event_id: receipt for receipt in answer.results}
        late: dict[str, int] = {}
        for item in batch.items:
            if self._receive(item, receipts.get(item.event_id)) == "late":
                late[str(item.report.command_id)] = item.report.attempt or 0
        self._sender.on_answer(answer, late)

    def _receive(self, item: Item, receipt: Receipt | None) -> str:
        outcome = "stored" if receipt is None else receipt.outcome
        outcomes = self.counts.outcomes
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if item.receipt is not None and not item.receipt.done():
            item.receipt.set_result(outcome)
        self.afterwards.answered(item, outcome)
        if receipt is not None and outcome == "rejected":
            self._rejected(item, receipt.code or "rejected")
        return outcome

    def _rejected(self, item: Item, code: str) -> None:
        """A command whose report cannot be stored fails; a failure that cannot is loud."""
        self.counts.rejected += 1
        report = item.report
        self.afterwards.answered(item, "rejected")
        if item.receipt is not None and not item.receipt.done():
            item.receipt.set_result("rejected")
        if report.event_type not in _FINAL or item.is_last_word:
            self.counts.lost += 1
            told = {"event_id": item.event_id, "event_type": report.event_type, "code": code}
            _log.error("a report was rejected", extra={**told, **_about(report)})
            return
        message = f"the server rejected {report.event_type}: {code}"
        self._queue.put(_instead(item, message, self._sender.ids.new()))
        self._send_now()


def _about(report: Report) -> dict[str, str]:
    """Which command a line of the log is about."""
    return {
        "execution_id": str(report.execution_id),
        "command_id": str(report.command_id),
        "step": report.step,
    }


def _instead(item: Item, message: str, event_id: str) -> Item:
    """What is told when a report cannot be: its command failed."""
    error = {
        "kind": "internal",
        "code": "report_rejected",
        "message": message,
        "retryable": False,
        "step": item.report.step,
    }
    report = msgspec.structs.replace(
        item.report, event_id=event_id, event_type="call.error", payload={"error": error}
    )
    return Item(report=report, size_bytes=ENVELOPE_BYTES, is_last_word=True)
