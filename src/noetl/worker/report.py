"""The reporter: every event of this worker leaves here, in order, and the answers bring new work.

One request is in flight at a time and whatever queued meanwhile goes in the next, so a busy worker
sends large batches and an idle one sends at once, without a timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from noetl.api.events import MOST_EVENTS, Report, Reports
from noetl.clock import rfc3339
from noetl.worker.patience import Backoff, is_denied, is_passing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from noetl.api.client import Client
    from noetl.api.commands import Command
    from noetl.api.events import Receipt, Reported
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.worker.held import Held

MOST_BYTES: Final = 2 << 20
COMPANY_S: Final = 0.25
"""How long a report that nobody waits for is kept back, so that it travels with another."""
MOST_QUEUED: Final = 512
MOST_QUEUED_BYTES: Final = 16 << 20
_ENVELOPE_BYTES: Final = 512
_FINAL: Final = frozenset({"call.done", "call.error", "command.parked"})

_log = logging.getLogger("noetl.worker")


@dataclass(slots=True, kw_only=True)
class Item:
    """A report on its way."""

    report: Report
    size_bytes: int
    receipt: asyncio.Future[str] | None = None
    is_last_word: bool = False
    """It says that another report was rejected."""


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


class Reporter:
    """Queues reports and sends them."""

    def __init__(self, sender: Sender) -> None:
        self.counts = Counts()
        self.is_denied = False
        self.quiet = asyncio.Event()
        """Set while nothing waits to be sent: only then is a request for work alone worth it."""
        self.quiet.set()
        self._sender = sender
        self._queue: deque[Item] = deque()
        self._queued_bytes = 0
        self._started: dict[str, tuple[float, Item]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more work should be taken."""
        return len(self._queue) > MOST_QUEUED or self._queued_bytes > MOST_QUEUED_BYTES

    @property
    def is_empty(self) -> bool:
        """Whether every report was answered."""
        return self.quiet.is_set() and not self._queue and not self._started

    def made(
        self,
        command: Command,
        event_type: str,
        payload: dict[str, Any],
        duration_ms: float | None = None,
    ) -> Report:
        """A report with an id of its own, the same for every try to send it."""
        return Report(
            execution_id=command.execution_id,
            event_id=self._sender.ids.new(),
            event_type=event_type,
            step=command.node_name,
            command_id=command.command_id,
            attempt=command.attempt,
            created_at=rfc3339(self._sender.clock.now()),
            duration_ms=duration_ms,
            payload=payload,
        )

    def begin(self, command: Command) -> None:
        """A tool starts: told together with its result, or alone when that takes longer."""
        loop = asyncio.get_running_loop()
        item = Item(report=self.made(command, "command.started", {}), size_bytes=_ENVELOPE_BYTES)
        self._started[command.command_id] = (loop.time() + COMPANY_S, item)
        self._arm(loop)

    async def begin_stored(self, command: Command) -> str:
        """A tool that must not run twice starts: the log knows of it before."""
        receipt: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        report = self.made(command, "command.started", {})
        self._put(Item(report=report, size_bytes=_ENVELOPE_BYTES, receipt=receipt))
        self._send_now()
        return await receipt

    def tell(self, report: Report) -> None:
        """Queue a report that may wait for company; it never comes before the start."""
        held = self._started.pop(report.command_id, None)
        if held is not None:
            self._put(held[1])
        self._put(Item(report=report, size_bytes=_ENVELOPE_BYTES))
        self._arm(asyncio.get_running_loop())

    def end(self, report: Report, size_bytes: int) -> None:
        """Queue what came of a command."""
        held = self._started.pop(report.command_id, None)
        if held is not None:
            self._put(held[1])
        self._put(Item(report=report, size_bytes=size_bytes + _ENVELOPE_BYTES))
        self._send_now()

    def forget(self, command: Command) -> None:
        """The command ended without a report."""
        self._started.pop(command.command_id, None)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                await self._send(self._batch())
            self.quiet.set()
            self._sender.held.changed.set()

    async def flushed(self) -> None:
        """Wait until every report was answered."""
        for _, item in self._started.values():
            self._put(item)
        self._started.clear()
        if self._queue:
            self._send_now()
        await self.quiet.wait()

    # ------------------------------------------------------------------ the queue

    def _put(self, item: Item) -> None:
        self._queue.append(item)
        self._queued_bytes += item.size_bytes

    def _send_now(self) -> None:
        self.quiet.clear()
        self._wake.set()

    def _arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is None:
            self._timer = loop.call_later(COMPANY_S, self._overdue)

    def _overdue(self) -> None:
        """Send what waited long enough; they lie in the order of their times."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for command_id, (due, item) in list(self._started.items()):
            if due > now:
                self._timer = loop.call_at(due, self._overdue)
                break
            del self._started[command_id]
            self._put(item)
        if self._queue:
            self._send_now()

    def _batch(self) -> list[Item]:
        batch: list[Item] = []
        size = 0
        while self._queue and len(batch) < MOST_EVENTS:
            size += self._queue[0].size_bytes
            if batch and size > MOST_BYTES:
                break
            batch.append(self._queue.popleft())
        self._queued_bytes -= sum(item.size_bytes for item in batch)
        return batch

    # ------------------------------------------------------------------ one request

    async def _send(self, batch: list[Item]) -> None:
        """Send until the server has the batch; one that it refuses is halved to find the cause."""
        sender = self._sender
        free = 0 if self.is_full else sender.held.free
        body = Reports(
            worker_id=sender.worker_id,
            pool=sender.pool,
            events=tuple(item.report for item in batch),
            free_slots=free,
        )
        with sender.held.promise(free):
            answer = await self._answer(body)
            if answer is not None:
                self._settle(batch, answer)
        if answer is not None:
            return
        if len(batch) == 1:
            self._rejected(batch[0], "refused")
            return
        middle = len(batch) // 2
        for half in (batch[:middle], batch[middle:]):
            await self._send(half)

    async def _answer(self, body: Reports) -> Reported | None:
        """The answer, however long it takes; None when the batch will never be accepted."""
        backoff = Backoff()
        while True:
            try:
                answer = await self._sender.client.report(body)
            except Exception as fault:  # noqa: BLE001 - the border: whatever the transport raises, no report is lost
                self.is_denied = is_denied(fault)
                if not is_passing(fault) and not self.is_denied:
                    _log.error("the server refused reports", extra={"reason": str(fault)})
                    return None
                self.counts.retries += 1
                delay_s = backoff.after(fault)
            else:
                self.is_denied = False
                return answer
            await asyncio.sleep(delay_s)

    def _settle(self, batch: Sequence[Item], answer: Reported) -> None:
        self.counts.batches += 1
        self.counts.events += len(batch)
        receipts = {receipt.event_id: receipt for receipt in answer.results}
        late: dict[str, int] = {}
        for item in batch:
            if self._receive(item, receipts.get(item.report.event_id)) == "late":
                late[item.report.command_id] = item.report.attempt
        self._sender.on_answer(answer, late)

    def _receive(self, item: Item, receipt: Receipt | None) -> str:
        outcome = "stored" if receipt is None else receipt.outcome
        outcomes = self.counts.outcomes
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        if item.receipt is not None and not item.receipt.done():
            item.receipt.set_result(outcome)
        if receipt is not None and outcome == "rejected":
            self._rejected(item, receipt.code or "rejected")
        return outcome

    def _rejected(self, item: Item, code: str) -> None:
        """A command whose report cannot be stored fails; a failure that cannot is loud."""
        self.counts.rejected += 1
        report = item.report
        if item.receipt is not None and not item.receipt.done():
            item.receipt.set_result("rejected")
        if report.event_type not in _FINAL or item.is_last_word:
            self.counts.lost += 1
            told = {"event_id": report.event_id, "event_type": report.event_type, "code": code}
            _log.error("a report was rejected", extra=told)
            return
        error = {
            "kind": "internal",
            "code": "report_rejected",
            "message": f"the server rejected {report.event_type}: {code}",
            "retryable": False,
            "step": report.step,
        }
        replaced = msgspec.structs.replace(
            report,
            event_id=self._sender.ids.new(),
            event_type="call.error",
            payload={"error": error},
        )
        self._put(Item(report=replaced, size_bytes=_ENVELOPE_BYTES, is_last_word=True))
        self._send_now()
