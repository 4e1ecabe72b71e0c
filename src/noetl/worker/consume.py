"""Getting work: one parked claim while there are free slots.

Most work comes in the answers to reports; a request of its own is made only while none is sent.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from noetl.api.commands import Claim
from noetl.api.problems import Refused
from noetl.telemetry.failpoint import armed, failpoint
from noetl.worker.meters import Meters
from noetl.worker.patience import Backoff, is_denied, is_passing, is_pressed

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.worker.held import Held
    from noetl.worker.report import Reporter

WAIT_S: Final = 20.0
MOST_ASKED: Final = 64
EMPTY_S: Final = 1.0
"""A parked claim that comes back empty sooner than this was not parked."""
_SLOW: Final = "slow"
_STOP: Final = "stop"
SETTLED: Final = frozenset(
    {"active_claim", "already_terminal", "execution_cancelled", "execution_paused"}
)
"""Codes that say for good that a command is not to be had."""

_log = logging.getLogger("noetl.worker")


@dataclass(slots=True)
class Counts:
    """How work came."""

    claims: int = 0
    claimed: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    dead_lettered: int = 0
    senseless: int = 0
    foreign_pool: int = 0
    foreign_server: int = 0

    def took(self, via: str, commands: int) -> None:
        """Count commands by the way they came."""
        self.claimed[via] = self.claimed.get(via, 0) + commands

    def refuse(self, code: str) -> None:
        """Count a claim that was not granted."""
        self.refused[code] = self.refused.get(code, 0) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """Who asks for work."""

    client: Client
    worker_id: str
    pool: str
    held: Held
    reporter: Reporter
    meters: Meters = field(default_factory=Meters)


class Consumer:
    """Asks for work while there is room for it."""

    def __init__(self, applicant: Applicant) -> None:
        self.counts = Counts()
        self.is_denied = False
        self.is_failing = False
        """Whether the last request for work came to nothing."""
        self._applicant = applicant
        self._held = applicant.held
        self._reporter = applicant.reporter
        self._window = max(1, (self._held.slots + 1) // 2)
        self._resumes_at = 0.0

    def press(self, pressure: str) -> None:
        """Heed what the server says about its load."""
        if pressure == _STOP:
            self.pause(Backoff(1.0).next(), is_pressed=True)
        if pressure in {_SLOW, _STOP}:
            self._window = max(1, self._window // 2)

    async def run(self) -> None:
        """Keep one claim parked, until cancelled."""
        backoff = Backoff(0.25, 5.0, spread=0.2)
        idle = Backoff(EMPTY_S, 5.0)
        loop = asyncio.get_running_loop()
        while True:
            asked = await self._room()
            began = loop.time()
            try:
                count = await self._claim(asked)
            except Exception as fault:  # noqa: BLE001 - the border: a worker outlives its server
                self._applicant.meters.pulled("error", loop.time() - began)
                self.note(fault)
                self.is_failing = True
                self.pause(backoff.after(fault), is_pressed=is_pressed(fault))
                continue
            self._applicant.meters.pulled("work" if count else "empty", loop.time() - began)
            backoff.reset()
            self.succeeded()
            if count:
                idle.reset()
            elif loop.time() - began < EMPTY_S:
                self.pause(idle.next())

    async def unused(self) -> int:
        """Wait for a slot that no command uses and no report is about to fill.

        Slots of the parked claim count: a hint may be about a server that it does not reach.
        """
        held, quiet = self._held, self._reporter.quiet
        while True:
            await quiet.wait()
            if await self._paused():
                continue
            free = min(held.unused, self._window, MOST_ASKED)
            is_open = not held.is_closed and not held.brakes and not held.full_kinds
            if free > 0 and quiet.is_set() and is_open:
                return free
            if quiet.is_set():
                held.changed.clear()
                await held.changed.wait()

    def succeeded(self) -> None:
        """A request for work was answered: a little more may be asked for."""
        self.is_denied = False
        self.is_failing = False
        if self._window < self._held.slots:
            self._window += 1

    def pause(self, delay_s: float, *, is_pressed: bool = False) -> None:
        """Ask for nothing for a while; under pressure, not with reports either."""
        resumes_at = asyncio.get_running_loop().time() + delay_s
        self._resumes_at = max(self._resumes_at, resumes_at)
        if is_pressed:
            self._held.resumes_at = max(self._held.resumes_at, resumes_at)

    def note(self, fault: Exception) -> None:
        """Remember why a claim was not granted."""
        self.counts.refuse(fault.code if isinstance(fault, Refused) else "no_answer")
        self.is_denied = is_denied(fault)
        if not is_passing(fault):
            if getattr(fault, "code", "") not in SETTLED:
                _log.error("a claim was refused", extra={"reason": str(fault)})
        elif isinstance(fault, Refused):
            self._window = max(1, self._window // 2)

    # ------------------------------------------------------------------ parked claims

    async def _paused(self) -> bool:
        """Wait out a pause; whether there was one."""
        wait_s = self._resumes_at - asyncio.get_running_loop().time()
        if wait_s <= 0:
            return False
        await asyncio.sleep(wait_s)
        return True

    async def _room(self) -> int:
        """Wait until work may be asked for; how much."""
        held, reporter = self._held, self._reporter
        while True:
            await reporter.quiet.wait()
            if await self._paused():
                continue
            if not reporter.quiet.is_set():
                continue  # a report was queued since; its answer may bring work
            if held.free and not reporter.is_full:
                return min(held.free, self._window, MOST_ASKED)
            held.changed.clear()
            await held.changed.wait()

    async def _claim(self, asked: int) -> int:
        applicant = self._applicant
        body = Claim(
            worker_id=applicant.worker_id,
            pool=applicant.pool,
            free_slots=asked,
            wait_seconds=WAIT_S,
            exclude_kinds=self._held.full_kinds,
        )
        self.counts.claims += 1
        with self._held.promise(asked):
            answer = await applicant.client.claim(body)
            if armed and answer.claimed:
                await failpoint("worker.claim")
            self._held.take(answer.claimed)
        self.counts.took("poll", len(answer.claimed))
        return len(answer.claimed)
