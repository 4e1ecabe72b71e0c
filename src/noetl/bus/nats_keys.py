"""A bucket of keys on NATS: each key is the newest message of a subject, with a time to live.

A key that is deleted leaves a mark for a second, which tells whoever watches, and is then purged;
a key whose time is over leaves nothing. So the subjects of the stream are the names of the keys,
and the broker lists those below a prefix without looking at any other.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from math import ceil
from typing import TYPE_CHECKING, Final

from noetl.bus import streams, subjects
from noetl.bus.base import BusGone, Letter
from noetl.bus.keys import Entry, KeyChanged, checked
from noetl.bus.link import is_nobody, status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.msg import Msg

    from noetl.bus.broker import Broker

MOST_TRIES: Final = 10
"""Marks of deleted keys that may be met one after the other."""
_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
_TTL: Final = "Nats-TTL"
_SEQUENCE: Final = "Nats-Sequence"
_OPERATION: Final = "KV-Operation"
_REASON: Final = "Nats-Marker-Reason"
_MISSING: Final = "404"
_CHANGED: Final = frozenset({10071, 10164})
"""The broker has another revision."""


class NatsKeys:
    """One bucket."""

    def __init__(self, broker: Broker, bucket: str) -> None:
        self._broker = broker
        self._bucket = bucket
        self._stream = streams.bucket(bucket).name

    async def get(self, key: str) -> Entry | None:
        """The newest value."""
        msg = await self._newest(checked(key))
        if msg is None or _is_mark(msg):
            return None
        return Entry(key, msg.data, _revision(msg))

    async def put(self, key: str, value: bytes, ttl_s: float | None = None) -> int:
        """Set a key, whatever it was."""
        return await self._set(checked(key), value, _lifetime(ttl_s))

    async def create(self, key: str, value: bytes, ttl_s: float | None = None) -> int:
        """Set a key that is not there."""
        checked(key)
        revision = 0
        for _ in range(MOST_TRIES):
            try:
                return await self.update(key, value, revision, ttl_s)
            except KeyChanged:
                msg = await self._newest(key)
                if msg is not None and not _is_mark(msg):
                    raise
                revision = 0 if msg is None else _revision(msg)
        raise _changed(key)

    async def update(
        self, key: str, value: bytes, revision: int, ttl_s: float | None = None
    ) -> int:
        """Set a key that still has this revision."""
        headers = (*_lifetime(ttl_s), (_EXPECTED, str(revision)))
        return await self._set(checked(key), value, headers)

    async def delete(self, key: str, revision: int | None = None) -> None:
        """Forget a key."""
        headers = (*_lifetime(1.0), (_OPERATION, "DEL"))
        if revision is not None:
            headers = (*headers, (_EXPECTED, str(revision)))
        mark = await self._set(checked(key), b"", headers)
        purge = {"filter": subjects.key(self._bucket, key), "seq": mark + 1}
        with suppress(BusGone):  # the key is deleted, and its mark is gone in a second
            await self._broker.here().call(f"STREAM.PURGE.{self._stream}", purge)

    async def names(self, prefix: str) -> list[str]:
        """The keys below `prefix.`."""
        pattern = subjects.key(self._bucket, f"{checked(prefix)}.>" if prefix else ">")
        start = len(subjects.key(self._bucket, ""))
        found: dict[str, int] = {}
        while True:
            asked = {"subjects_filter": pattern, "offset": len(found)}
            page = await self._broker.info(self._stream, asked)
            more = page["state"].get("subjects") or {}
            found |= more
            if not more or len(found) >= page.get("total", 0):
                return [subject[start:] for subject in found]

    @asynccontextmanager
    async def watch(self, key: str) -> AsyncIterator[AsyncIterator[Entry]]:
        """What a key is set to from now on."""
        subject = subjects.kept_key(self._bucket, checked(key))

        def read(msg: Msg) -> Entry | None:
            if _SEQUENCE not in (msg.headers or {}):
                return None  # not from the bucket
            return Entry(key, b"", 0) if _is_mark(msg) else Entry(key, msg.data, _revision(msg))

        async with self._broker.listen(subject, read) as entries:
            yield entries

    async def _set(self, key: str, value: bytes, headers: tuple[tuple[str, str], ...]) -> int:
        letter = Letter(subjects.key(self._bucket, key), value, "", headers)
        try:
            (ack,) = await self._broker.publish((letter,))
        except streams.ApiFault as fault:
            if fault.err_code in _CHANGED:
                raise _changed(key) from fault
            raise
        return ack.seq

    async def _newest(self, key: str) -> Msg | None:
        """The newest message of a key; a bucket that is missing is made."""
        subject = f"$JS.API.DIRECT.GET.{self._stream}.{subjects.key(self._bucket, key)}"
        link = self._broker.here()
        msg = await link.answered(subject, b"", "for a key")
        if is_nobody(msg):
            await self._broker.repair(link)
            msg = await link.answered(subject, b"", "for a key")
        word = status(msg)
        if word == _MISSING:
            return None
        if word:
            raise BusGone(f"the broker does not tell a key of {self._bucket}: {word}")
        return msg


def _lifetime(ttl_s: float | None) -> tuple[tuple[str, str], ...]:
    """The broker counts whole seconds."""
    return () if ttl_s is None else ((_TTL, str(max(1, ceil(ttl_s)))),)


def _is_mark(msg: Msg) -> bool:
    """Whether a message says that a key is not there."""
    headers = msg.headers or {}
    return _OPERATION in headers or _REASON in headers


def _revision(msg: Msg) -> int:
    return int((msg.headers or {})[_SEQUENCE])


def _changed(key: str) -> KeyChanged:
    return KeyChanged(f"somebody else changed the key {key.partition('.')[0]}")
