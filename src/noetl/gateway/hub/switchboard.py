"""The streams of this gateway: who has one, and what is told to a client wherever it is."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import OrderedDict
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

from noetl.bus.base import BusGone
from noetl.edge.errors import Draining, Unacceptable
from noetl.gateway import frames
from noetl.gateway.errors import ClientNotYours
from noetl.gateway.hub.presence import Presence, is_client_id
from noetl.gateway.hub.replicas import Acknowledged, Replicas, Superseded, Unwatch, Watch
from noetl.gateway.hub.stream import GOING_AWAY, PAGE, Ending, Recovery, Stream
from noetl.gateway.hub.watches import Watches
from noetl.gateway.hub.wheel import Pace, Wheel, closed, superseded
from noetl.ids import random_key, random_uuid

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence

    from noetl.bus.gateway import GatewayBus, MemoryGatewayBus
    from noetl.clock import Clock
    from noetl.gateway.hub.presence import Present
    from noetl.gateway.hub.replicas import AnyWord
    from noetl.gateway.hub.stream import Wire
    from noetl.gateway.metrics import GatewayMetrics
    from noetl.gateway.person import Person
    from noetl.gateway.upstream import Upstream

CALL_S: Final = 5.0
"""How long the bus may take when somebody leaves."""
DRAIN_S: Final = 10.0
MOST_NEWER: Final = 10_000
_AT_ONCE: Final = 20
_RETRY_MS: Final = (1000, 15_000)
_log: Final = logging.getLogger(__name__)


class Hub:
    """Every stream of this gateway, and the way to those of the others."""

    def __init__(  # noqa: PLR0913 - what it stands on, each a thing of its own
        self,
        *,
        bus: GatewayBus | MemoryGatewayBus,
        upstream: Upstream,
        clock: Clock,
        metrics: GatewayMetrics,
        pace: Pace | None = None,
        replica: str = "",
    ) -> None:
        self.pace = pace or Pace()
        self.presence = Presence(bus.sessions, clock, replica or random_key())
        self.replicas = Replicas(bus.bus)
        self.still: Callable[[Person], Awaitable[Person]] | None = None
        """Somebody as his session is now; fails when it does not last."""
        self.on_acknowledged: Callable[[str, str], Awaitable[None]] | None = None
        """Told the client and the request of every result that has arrived."""
        self._clock = clock
        self._log = bus.clients
        self._metrics = metrics
        self._streams: dict[str, Stream] = {}
        """The newest stream of each client."""
        self._open: set[Stream] = set()
        self._newer: OrderedDict[str, int] = OrderedDict()
        """Generations of clients elsewhere, as they were told lately."""
        self._left = asyncio.Event()
        self._later: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self.watches = Watches(upstream, self._streams)
        self.wheel = Wheel(
            bus=bus,
            clock=clock,
            presence=self.presence,
            pace=self.pace,
            streams=self._open,
            still=self._lasts,
        )

    def loops(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What is to run as long as the gateway does, by name."""
        return {
            "hub.wheel": self.wheel.turn,
            "hub.presence": self.wheel.keep,
            "hub.replicas": lambda: self.replicas.listen(self._heard),
        }

    # ----------------------------------------------------------------- what is told to clients

    async def send(
        self, client_id: str, frame: bytes, msg_id: str, owner: tuple[str, str] | None = None
    ) -> bool:
        """Keep a message for a client; whether it is connected somewhere.

        What is somebody's own is not kept for a client that is another one's by now.
        """
        here = self._streams.get(client_id)
        known = await self.presence.of(client_id) if here is None else here.present
        if owner is not None and known is not None and known.owner != owner:
            return False
        await self._log.append(client_id, frame, msg_id)
        return here is not None or (known is not None and await self.presence.is_live(known))

    async def again(self, stream: Stream, frame: bytes, msg_id: str) -> int:
        """Tell a result once more; its place in the log, or 0 when it is told already.

        Under its own id it is kept once, whoever else just ends the request; a log that has
        forgotten it under that id gets it under another one.
        """
        seq = await self._log.append(stream.client_id, frame, msg_id)
        if seq or stream.has_told(frames.request_of(frame)):
            return seq
        return await self._log.append(stream.client_id, frame, f"{msg_id}/{stream.generation}")

    async def clients_of(self, *, session_id: str = "", user_id: str = "") -> list[str]:
        """The clients of a session, or of somebody, connected or remembered."""
        return await self.presence.clients_of(session_id=session_id, user_id=user_id)

    async def owns(self, person: Person, client_id: str) -> bool:
        """Whether a client is somebody's own, connected or remembered."""
        here = self._streams.get(client_id)
        if here is not None:
            return here.person.owner == person.owner
        known = await self.presence.of(client_id) if is_client_id(client_id) else None
        return known is not None and known.owner == person.owner

    async def acknowledge(self, person: Person, event_id: str, client_id: str = "") -> None:
        """A client says what it has."""
        here = self._acknowledged(person.user_id, event_id, client_id)
        if here is None:
            word = Acknowledged(client_id=client_id, user_id=person.user_id, event_id=event_id)
            await self.replicas.tell(word)
            return
        await self._pass_on(*here)

    async def watch(
        self, person: Person, client_id: str, runs: Sequence[str], channels: Sequence[str]
    ) -> list[str]:
        """Tell a client of runs that somebody may see; which these are."""
        await self._must_own(person, client_id)
        self.watches.must_fit(client_id, runs)
        await self.watches.must_see(person, runs)
        if client_id in self._streams:
            self.watches.add(client_id, runs, channels)
        else:
            await self.replicas.tell(
                Watch(
                    client_id=client_id,
                    user_id=person.user_id,
                    execution_ids=tuple(runs),
                    channels=tuple(channels),
                )
            )
        return list(runs)

    async def unwatch(
        self, person: Person, client_id: str, runs: Sequence[str], channels: Sequence[str]
    ) -> list[str]:
        """Tell a client of these runs no more; of which it is still told."""
        await self._must_own(person, client_id)
        if client_id in self._streams:
            self.watches.remove(client_id, runs, channels)
            return self.watches.of(client_id)
        await self.replicas.tell(
            Unwatch(
                client_id=client_id,
                user_id=person.user_id,
                execution_ids=tuple(runs),
                channels=tuple(channels),
            )
        )
        return []

    # --------------------------------------------------------------------- a stream's life

    async def open(
        self, person: Person, client_id: str, last_event_id: str, transport: str, wire: Wire
    ) -> Stream:
        """A stream of a client, at the place where it was; give it back with `close`.

        Without an id of its own the client gets one.
        """
        if self._is_draining:
            raise Draining("the gateway is stopping", hint="another one takes it")
        is_new = not client_id
        client_id = client_id or random_uuid()
        epoch = await self._log.epoch()
        known, now, revision = await self.presence.claim(person, client_id)
        stream = Stream(
            person=person,
            client_id=client_id,
            transport=transport,
            epoch=epoch,
            log=self._log,
            wire=wire,
            timing=self.wheel.timing(person),
            metrics=self._metrics,
        )
        stream.present, stream.revision = now, revision
        self._open.add(stream)
        self._metrics.connected(transport, 1)
        try:
            await self._seat(stream, known)
            if known is None and not is_new:
                await self._log.forget(client_id)  # whoever had this id before is somebody else
                stream.epoch = await self._log.epoch()  # all that was known may be lost
            await stream.ears.enter_async_context(self._log.hear(client_id, stream.hear))
            await self._recover(stream, known, last_event_id)
        except BaseException:
            await self.close(stream)
            raise
        stream.is_new = is_new
        stream.is_lost = stream.is_lost or (known is None and not is_new)
        return stream

    def beside(self, stream: Stream, work: Coroutine[None, None, None]) -> None:
        """Do something until it is done or the stream is closed."""
        stream.ears.push_async_callback(_stopped, self._do(work))

    @asynccontextmanager
    async def line(self, person: Person) -> AsyncIterator[Stream]:
        """A stream of one call that waits for its own run, as frames.

        Its client is known here alone and counts for no limit; whichever gateway hears of the run
        finds it by its log.
        """
        stream = Stream(
            person=person,
            client_id=random_uuid(),
            transport="mcp",
            epoch=await self._log.epoch(),
            log=self._log,
            wire=lambda frame, _: frame,
            timing=self.wheel.timing(person),
            metrics=self._metrics,
        )
        stream.present = self.presence.here(person)
        stream.begin(0, (), has_more=False)
        self._streams[stream.client_id] = stream
        try:
            async with self._log.hear(stream.client_id, stream.hear):
                yield stream
        finally:
            del self._streams[stream.client_id]

    async def close(self, stream: Stream) -> None:
        """A connection has ended; one that was superseded changes nothing."""
        if stream not in self._open:
            return
        self._open.discard(stream)
        self._metrics.connected(stream.transport, -1)
        self._left.set()
        stream.finish(Ending("gone"))
        await stream.ears.aclose()
        if self._streams.get(stream.client_id) is not stream:
            return
        del self._streams[stream.client_id]
        self.watches.forget(stream.client_id)
        try:
            async with asyncio.timeout(CALL_S):
                await self.presence.leave(
                    stream.person, stream.client_id, stream.present, stream.revision
                )
        except (BusGone, TimeoutError):
            _log.warning("that a client has left could not be told")

    def close_session(self, session_id: str, reason: str) -> None:
        """End the streams of a session that are here."""
        for stream in list(self._open):
            if stream.person.session_id == session_id:
                stream.finish(closed(reason))

    async def drain(self, seconds: float = DRAIN_S) -> None:
        """End every stream, little by little, so that not all come back at once."""
        self._is_draining = True
        streams = list(self._open)
        for number, stream in enumerate(streams):
            retry_ms = random.randint(*_RETRY_MS)  # noqa: S311 - spreads load, hides nothing
            frame = frames.closing(frames.DRAINING, "draining", retry=retry_ms)
            stream.finish(Ending("draining", GOING_AWAY, frame, retry_ms))
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(seconds * _AT_ONCE / len(streams))
        with suppress(TimeoutError):
            async with asyncio.timeout(CALL_S):
                while self._open:
                    self._left.clear()
                    await self._left.wait()
        for stream in list(self._open):
            stream.cut()
        with suppress(BusGone, TimeoutError):
            async with asyncio.timeout(CALL_S):
                await self.presence.stop()

    @property
    def count(self) -> int:
        """How many streams there are."""
        return len(self._open)

    # ------------------------------------------------------------------------------ inside

    async def _seat(self, stream: Stream, known: Present | None) -> None:
        """Make a stream the one of its client; whoever was it before is told."""
        generation = stream.generation
        older = self._streams.get(stream.client_id)
        newest = max(0 if older is None else older.generation, self._newer.get(stream.client_id, 0))
        if newest > generation:
            stream.finish(superseded())
            return
        self._streams[stream.client_id] = stream
        if older is not None:
            self.watches.forget(stream.client_id)
            older.finish(superseded())
        if known is not None and known.replica not in {"", self.presence.replica}:
            word = Superseded(client_id=stream.client_id, generation=generation)
            await self.replicas.tell(word)

    async def _recover(self, stream: Stream, known: Present | None, last_event_id: str) -> None:
        """Go on where the client was: behind its last event, or with all that it was ever told.

        A client that names no event has had none, or would have kept its id.
        """
        epoch, _, digits = last_event_id.rpartition("-")
        place = int(digits) if epoch == stream.epoch and is_sequence(digits) else None
        is_whole = False
        if known is not None and (place is not None or not last_event_id):
            history = await self._log.after(stream.client_id, place or 0, PAGE)
            is_whole = history.is_whole or place is None
            if is_whole:
                has_more = len(history.messages) >= PAGE
                stream.begin(place or 0, history.messages, has_more=has_more)
        if last_event_id:
            stream.recovery = Recovery(last_event_id, recovered=is_whole)
            self._metrics.replay.inc("recovered" if is_whole else "lost")
            if not is_whole:
                stream.is_lost = True
                await self._rest(stream, place or 0)
        elif known is None:
            stream.begin(0, (), has_more=False)

    async def _rest(self, stream: Stream, place: int) -> None:
        """Go on with what is left of a log that is not whole: nothing of it is told again."""
        left = (await self._log.after(stream.client_id, 0)).messages
        fresh = [one for one in left if one.seq > place]
        if fresh:
            stream.begin(fresh[0].seq - 1, fresh, has_more=False)
        else:
            stream.begin(left[-1].seq if left else 0, (), has_more=False)

    def _heard(self, word: AnyWord) -> None:
        """What another gateway tells, or this one itself."""
        stream = self._streams.get(word.client_id)
        if isinstance(word, Superseded):
            self._newer[word.client_id] = word.generation
            self._newer.move_to_end(word.client_id)
            if len(self._newer) > MOST_NEWER:
                self._newer.popitem(last=False)
            if stream is not None and stream.generation < word.generation:
                stream.finish(superseded())
            return
        if isinstance(word, Acknowledged):
            here = self._acknowledged(word.user_id, word.event_id, word.client_id)
            if here is not None:
                self._do(self._pass_on(*here))
            return
        if stream is None or stream.person.user_id != word.user_id:
            return
        if isinstance(word, Watch):
            with suppress(Unacceptable):  # who asked for it elsewhere could not count
                self.watches.must_fit(word.client_id, word.execution_ids)
                self.watches.add(word.client_id, word.execution_ids, word.channels)
        else:
            self.watches.remove(word.client_id, word.execution_ids, word.channels)

    def _acknowledged(
        self, user_id: str, event_id: str, client_id: str
    ) -> tuple[str, list[str]] | None:
        """Whose results of ours somebody has; none when the stream is not here."""
        epoch, _, digits = event_id.rpartition("-")
        if not is_sequence(digits):
            return None
        streams = [self._streams.get(client_id)] if client_id else list(self._streams.values())
        for stream in streams:
            if stream is None or stream.person.user_id != user_id or stream.epoch != epoch:
                continue
            if client_id or stream.was_told(int(digits)):
                return stream.client_id, stream.acknowledged(int(digits))
        return None

    async def _pass_on(self, client_id: str, request_ids: list[str]) -> None:
        for request_id in request_ids:
            if self.on_acknowledged is not None:
                await self.on_acknowledged(client_id, request_id)

    async def _must_own(self, person: Person, client_id: str) -> None:
        if not await self.owns(person, client_id):
            raise ClientNotYours("the client belongs to somebody else, or is not known")

    async def _lasts(self, person: Person) -> Person:
        return person if self.still is None else await self.still(person)

    def _do(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Finish something that nobody waits for."""
        task = asyncio.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)
        return task


async def _stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def is_sequence(digits: str) -> bool:
    """Whether a text is the sequence of a message."""
    return digits.isascii() and digits.isdigit() and len(digits) < len(str(1 << 63))
