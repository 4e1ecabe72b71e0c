"""A NATS server: a connection that is made again for ever, and streams that are made again too.

While the broker is away every call fails at once with `BusGone`; nobody is kept waiting, and
nothing has to be opened again by those who use it. All ports of a process share one broker.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from noetl.bus import streams, subjects
from noetl.bus.base import BusGone
from noetl.bus.ears import Ear
from noetl.bus.inbox import Inbox
from noetl.bus.link import Link
from noetl.bus.publishing import Unanswered, publish
from noetl.bus.streams import StreamDrift
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from nats.aio.msg import Msg

    from noetl.bus.address import Address
    from noetl.bus.base import Letter
    from noetl.bus.publishing import Ack
    from noetl.bus.streams import Stream

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
SETTLE_S: Final = 10.0
"""Connecting and declaring that take longer are begun anew."""
CLEARED_S: Final = 0.25
"""A broker removes the files of a deleted stream after it has said so; what is made under that name
meanwhile finds the old messages, or loses its own files."""
MOST_SILENCES: Final = 3
"""A stream that kept nothing so often in a row is broken: it is made anew."""
_NUMBERS: Final = re.compile(r"\d+")

T = TypeVar("T")
_log = logging.getLogger("noetl.bus")


class BrokerTooOld(NoetlError):
    """The broker cannot do what is asked of it; a newer one can."""

    code = "broker_too_old"
    status: ClassVar[int] = 502


class Broker:
    """The connection of a process, with everything declared that it uses."""

    def __init__(
        self, address: Address, wanted: tuple[Stream, ...], least: tuple[int, ...] = ()
    ) -> None:
        self.connections = 0
        """How often a connection was made."""
        self.repairs = 0
        """How often streams were found missing."""
        self._address = address
        self._streams = wanted
        self._least = least
        self._link: Link | None = None
        self._fault: Exception | None = None
        self._changed = asyncio.Event()
        self._ears: set[Ear] = set()
        self._silences: dict[str, tuple[int, float]] = {}
        self._repairs: dict[Link, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None
        self._is_closed = False

    def start(self) -> None:
        """Begin to connect; `ready` waits for it."""
        self._keeper = asyncio.create_task(self._keep(), name="bus")

    @property
    def is_connected(self) -> bool:
        """Whether the broker is there, with everything declared."""
        return self._link is not None and not self._link.gone.is_set()

    async def ready(self, timeout_s: float) -> None:
        """Wait until it is there; at once why not, when only a person can help."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.is_connected:
                    if isinstance(self._fault, StreamDrift | BrokerTooOld):
                        raise self._fault
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as fault:
            raise self._away() from fault

    def here(self) -> Link:
        """The connection; `BusGone` while there is none."""
        if self._link is None or self._link.gone.is_set():
            raise self._away()
        return self._link

    async def publish(self, letters: Sequence[Letter]) -> list[Ack]:
        """Have messages kept without waiting in between; streams that are missing are made."""
        link = self.here()
        stream = self._stream_of(letters[0].subject) if letters else ""
        began = asyncio.get_running_loop().time()
        try:
            kept, homeless = await publish(link, letters)
            if homeless:
                await self.repair(link)
                more, homeless = await publish(link, homeless)
                kept += more
        except Unanswered:
            await self._doubt(link, stream, began)
            raise
        self._silences.pop(stream, None)
        if homeless:
            raise BusGone(f"no stream of the broker takes {homeless[0].subject}")
        return kept

    async def info(self, stream: str, asked: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What a stream says of itself; one that is missing is made."""
        link = self.here()
        try:
            return await link.call(f"STREAM.INFO.{stream}", asked)
        except streams.ApiFault as fault:
            if fault.err_code != streams.NO_STREAM:
                raise
        await self.repair(link)
        return await link.call(f"STREAM.INFO.{stream}", asked)

    @asynccontextmanager
    async def hear(
        self, subject: str, heard: Callable[[Msg], None], ended: Callable[[], None] | None = None
    ) -> AsyncIterator[None]:
        """Have a function called with what comes under a subject, over lost connections too."""
        link = self.here()
        ear = Ear(subject, heard) if ended is None else Ear(subject, heard, ended)
        self._ears.add(ear)
        try:
            await ear.attach(link)
            await link.flush()
            yield
        finally:
            self._ears.discard(ear)
            await ear.detach()

    @asynccontextmanager
    async def listen(
        self, subject: str, read: Callable[[Msg], T | None]
    ) -> AsyncIterator[AsyncIterator[T]]:
        """What comes under a subject and can be read, over lost connections too."""
        inbox: Inbox[T] = Inbox()

        def heard(msg: Msg) -> None:
            word = read(msg)
            if word is not None:
                inbox.put(word)

        async with self.hear(subject, heard, inbox.close):
            yield inbox.words()

    async def repair(self, link: Link) -> None:
        """Declare the streams again, once for all who miss them."""
        task = self._repairs.get(link)
        if task is None:
            task = asyncio.create_task(self._declare(link))
            self._repairs[link] = task
            task.add_done_callback(lambda _: self._repairs.pop(link, None))
        await asyncio.wait([task])
        if task.cancelled():
            raise self._away()
        if (fault := task.exception()) is not None:
            raise BusGone(f"the streams cannot be made again: {fault}") from fault

    def later(self, work: Awaitable[None]) -> None:
        """Finish something that nobody waits for."""

        async def finish() -> None:
            await work

        task = asyncio.create_task(finish())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Let go; whoever waits gets `BusGone`, whoever listens comes to an end."""
        self._is_closed = True
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        for ear in self._ears:
            ear.ended()
        tasks = [*self._tasks, *self._repairs.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._changed.set()

    async def _keep(self) -> None:
        """Have a connection, for ever."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                async with asyncio.timeout(SETTLE_S):
                    link = await self._connect()
            except Exception as fault:  # noqa: BLE001 - the border: whatever it was, try again
                if self._is_closed:
                    return  # the library takes a cancellation for a connection that failed
                self._missed(fault)
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, hides nothing
                pause_s = min(LONGEST_PAUSE_S, pause_s * 2)
                continue
            pause_s = FIRST_PAUSE_S
            try:
                await link.ended()
                _log.warning("the bus is away", extra={"broker": self._address.shown})
            finally:
                self._link = None
                await link.close()

    async def _connect(self) -> Link:
        link = await Link.open(self._address)
        try:
            self._must_be_new_enough(link.version)
            for done in await streams.declare(link, self._streams):
                _log.info("the bus was set up", extra={"done": done})
            for ear in list(self._ears):
                if ear in self._ears:
                    await ear.attach(link)
            if self._ears:
                await link.flush()  # from here on everybody hears again
        except BaseException:
            await link.close()
            raise
        self._link, self._fault = link, None
        self.connections += 1
        self._changed.set()
        return link

    def _must_be_new_enough(self, version: str) -> None:
        numbers = tuple(int(number) for number in _NUMBERS.findall(version))
        if numbers[: len(self._least)] < self._least:
            needed = ".".join(map(str, self._least))
            raise BrokerTooOld(
                f"the broker at {self._address.shown} is nats-server {version or '?'}",
                hint=f"Run nats-server {needed} or newer: keys need a time to live of their own.",
            )

    def _missed(self, fault: Exception) -> None:
        """Remember why there is no bus; each reason is logged once."""
        if str(fault) != str(self._fault):
            _log.warning("the bus is away", extra={"reason": str(fault)})
        self._fault = fault
        self._changed.set()

    def _away(self) -> BusGone:
        if self._is_closed:
            return BusGone("the bus was closed")
        if isinstance(self._fault, NoetlError):
            return BusGone(self._fault.message, hint=self._fault.hint)
        reason = f": {self._fault}" if self._fault else ""
        return BusGone(f"the broker at {self._address.shown} is away{reason}")

    def _stream_of(self, subject: str) -> str:
        for stream in self._streams:
            if any(subjects.matches(pattern, subject) for pattern in stream.subjects):
                return stream.name
        return ""

    async def _doubt(self, link: Link, stream: str, began: float) -> None:
        """A stream kept nothing while its broker was there: its files may be gone or full.

        Nothing on the bus is the only copy, so it is better lost than silent for ever. Many who
        waited at the same time met one silence.
        """
        silences, last = self._silences.get(stream, (0, began))
        if began < last or not stream:
            return
        silences += 1
        self._silences[stream] = (silences, asyncio.get_running_loop().time())
        if silences < MOST_SILENCES:
            return
        del self._silences[stream]
        _log.error("a stream keeps nothing: it is made anew", extra={"stream": stream})
        await link.call(f"STREAM.DELETE.{stream}")
        await self.repair(link)

    async def _declare(self, link: Link) -> None:
        self.repairs += 1
        await asyncio.sleep(CLEARED_S)
        for done in await streams.declare(link, self._streams):
            _log.warning("the bus was repaired", extra={"done": done})
