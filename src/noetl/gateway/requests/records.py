"""The records of requests in their bucket: made, found and changed, always by comparing first."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from noetl.bus.base import BusGone
from noetl.bus.keys import KeyChanged
from noetl.clock import rfc3339
from noetl.gateway.errors import UpstreamUnavailable
from noetl.gateway.requests import record as rec
from noetl.gateway.requests.record import Record

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable

    from noetl.bus.keys import Keys
    from noetl.clock import Clock
    from noetl.gateway.metrics import GatewayMetrics

T = TypeVar("T")

MOST_KNOWN: Final = 10_000
"""Records that a replica remembers, so that it need not read what it has just written."""
MOST_TRIES: Final = 20
TOGETHER: Final = 64
"""Records of a list that are read at the same time."""
_BUCKET: Final = "requests"
_OWED: Final = b"1"
_decode: Final = msgspec.json.Decoder(Record).decode
_encode: Final = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Kept:
    """A record and the revision that it had; 0: it is to be read again before it is changed."""

    record: Record
    revision: int


class Records:
    """The bucket `requests`."""

    def __init__(self, keys: Keys, clock: Clock, metrics: GatewayMetrics, ttl_s: float) -> None:
        self.keys = keys
        self.clock = clock
        self._metrics = metrics
        self._ttl_s = ttl_s
        self._known: OrderedDict[str, Kept] = OrderedDict()

    def now(self) -> str:
        """The time, as records tell it."""
        return rfc3339(self.clock.now())

    async def add(self, record: Record) -> Kept:
        """Keep a new request with all its indexes, at once; fails when any of them is not kept."""
        return await self._add(record, rec.index_keys(record))

    async def _add(self, record: Record, indexes: Iterable[str]) -> Kept:
        now = self.clock.now()
        life = rec.index_life_s(record, now, self._ttl_s)
        key, data = rec.key_of(record.request_id), _encode(record)
        revision, *_ = await self._used(
            "create",
            asyncio.gather(
                self.keys.create(key, data, rec.life_s(record, now, self._ttl_s)),
                *(self.keys.put(index, b"", life) for index in indexes),
            ),
        )
        return self._remember(Kept(record, revision))

    async def restore(self, record: Record, *, is_told: bool = True) -> Record:
        """Keep a request again that the bucket has lost; as somebody else has it, if he was first.

        One that ended long ago is kept for those who ask for it, and found by its id alone. Of one
        that has ended since and may not be told, whoever sweeps tells the end.
        """
        kept = await self.find(record.request_id)
        if kept is not None:
            return kept.record
        age_s = (self.clock.now() - rec.moment(record.changed_at)).total_seconds()
        indexes = rec.index_keys(record) if record.is_open or age_s < self._ttl_s else []
        if is_told and not record.is_open:
            indexes = [index for index in indexes if rec.opened(index) is None]
        try:
            await self._add(record, indexes)
        except KeyChanged:
            found = await self.find(record.request_id)
            return record if found is None else found.record
        return record

    async def route(self, request_id: str) -> Record | None:
        """What of a request never changes; the rest may be of a moment ago."""
        known = self._known.get(request_id)
        if known is not None:
            self._known.move_to_end(request_id)
            return known.record
        found = await self.find(request_id)
        return None if found is None else found.record

    async def find(self, request_id: str) -> Kept | None:
        """A request as it is now."""
        if not rec.is_name(request_id):
            return None
        entry = await self._used("get", self.keys.get(rec.key_of(request_id)))
        if entry is None:
            self._forget(request_id)
            return None
        return self._remember(Kept(_decode(entry.value), entry.revision))

    async def change(
        self, request_id: str, step: Callable[[Record], Record | None]
    ) -> tuple[Record, bool] | None:
        """Change a record as it is now; whether it was, and none when there is no such record.

        The first try trusts what this replica remembers: the bucket refuses it when that is old.
        """
        known = self._known.get(request_id)
        kept = known if known is not None and known.revision else await self.find(request_id)
        for _ in range(MOST_TRIES):
            if kept is None:
                return None
            changed = step(kept.record)
            if changed is None:
                if kept is not known:
                    return kept.record, False
                known, kept = None, await self.find(request_id)  # what we remember may be old
                continue
            try:
                return await self._write(changed, kept.revision), True
            except KeyChanged:
                kept = await self.find(request_id)
        raise UpstreamUnavailable("the request is changed by too many at once")

    async def _write(self, record: Record, revision: int) -> Record:
        life = rec.life_s(record, self.clock.now(), self._ttl_s)
        key = rec.key_of(record.request_id)
        new = await self._used("update", self.keys.update(key, _encode(record), revision, life))
        self._remember(Kept(record, new))
        return record

    async def close(self, record: Record) -> None:
        """The end of a request was told, and all that belongs to it is done."""
        await self._used("delete", self.keys.delete(rec.open_key(record)))

    async def opened(self) -> list[tuple[float, str]]:
        """Deadlines and ids of the requests whose end is still to be told."""
        names = await self._used("names", self.keys.names("o"))
        return [found for found in map(rec.opened, names) if found is not None]

    async def is_whole(self) -> bool:
        """Whether the bucket has what it had: one that is new, or was lost, does not say so."""
        return await self._used("get", self.keys.get(rec.WHOLE)) is not None

    async def note_whole(self) -> None:
        """The bucket has all that can be known."""
        await self._used("put", self.keys.put(rec.WHOLE, b""))

    async def forget_open(self, deadline: float, request_id: str) -> None:
        """There is no such request after all."""
        key = f"o.{round(deadline * 1000)}.{request_id}"
        await self._used("delete", self.keys.delete(key))

    async def owe(self, client_id: str) -> None:
        """Note that a client is to be told again what has ended."""
        await self._used("put", self.keys.put(rec.owed_key(client_id), _OWED, self._ttl_s))

    async def owes(self, client_id: str) -> bool:
        """Whether a client was to be told again what has ended, and was not, or not all."""
        found = await self._used("get", self.keys.get(rec.owed_key(client_id)))
        return found is not None and found.value == _OWED

    async def owe_nothing(self, client_id: str) -> None:
        """A client was told all; said, not deleted: a broker that is killed brings keys back."""
        await self._used("put", self.keys.put(rec.owed_key(client_id), b"", self._ttl_s))

    async def below(self, prefix: str, *, is_ascending: bool = False) -> AsyncGenerator[Record]:
        """The requests that an index lists, newest first or last; as many as are asked for."""
        names = await self._used("names", self.keys.names(prefix))
        ids = [each for _, each in sorted(map(rec.indexed, names), reverse=not is_ascending)]
        for start in range(0, len(ids), TOGETHER):
            for kept in await asyncio.gather(*map(self.find, ids[start : start + TOGETHER])):
                if kept is not None:
                    yield kept.record

    async def _used(self, operation: str, call: Awaitable[T]) -> T:
        """A use of the bucket, counted when it fails."""
        try:
            return await call
        except BusGone:
            self._metrics.kv_errors.inc(_BUCKET, operation)
            raise

    def _remember(self, kept: Kept) -> Kept:
        record = kept.record
        self._forget(record.request_id)
        if not record.is_open:  # what is left to do with it needs no value
            slim = msgspec.structs.replace(record, result=None, late_result=None)
            self._known[record.request_id] = Kept(slim, 0)
        else:
            self._known[record.request_id] = kept
        self._count(record, 1)
        if len(self._known) > MOST_KNOWN:
            _, oldest = self._known.popitem(last=False)
            self._count(oldest.record, -1)
        return kept

    def _forget(self, request_id: str) -> None:
        known = self._known.pop(request_id, None)
        if known is not None:
            self._count(known.record, -1)

    def _count(self, record: Record, by: int) -> None:
        gauge = self._metrics.requests
        gauge.set(gauge.value(record.state) + by, record.state)
