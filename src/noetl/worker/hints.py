"""What the bus says: hints of work, each with a definite end, and words to stop work."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.api.problems import Refused
from noetl.bus.base import BusGone
from noetl.bus.subjects import control, pool_of, token
from noetl.ids import InvalidId, parse
from noetl.telemetry.failpoint import armed, failpoint
from noetl.worker.consume import SETTLED
from noetl.worker.meters import Meters
from noetl.worker.patience import Backoff, is_denied, is_passing, is_pressed

if TYPE_CHECKING:
    from collections.abc import Callable

    from noetl.api.client import Client
    from noetl.bus.base import Bus, Message
    from noetl.worker.consume import Consumer
    from noetl.worker.held import Held

TRIES: Final = 5
FETCH_S: Final = 30.0
FOREIGN_S: Final = 30.0
_LATER_S: Final = (1.0, 30.0)
_BUS: Final = (0.25, 10.0)

_log = logging.getLogger("noetl.worker")


class Control(msgspec.Struct, frozen=True):
    """A word to the live workers of a pool."""

    op: str
    execution_id: str | int | None = None
    command_ids: tuple[str | int, ...] = ()
    attempts: dict[str, int] = {}
    """Which attempt of a command is meant; without it, any."""
    workers: tuple[str, ...] = ()
    """Who is to drain; without it, everybody."""


class Hint(msgspec.Struct, frozen=True):
    """Where a command can be claimed."""

    event_id: str | int
    server_url: str | None = None
    execution_pool: str | None = None


_CONTROL: Final = msgspec.json.Decoder(Control)
_HINT: Final = msgspec.json.Decoder(Hint)


class Servers:
    """The servers at which work may be claimed, by their addresses."""

    def __init__(
        self, own: Client, url: str = "", connect: Callable[[str], Client] | None = None
    ) -> None:
        self.known: frozenset[str] = frozenset()
        """Told at registration."""
        self.own = own
        self._clients = {"": own, _plain(url): own}
        self._connect = connect

    def learn(self, urls: tuple[str, ...]) -> None:
        """These are servers too."""
        self.known = frozenset(map(_plain, urls))

    def client(self, url: str | None) -> Client | None:
        """How to talk to a server; None for one that nobody vouches for."""
        name = _plain(url or "")
        found = self._clients.get(name)
        if found is None and name in self.known and self._connect is not None:
            found = self._clients[name] = self._connect(name)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Ear:
    """Who listens."""

    bus: Bus
    pool: str
    worker_id: str
    held: Held
    consumer: Consumer
    servers: Servers
    drain: Callable[[], None]
    meters: Meters = field(default_factory=Meters)


class Listener:
    """Claims what hints name, and stops what words name."""

    def __init__(self, ear: Ear) -> None:
        self.is_bound = False
        """Whether hints are waited for, or were when there was room for work."""
        self._ear = ear
        self._counts = ear.consumer.counts

    async def follow(self) -> None:
        """Claim what hints name, until cancelled."""
        ear, backoff = self._ear, Backoff(*_BUS)
        while True:
            free = await ear.consumer.unused()
            was_bound, self.is_bound = self.is_bound, True
            try:
                found = await ear.bus.hints(ear.pool).fetch(free, FETCH_S)
            except BusGone:
                if was_bound:
                    ear.meters.reconnected("gone")
                self.is_bound = False
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            if ear.held.is_limited:  # each may be the one that fills its kind
                for message in found:
                    await self._heard(message)
            else:
                await asyncio.gather(*(self._heard(message) for message in found))

    async def obey(self) -> None:
        """Stop what the server says is wanted no more, or altogether, until cancelled."""
        ear, backoff = self._ear, Backoff(*_BUS)
        while True:
            try:
                async with ear.bus.listen(control(ear.pool)) as words:
                    async for told in words:
                        backoff.reset()
                        self._told(told.payload)
            except BusGone:
                pass
            await asyncio.sleep(backoff.next())

    # ------------------------------------------------------------------ one hint

    async def _heard(self, message: Message) -> None:
        """A bus that goes away while it is answered delivers the hint again."""
        try:
            await self._hinted(message)
        except BusGone:
            self._ear.meters.reconnected("gone")

    async def _hinted(self, message: Message) -> None:
        hint, ear = _read(message.payload), self._ear
        if hint is None:
            self._counts.senseless += 1
            await message.term()
            return
        pools = {hint.execution_pool or ear.pool, pool_of(message.subject) or token(ear.pool)}
        if not pools <= {ear.pool, token(ear.pool)}:
            self._counts.foreign_pool += 1
            await message.nak(FOREIGN_S)
            return
        client = ear.servers.client(hint.server_url)
        if client is None:  # never called, whoever it is; but our own server may have the command
            self._counts.foreign_server += 1
            client = ear.servers.own
        elif client is ear.servers.own and not ear.consumer.is_failing:
            # The claim that is parked there, or comes next, takes it without being told.
            await _taken(message)
            return
        if ear.held.full_kinds:  # the parked claim says which kinds are wanted; a hint cannot
            await message.nak(_later(message))
            return
        await self._claim(message, str(hint.event_id), client)

    async def _claim(self, message: Message, event_id: str, client: Client) -> None:
        """Claim one command; the answer decides what becomes of the hint."""
        ear, backoff = self._ear, Backoff(0.25, 2.0, spread=0.2)
        for _ in range(TRIES):
            try:
                command = await client.claim_one(event_id, ear.worker_id)
            except Exception as fault:  # noqa: BLE001 - the border: a worker outlives its server
                ear.consumer.note(fault)
                if not is_passing(fault):
                    await self._answered(message, fault)
                    return
                delay_s = backoff.after(fault)
                if is_pressed(fault):
                    ear.consumer.pause(delay_s, is_pressed=True)
                await asyncio.sleep(delay_s)
            else:
                ear.held.take((command,))
                self._counts.took("bus", 1)
                ear.consumer.succeeded()
                await _taken(message)
                return
        await message.nak(_later(message))

    async def _answered(self, message: Message, fault: Exception) -> None:
        """A definite answer ends the hint; an unclear one never drops it."""
        code = fault.code if isinstance(fault, Refused) else ""
        if code in SETTLED:
            await _taken(message)
        elif code == "unknown_command":
            self._counts.dead_lettered += 1
            await message.term()
        else:
            if is_denied(fault):
                self._ear.consumer.pause(Backoff().after(fault))
            await message.nak(_later(message))

    def _told(self, payload: bytes) -> None:
        try:
            word = _CONTROL.decode(payload)
        except msgspec.DecodeError:
            self._counts.senseless += 1
            return
        if word.op == "cancel":
            ids = word.command_ids or ((word.execution_id,) if word.execution_id else ())
            stopped = self._ear.held.stop_ids(map(str, ids), word.attempts)
            self._ear.meters.cancelled("control", stopped)
        elif word.op == "drain" and self._ear.worker_id in (word.workers or {self._ear.worker_id}):
            self._ear.drain()


def _read(payload: bytes) -> Hint | None:
    """The hint; None when it makes no sense."""
    try:
        hint = _HINT.decode(payload)
        return msgspec.structs.replace(hint, event_id=parse(hint.event_id))
    except (msgspec.DecodeError, InvalidId):
        return None


async def _taken(message: Message) -> None:
    """The hint is not needed any more."""
    if armed:
        await failpoint("worker.ack")
    await message.ack()


def _later(message: Message) -> float:
    """A delay that doubles with every delivery."""
    least, most = _LATER_S
    return min(most, least * float(1 << min(message.deliveries - 1, 10)))


def _plain(url: str) -> str:
    return url.rstrip("/")
