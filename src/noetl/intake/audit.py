"""What happened to a subscription, told to the server in order and once each, sooner or later.

Every event has an id of its own from the start, so that telling it twice stores it once. That of a
message in the spool is its place there, so that whoever finds it may tell of it, too. While the
server is away events lie in the spool, or, without one, in memory as far as there is room.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from noetl.api.events import MOST_EVENTS, Report, Reports
from noetl.api.http import NoAnswer
from noetl.api.problems import Refused
from noetl.blobs.spool.base import SpoolError
from noetl.blobs.spool.dead import DEAD_LETTERED
from noetl.blobs.spool.spool import SPOOLED
from noetl.clock import rfc3339
from noetl.errors import NoetlError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noetl.api.client import Client
    from noetl.blobs.spool.base import SpoolStore
    from noetl.clock import Clock
    from noetl.ids import Ids
    from noetl.intake.metrics import IntakeMetrics

MOST_KEPT: Final = 10_000
SHELVED_AT_ONCE: Final = 1_000
LONGEST_PAUSE_S: Final = 30.0
ASIDE: Final = "unreadable"
"""The folder, beside events that wait, of those that nobody can read."""
_MESSAGES: Final = "subscription.message."
_SENSELESS: Final = frozenset({400, 413, 422})
_encode: Final = msgspec.json.Encoder().encode
_log: Final = logging.getLogger(__name__)
_decoder: Final = msgspec.json.Decoder(tuple[Report, ...])


class NotTold(NoetlError):
    """Nobody takes events now."""

    code = "audit_not_told"


class Poster(Protocol):
    """Takes events: a server, or a file."""

    async def post(self, events: Sequence[Report]) -> int:
        """Store them in their order; how many will never be stored. `NotTold`: try again."""


class ServerPoster:
    """Tells the server."""

    def __init__(self, client: Client, worker_id: str, pool: str) -> None:
        self._client = client
        self._worker_id = worker_id
        self._pool = pool

    async def post(self, events: Sequence[Report]) -> int:
        """One request; a request that makes no sense is split until the senseless event is out."""
        body = Reports(worker_id=self._worker_id, pool=self._pool, events=tuple(events))
        try:
            told = await self._client.report(body)
        except NoAnswer as fault:
            raise NotTold(fault.message) from fault
        except Refused as fault:
            if fault.problem.status not in _SENSELESS:
                raise NotTold(fault.message) from fault
            if len(events) == 1:
                return 1
            middle = len(events) // 2
            return await self.post(events[:middle]) + await self.post(events[middle:])
        return sum(receipt.outcome == "rejected" for receipt in told.results)


class Shelf:
    """Events that wait in the store of the spool, some to an object."""

    def __init__(self, store: SpoolStore, folder: str) -> None:
        self._store = store
        self._folder = folder

    async def put(self, place: str, events: Sequence[Report]) -> None:
        """Keep some; those of a smaller place are told first."""
        key = f"{self._folder}{int(place):020d}-events.json"
        await self._store.put(key, _encode(tuple(events)))

    async def oldest(self) -> str | None:
        """The key of those that have waited longest."""
        found = await self._store.list(self._folder, limit=1)
        return found[0].key if found else None

    async def read(self, key: str) -> tuple[Report, ...] | None:
        """What lies there; none when nobody can read it."""
        data = await self._store.get(key)
        try:
            return () if data is None else _decoder.decode(data)
        except msgspec.MsgspecError:
            return None

    async def put_aside(self, key: str) -> str:
        """Keep what nobody can read where it is in nobody's way; its new key."""
        aside = f"{self._folder}{ASIDE}/{key.removeprefix(self._folder)}"
        data = await self._store.get(key)
        if data is not None:
            await self._store.put(aside, data)
        await self._store.delete(key)
        return aside

    async def delete(self, key: str) -> None:
        """They were told."""
        await self._store.delete(key)


