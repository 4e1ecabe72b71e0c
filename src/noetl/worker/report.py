"""The reporter: every event of this worker is made here, in order, and sent by its courier.

One request is in flight at a time and whatever queued meanwhile goes in the next, so a busy worker
sends large batches and an idle one sends at once, without a timer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from noetl.api.events import Report
from noetl.clock import rfc3339
from noetl.worker.courier import ENVELOPE_BYTES, Courier
from noetl.worker.sending import Item

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.api.commands import Command
    from noetl.worker.afterwards import Work
    from noetl.worker.courier import Sender

COMPANY_S: Final = 0.25
"""How long a report that nobody waits for is kept back, so that it travels with another."""


class Reporter(Courier):
    """Makes reports and queues them."""

    def __init__(self, sender: Sender) -> None:
        super().__init__(sender)
        self._started: dict[str, tuple[float, Item]] = {}
        self._timer: asyncio.TimerHandle | None = None

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
        item = Item(report=self.made(command, "command.started", {}), size_bytes=ENVELOPE_BYTES)
        self._started[command.command_id] = (loop.time() + COMPANY_S, item)
        self._arm(loop)

    async def begin_stored(self, command: Command) -> str:
        """A tool that must not run twice starts: the log knows of it before."""
        receipt: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        report = self.made(command, "command.started", {})
        self._queue.put(Item(report=report, size_bytes=ENVELOPE_BYTES, receipt=receipt))
        self._send_now()
        return await receipt

    def tell(self, report: Report) -> None:
        """Queue a report that may wait for company; it never comes before the start."""
        self._put(report, ENVELOPE_BYTES)
        self._arm(asyncio.get_running_loop())

    def end(self, report: Report, size_bytes: int, afterwards: Sequence[Work] = ()) -> None:
        """Queue what came of a command, and what is done when that was stored."""
        self.afterwards.expect(str(report.event_id), afterwards)
        self._put(report, size_bytes + ENVELOPE_BYTES)
        self._send_now()

    def forget(self, command: Command) -> None:
        """The command ended without a report."""
        self._started.pop(command.command_id, None)

    async def flushed(self) -> None:
        """Wait until every report was answered."""
        self._flush_started()
        if self._queue:
            self._send_now()
        await self.quiet.wait()
        await self.afterwards.done()

    async def saved(self) -> None:
        """Leave what was not answered on the disk; for the end, when nothing is sent any more."""
        self._flush_started()
        await super().saved()

    # ------------------------------------------------------------------ the queue

    def _put(self, report: Report, size_bytes: int) -> None:
        held = self._started.pop(str(report.command_id), None)
        if held is not None:
            self._queue.put(held[1])
        self._queue.put(Item(report=report, size_bytes=size_bytes))

    def _flush_started(self) -> None:
        for _, item in self._started.values():
            self._queue.put(item)
        self._started.clear()

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
            self._queue.put(item)
        if self._queue:
            self._send_now()
