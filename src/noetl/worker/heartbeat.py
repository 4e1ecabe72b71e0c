"""One beat extends every lease of this worker, and its answer says what to stop.

It is a task of the worker's own event loop; a thread of its own, which a busy loop cannot hold up,
comes with sockets.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from noetl.api.commands import Heartbeat
from noetl.api.commands import Held as HeldCommand
from noetl.api.problems import Refused
from noetl.worker.patience import is_passing
from noetl.worker.results import CHECKPOINT_BYTES, encoded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from noetl.api.client import Client
    from noetl.api.commands import Beat
    from noetl.worker.held import Held, Run

LEASE_S: Final = 15.0
_DOUBT: Final = 0.8
"""The share of a lease after which nobody knows whether it still holds."""
_UNKNOWN: Final = 404

_log = logging.getLogger("noetl.worker")


class Heart:
    """Beats while the worker lives."""

    def __init__(self, client: Client, held: Held, worker_id: str) -> None:
        self.may_start = asyncio.Event()
        """Set while the leases are known to hold."""
        self.may_start.set()
        self.lost = 0
        self.failures = 0
        self.lease_s = LEASE_S
        self._client = client
        self._held = held
        self._worker_id = worker_id

    async def run(
        self, register: Callable[[], Awaitable[None]], on_beat: Callable[[Beat], None]
    ) -> None:
        """Beat three times a lease, until cancelled."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(self.lease_s / 3)
            try:
                beat = await self._beat()
            except Exception as fault:  # noqa: BLE001 - the border: a worker outlives its server
                self.failures += 1
                if loop.time() - last > self.lease_s * _DOUBT:
                    self.may_start.clear()
                await self._after(fault, register)
                continue
            last = loop.time()
            self.may_start.set()
            on_beat(beat)

    async def _beat(self) -> Beat:
        runs = {run.command.command_id: run for run in self._held if not run.is_stopped}
        unsaved = [run for run in runs.values() if not run.is_saved]
        body = Heartbeat(
            worker_id=self._worker_id,
            commands=tuple(_held(run) for run in runs.values()),
            free_slots=self._held.free,
        )
        for run in unsaved:  # before the answer: a task may end while the beat is under way
            run.is_saved = True
        try:
            beat = await self._client.heartbeat(body)
        except Exception:
            for run in unsaved:
                run.is_saved = False
            raise
        attempts = {name: run.command.attempt for name, run in runs.items()}
        self.lost += self._held.stop_ids(beat.lost, attempts)
        self._held.stop_ids(beat.cancel, attempts)
        return beat

    async def _after(self, fault: Exception, register: Callable[[], Awaitable[None]]) -> None:
        if isinstance(fault, Refused) and fault.problem.status == _UNKNOWN:
            await register()
        elif not is_passing(fault):
            _log.error("a heartbeat was refused", extra={"reason": str(fault)})


def _held(run: Run) -> HeldCommand:
    """A command, with its checkpoint when tasks ended since the last one was saved."""
    command, checkpoint = run.command, None
    if run.checkpoint is not None and not run.is_saved:
        made = run.checkpoint()
        # Repeating finished tasks costs less than beats of that size.
        checkpoint = made if len(encoded(made)) <= CHECKPOINT_BYTES else None
    return HeldCommand(
        command_id=command.command_id, attempt=command.attempt, checkpoint=checkpoint
    )
