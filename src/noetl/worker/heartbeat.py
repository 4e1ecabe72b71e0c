"""One beat extends every lease of this worker, and its answer says what to stop.

This heart is a task of the worker's own event loop, for loops whose time is not the machine's; the
one of `noetl.worker.pulse` has a thread, which a busy loop cannot hold up.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from noetl.api.commands import Held as HeldCommand
from noetl.api.problems import Refused
from noetl.api.runtime import PoolHeartbeat
from noetl.worker.meters import Meters
from noetl.worker.patience import is_passing
from noetl.worker.results import CHECKPOINT_BYTES, encoded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from noetl.api.client import Client
    from noetl.api.commands import Beat
    from noetl.worker.held import Held, Run

LEASE_S: Final = 15.0
_DOUBT: Final = 0.8
"""The share of a lease after which nobody knows whether it still holds."""
_UNKNOWN: Final = 404

_log = logging.getLogger("noetl.worker")


@dataclass(slots=True)
class Look:
    """What one beat tells of the commands."""

    commands: tuple[HeldCommand, ...] = ()
    attempts: dict[str, int] = field(default_factory=dict)
    unsaved: list[Run] = field(default_factory=list)
    """Runs whose checkpoint travels with this beat."""


class Chart:
    """What a heart knows: the commands, and whether their leases hold."""

    def __init__(
        self,
        held: Held,
        worker_id: str,
        *,
        interval_s: float | None = None,
        meters: Meters | None = None,
    ) -> None:
        self.may_start = asyncio.Event()
        """Set while the leases are known to hold."""
        self.may_start.set()
        self.lost = 0
        self.failures = 0
        self.lease_s = LEASE_S
        self._interval_s = interval_s
        self._held = held
        self._worker_id = worker_id
        self._meters = meters or Meters()

    @property
    def interval_s(self) -> float:
        """The time between beats: three in a lease, or more."""
        third = self.lease_s / 3
        return third if self._interval_s is None else min(self._interval_s, third)

    def is_in_doubt(self, silent_s: float) -> bool:
        """Whether nobody knows if the leases still hold."""
        return silent_s > self.lease_s * _DOUBT

    def look(self) -> Look:
        """The commands with what is new of their checkpoints; for the worker's own loop."""
        runs = [run for run in self._held if not run.is_stopped]
        unsaved = [run for run in runs if not run.is_saved]
        look = Look(tuple(_told(run) for run in runs), _attempts(runs), unsaved)
        for run in unsaved:  # before the answer: a task may end while the beat is under way
            run.is_saved = True
        return look

    def glance(self) -> Look:
        """The commands alone, which any thread may ask for."""
        runs = [run for run in self._held.snapshot() if not run.is_stopped]
        return Look(tuple(_bare(run) for run in runs), _attempts(runs))

    def body(self, look: Look) -> PoolHeartbeat:
        """What is sent."""
        return PoolHeartbeat(
            name=self._worker_id,
            free_slots=max(0, self._held.unused),  # those that a parked claim may fill are free
            commands=look.commands,
        )

    def beaten(self, look: Look, beat: Beat) -> None:
        """The beat went through; for the worker's own loop."""
        self.may_start.set()
        lost = self._held.stop_ids(beat.lost, look.attempts)
        self.lost += lost
        self._meters.cancelled("lost", lost)
        stopped = self._held.stop_ids(beat.cancel, look.attempts)
        self._meters.cancelled("heartbeat", stopped)

    def missed(self, look: Look, *, is_doubtful: bool) -> None:
        """The beat did not go through; for the worker's own loop."""
        self.failures += 1
        if is_doubtful:
            self.may_start.clear()
        self.unsent(look)

    def unsent(self, look: Look) -> None:
        """The checkpoints of this look did not arrive; for the worker's own loop."""
        for run in look.unsaved:
            run.is_saved = False


class Heart:
    """Beats while the worker lives."""

    def __init__(self, client: Client, chart: Chart) -> None:
        self._client = client
        self._chart = chart

    async def run(
        self, register: Callable[[], Awaitable[None]], on_beat: Callable[[Beat], None]
    ) -> None:
        """Beat three times a lease, until cancelled."""
        chart, loop = self._chart, asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(chart.interval_s)
            look = chart.look()
            try:
                beat = await self._client.pool_heartbeat(chart.body(look))
            except Exception as fault:  # noqa: BLE001 - the border: a worker outlives its server
                chart.missed(look, is_doubtful=chart.is_in_doubt(loop.time() - last))
                if is_unknown(fault):
                    await register()
                else:
                    note(fault)
                continue
            last = loop.time()
            chart.beaten(look, beat)
            on_beat(beat)


def is_unknown(fault: Exception) -> bool:
    """Whether the server has forgotten this worker."""
    return isinstance(fault, Refused) and fault.problem.status == _UNKNOWN


def note(fault: Exception) -> None:
    """A beat that is refused for good is loud."""
    if not is_passing(fault):
        _log.error("a heartbeat was refused", extra={"reason": str(fault)})


def _attempts(runs: Iterable[Run]) -> dict[str, int]:
    return {run.command.command_id: run.command.attempt for run in runs}


def _bare(run: Run) -> HeldCommand:
    return HeldCommand(command_id=run.command.command_id, attempt=run.command.attempt)


def _told(run: Run) -> HeldCommand:
    """A command, with its checkpoint when tasks ended since the last one was saved."""
    if run.checkpoint is None or run.is_saved:
        return _bare(run)
    made = run.checkpoint()
    command = run.command
    return HeldCommand(
        command_id=command.command_id,
        attempt=command.attempt,
        # Repeating finished tasks costs less than beats of that size.
        checkpoint=made if len(encoded(made)) <= CHECKPOINT_BYTES else None,
    )