class Audit:
    """The events of one subscription on their way to its stream."""

    def __init__(  # noqa: PLR0913 - its parts, met in one place
        self,
        subscription_id: str,
        path: str,
        *,
        ids: Ids,
        clock: Clock,
        poster: Poster,
        metrics: IntakeMetrics,
        shelf: Shelf | None = None,
        most: int = MOST_KEPT,
    ) -> None:
        self._subscription_id = subscription_id
        self._path = path
        self._ids = ids
        self._clock = clock
        self._poster = poster
        self._metrics = metrics
        self._shelf = shelf
        self._most = most
        self._kept: dict[str, Report] = {}
        self._messages: deque[str] = deque()
        self._may_be_shelved = shelf is not None
        self._came = asyncio.Event()
        self._turn = asyncio.Lock()

    def tell(self, event_type: str, fields: dict[str, Any]) -> None:
        """Something happened."""
        counter = {SPOOLED: self._metrics.spooled, DEAD_LETTERED: self._metrics.dead}
        if event_type in counter:
            counter[event_type].inc(self._path, fields["reason"])
        self.tell_again(event_type, fields, rfc3339(self._clock.now()))

    def tell_again(self, event_type: str, fields: dict[str, Any], at: str) -> None:
        """Something happened, which somebody may have told before; it is not counted.

        The id of a message in the spool is that of its place there, whoever tells of it.
        """
        event_id = str(fields["recv_seq"]) if event_type == SPOOLED else self._ids.new()
        self._kept[event_id] = Report(
            execution_id=self._subscription_id,
            event_id=event_id,
            event_type=event_type,
            created_at=at,
            payload=fields,
        )
        if event_type.startswith(_MESSAGES):
            self._messages.append(event_id)
        if len(self._kept) > self._most:
            self._drop_one()
        self._came.set()

    async def run(self) -> None:
        """Tell what comes, until cancelled."""
        pause = 0.0
        while True:
            await self._came.wait()
            self._came.clear()
            if await self.flush():
                pause = 0.0
                continue
            pause = min(max(1.0, pause * 2), LONGEST_PAUSE_S)
            await asyncio.sleep(pause)
            self._came.set()

    async def flush(self) -> bool:
        """Tell everything now; what nobody takes waits. Whether all was told."""
        async with self._turn:
            try:
                await self._empty_shelf()
                while self._kept:
                    await self._post(tuple(self._kept.values())[:MOST_EVENTS])
            except NotTold:
                await self._shelve()
                return False
            except SpoolError:
                return False
            return True

    async def _empty_shelf(self) -> None:
        shelf = self._shelf
        while shelf is not None and self._may_be_shelved:
            key = await shelf.oldest()
            if key is None:
                self._may_be_shelved = False
                return
            events = await shelf.read(key)
            if events is None:
                about = {"path": self._path, "key": await shelf.put_aside(key)}
                _log.error("events that wait cannot be read", extra=about)
                self._lost(1)
                continue
            for first in range(0, len(events), MOST_EVENTS):
                self._lost(await self._poster.post(events[first : first + MOST_EVENTS]))
            await shelf.delete(key)

    async def _post(self, events: tuple[Report, ...]) -> None:
        self._lost(await self._poster.post(events))
        self._forget(events)

    async def _shelve(self) -> None:
        """Put what is in memory behind what lies in the store already."""
        shelf = self._shelf
        while shelf is not None and self._kept:
            events = tuple(self._kept.values())[:SHELVED_AT_ONCE]
            self._may_be_shelved = True
            try:
                await shelf.put(self._ids.new(), events)
            except SpoolError:
                return
            self._forget(events)

    def _forget(self, events: tuple[Report, ...]) -> None:
        for event in events:
            self._kept.pop(str(event.event_id), None)
        while self._messages and self._messages[0] not in self._kept:
            self._messages.popleft()

    def _drop_one(self) -> None:
        """Make room: the oldest of a message, else the oldest."""
        while self._messages:
            event_id = self._messages.popleft()
            if self._kept.pop(event_id, None) is not None:
                break
        else:
            del self._kept[next(iter(self._kept))]
        self._lost(1)

    def _lost(self, count: int) -> None:
        if count:
            self._metrics.audit_dropped.inc(self._path, by=count)
