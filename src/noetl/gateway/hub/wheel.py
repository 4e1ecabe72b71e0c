"""What is done to every stream from time to time: one wheel turns for all of them.

No stream has a timer of its own. What asks the bus is done beside the wheel, a little at a time.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from noetl.bus.base import BusGone
from noetl.bus.keys import KeyChanged
from noetl.edge.moments import seconds_until
from noetl.errors import NoetlError
from noetl.gateway import frames
from noetl.gateway.hub.presence import RENEW_S
from noetl.gateway.hub.stream import (
    GOING_AWAY,
    NO_SESSION,
    SUPERSEDED,
    TRY_AGAIN,
    Ending,
    Timing,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from noetl.bus.gateway import GatewayBus, MemoryGatewayBus
    from noetl.clock import Clock
    from noetl.gateway.hub.presence import Presence
    from noetl.gateway.hub.stream import Stream
    from noetl.gateway.person import Person

TURN_S: Final = 1.0
"""How often the wheel turns."""
COMMENT_S: Final = 15.0
STUCK_S: Final = 30.0
WARN_S: Final = 60.0
"""How long before its end a session is said to expire."""
LAST_LOOK_S: Final = 5.0
"""How long before its end it is looked whether a session was made longer."""
BEAT_S: Final = 10.0
_SPREAD: Final = 0.1
_REFUSED: Final = (401, 403)
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How often clients are told something, and how long a stream lasts."""

    heartbeat_s: float = 30.0
    idle_s: float = 300.0
    lifetime_s: float = 4 * 3600.0


class Wheel:
    """Looks after streams."""

    def __init__(  # noqa: PLR0913 - what it looks at, each a thing of its own
        self,
        *,
        bus: GatewayBus | MemoryGatewayBus,
        clock: Clock,
        presence: Presence,
        pace: Pace,
        streams: Collection[Stream],
        still: Callable[[Person], Awaitable[Person]],
    ) -> None:
        self._bus = bus
        self._clock = clock
        self._presence = presence
        self._pace = pace
        self._streams = streams
        self._still = still
        self._connections = bus.connections
        self._beat_at = 0.0

    def timing(self, person: Person) -> Timing:
        """When what is to be done to a new stream."""
        now, pace = self._clock.monotonic(), self._pace
        spread = random.uniform(1 - _SPREAD, 1 + _SPREAD)  # noqa: S311 - spreads load, hides nothing
        return Timing(
            ping_at=now + pace.heartbeat_s,
            comment_at=now + COMMENT_S,
            look_at=now + RENEW_S * spread,
            ends_at=now + pace.lifetime_s * spread,
            expires_at=self._end_of(person),
            heard_at=now,
        )

    def _end_of(self, person: Person) -> float | None:
        """When somebody's session ends; none: never."""
        if person.expires_at is None:
            return None
        return self._clock.monotonic() + seconds_until(self._clock, person.expires_at)

    async def turn(self) -> None:
        """The loop that tells streams what time it is."""
        while True:
            await asyncio.sleep(TURN_S)
            now = self._clock.monotonic()
            is_there = self._bus.is_connected
            for stream in list(self._streams):
                self.look(stream, now)
                if is_there and stream.is_waiting:
                    stream.look()

    def look(self, stream: Stream, now: float) -> None:
        """Do what it is time for."""
        timing, pace = stream.timing, self._pace
        if stream.writing_since is not None and now - stream.writing_since >= STUCK_S:
            stream.cut()
        if stream.ending is not None:
            return
        if timing.expires_at is not None and now >= timing.expires_at - WARN_S:
            self._expire(stream, now)
        if now >= timing.ends_at:
            stream.finish(Ending("lifetime", GOING_AWAY))
        elif stream.transport == "ws" and now - timing.heard_at >= pace.idle_s:
            stream.finish(Ending("idle", GOING_AWAY))
        if now >= timing.ping_at:
            timing.ping_at = now + pace.heartbeat_s
            stream.tell(PING)
        if now >= timing.comment_at and stream.transport == "sse":
            timing.comment_at = now + COMMENT_S
            stream.put(frames.COMMENT)

    @staticmethod
    def _expire(stream: Stream, now: float) -> None:
        timing = stream.timing
        if timing.expires_at is not None and now >= timing.expires_at:
            stream.finish(closed("expired"))
        elif timing.expires_at is not None and not timing.is_warned:
            timing.is_warned = True
            timing.look_at = min(timing.look_at, timing.expires_at - LAST_LOOK_S)
            at = stream.person.expires_at
            stream.tell(frames.closing(frames.EXPIRING, "expires", expiresAt=at))

    async def keep(self) -> None:
        """The loop that asks the bus: whether we are there, and each client still ours."""
        while True:
            await self.beat()
            await asyncio.sleep(TURN_S)

    async def beat(self) -> None:
        """One round of it."""
        if not self._bus.is_connected:
            return
        now = self._clock.monotonic()
        try:
            is_anew = await self._is_anew()
            if now >= self._beat_at or is_anew:
                self._beat_at = now + BEAT_S
                await self._presence.beat()
            for stream in list(self._streams):
                if is_anew or now >= stream.timing.look_at:
                    stream.timing.look_at = now + RENEW_S
                    await self._renew(stream)
        except BusGone:
            _log.info("the bus went away while clients were looked after")

    async def _is_anew(self) -> bool:
        """Whether there is another connection: something may have been missed, or all lost."""
        count = self._bus.connections
        if count == self._connections:
            return False
        epoch = await self._bus.clients.epoch()
        self._connections = count
        for stream in list(self._streams):
            if stream.epoch == epoch:
                stream.look()
            else:
                # Its log is gone: the client comes back and is told so.
                stream.finish(Ending("history_lost", TRY_AGAIN))
        return True

    async def _renew(self, stream: Stream) -> None:
        """Look whether a client is still this stream's, and its session still lasts."""
        if stream.ending is not None:
            return
        try:
            stream.revision = await self._presence.renew(
                stream.person, stream.client_id, stream.present, stream.revision
            )
            self._goes_on(stream, await self._still(stream.person))
        except KeyChanged:
            stream.finish(superseded())
        except BusGone:
            raise
        except NoetlError as refusal:
            if refusal.status in _REFUSED and not refusal.retryable:
                stream.finish(closed("invalid"))

    def _goes_on(self, stream: Stream, person: Person) -> None:
        """A session may have been made longer since it was looked at."""
        if person.expires_at != stream.person.expires_at:
            stream.timing.expires_at = self._end_of(person)
            stream.timing.is_warned = False
        stream.person = person


PING: Final = frames.ping()


def closed(reason: str) -> Ending:
    """The end of a session."""
    return Ending(reason, NO_SESSION, frames.closing(frames.CLOSED, reason))


def superseded() -> Ending:
    """A newer connection of the same client."""
    reason = "superseded"
    return Ending(reason, SUPERSEDED, frames.closing(frames.SUPERSEDED, reason))
