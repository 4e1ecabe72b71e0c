"""Getting work: one parked claim while there are free slots, and hints where there is a bus.

Most work comes in the answers to reports; a request of its own is made only while none is sent.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.commands import Claim
from noetl.api.problems import Refused
from noetl.bus.base import BusGone
from noetl.bus.subjects import control
from noetl.ids import InvalidId, parse
from noetl.worker.patience import Backoff, is_denied, is_passing

if TYPE_CHECKING:
    from noetl.api.client import Client
    from noetl.bus.base import Bus, Message
    from noetl.worker.held import Held
    from noetl.worker.report import Reporter

WAIT_S: Final = 20.0
MOST_ASKED: Final = 64
EMPTY_S: Final = 1.0
"""A parked claim that comes back empty sooner than this was not parked."""
TRIES: Final = 5
FETCH_S: Final = 30.0
_BUS: Final = (0.25, 10.0)
_SLOW: Final = "slow"
_STOP: Final = "stop"
_SETTLED: Final = frozenset(
    {"active_claim", "already_terminal", "execution_cancelled", "execution_paused"}
)

_log = logging.getLogger("noetl.worker")


@dataclass(slots=True)
class Counts:
    """How work came."""

    claims: int = 0
    claimed: dict[str, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    dead_lettered: int = 0
    senseless: int = 0
    stopped: int = 0

    def took(self, via: str, commands: int) -> None:
        """Count commands by the way they came."""
        self.claimed[via] = self.claimed.get(via, 0) + commands

    def refuse(self, code: str) -> None:
        """Count a claim that was not granted."""
        self.refused[code] = self.refused.get(code, 0) + 1


class Consumer:
    """Asks for work while there is room for it."""

    def __init__(
        self, client: Client, held: Held, reporter: Reporter, *, worker_id: str, pool: str
    ) -> None:
        self.counts = Counts()
        self.is_denied = False
        self._client = client
        self._held = held
        self._reporter = reporter
        self._worker_id = worker_id
        self._pool = pool
        self._window = held.slots
        self._resumes_at = 0.0

    def press(self, pressure: str) -> None:
        """Heed what the server says about its load."""
        if pressure == _STOP:
            self._pause(Backoff(1.0).next())
        if pressure in {_SLOW, _STOP}:
            self._window = max(1, self._window // 2)
        elif self._window < self._held.slots:
            self._window += 1

    async def run(self) -> None:
        """Keep one claim parked, until cancelled."""
        backoff = Backoff(0.25, 5.0)
        idle = Backoff(EMPTY_S, 5.0)
        loop = asyncio.get_running_loop()
        while True:
            asked = await self._room()
            began = loop.time()
            try:
                count = await self._claim(asked)
            except Exception as fault:  # noqa: BLE001 - the border: a worker outlives its server
                self._note(fault)
                self._pause(backoff.after(fault))
                continue
            backoff.reset()
            self.is_denied = False
            if count:
                idle.reset()
            elif loop.time() - began < EMPTY_S:
                self._pause(idle.next())

    async def follow(self, bus: Bus) -> None:
        """Claim what hints name, until cancelled."""
        backoff = Backoff(*_BUS)
        while True:
            free = await self._unused()
            try:
                found = await bus.hints(self._pool).fetch(free, FETCH_S)
            except BusGone:
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            for message in found:
                await self._hinted(message)

    async def obey(self, bus: Bus) -> None:
        """Stop what the server says is wanted no more, until cancelled."""
        backoff = Backoff(*_BUS)
        while True:
            try:
                async with bus.listen(control(self._pool)) as words:
                    async for told in words:
                        backoff.reset()
                        self._told(told.payload)
            except BusGone:
                pass
            await asyncio.sleep(backoff.next())

    # ------------------------------------------------------------------ parked claims

    async def _room(self) -> int:
        """Wait until work may be asked for; how much."""
        held, reporter = self._held, self._reporter
        loop = asyncio.get_running_loop()
        while True:
            await reporter.quiet.wait()
            if (wait_s := self._resumes_at - loop.time()) > 0:
                await asyncio.sleep(wait_s)
                continue
            if not reporter.quiet.is_set():
                continue  # a report was queued since; its answer may bring work
            if held.free and not reporter.is_full:
                return min(held.free, self._window, MOST_ASKED)
            held.changed.clear()
            await held.changed.wait()

    async def _claim(self, asked: int) -> int:
        body = Claim(
            worker_id=self._worker_id, pool=self._pool, free_slots=asked, wait_seconds=WAIT_S
        )
        self.counts.claims += 1
        with self._held.promise(asked):
            answer = await self._client.claim(body)
            self._held.take(answer.claimed)
        self.counts.took("poll", len(answer.claimed))
        return len(answer.claimed)

    def _pause(self, delay_s: float) -> None:
        resumes_at = asyncio.get_running_loop().time() + delay_s
        self._resumes_at = max(self._resumes_at, resumes_at)

    def _note(self, fault: Exception) -> None:
        self.counts.refuse(fault.code if isinstance(fault, Refused) else "no_answer")
        self.is_denied = is_denied(fault)
        if not is_passing(fault):
            if getattr(fault, "code", "") not in _SETTLED:
                _log.error("a claim was refused", extra={"reason": str(fault)})
        elif isinstance(fault, Refused):
            self._window = max(1, self._window // 2)

    # ------------------------------------------------------------------ the bus

    async def _unused(self) -> int:
        """Wait for a slot that no command uses and no report is about to fill.

        Slots of the parked claim count: the hint may be about a server that it does not reach.
        """
        held, quiet = self._held, self._reporter.quiet
        while True:
            await quiet.wait()
            free = held.slots - len(held)
            if free > 0 and quiet.is_set() and not held.is_closed:
                return min(free, MOST_ASKED)
            if quiet.is_set():
                held.changed.clear()
                await held.changed.wait()

    async def _hinted(self, message: Message) -> None:
        """Claim one command; the answer decides what becomes of the hint."""
        event_id = _event_id(message.payload)
        if event_id is None:
            self.counts.senseless += 1
            await message.term()
            return
        backoff = Backoff(0.25, 2.0)
        for _ in range(TRIES):
            try:
                command = await self._client.claim_one(event_id, self._worker_id)
            except Exception as fault:  # noqa: BLE001 - the border: a worker outlives its server
                self._note(fault)
                if not is_passing(fault):
                    await self._answered(message, fault)
                    return
                await asyncio.sleep(backoff.after(fault))
            else:
                self._held.take((command,))
                self.counts.took("bus", 1)
                await message.ack()
                return
        await message.nak(backoff.next())

    async def _answered(self, message: Message, fault: Exception) -> None:
        """A definite answer ends the hint; an unclear one never drops it."""
        code = fault.code if isinstance(fault, Refused) else ""
        if code in _SETTLED:
            await message.ack()
        elif code == "unknown_command":
            self.counts.dead_lettered += 1
            await message.term()
        else:
            await message.nak(1.0)

    def _told(self, payload: bytes) -> None:
        try:
            word = _CONTROL.decode(payload)
        except msgspec.DecodeError:
            self.counts.senseless += 1
            return
        if word.op == "cancel":
            ids = word.command_ids or ((word.execution_id,) if word.execution_id else ())
            self.counts.stopped += self._held.stop_ids(ids)


class Control(msgspec.Struct, frozen=True):
    """A word to the live workers of a pool."""

    op: str
    execution_id: str | None = None
    command_ids: tuple[str, ...] = ()


class _Hint(msgspec.Struct, frozen=True):
    event_id: str | int


_CONTROL: Final = msgspec.json.Decoder(Control)
_HINT: Final = msgspec.json.Decoder(_Hint)


def _event_id(payload: bytes) -> str | None:
    """The command that a hint names; None when it makes no sense."""
    try:
        return parse(_HINT.decode(payload).event_id)
    except (msgspec.DecodeError, InvalidId):
        return None
