"""The events of one run: the newest as they are, older ones packed.

A loop of 100,000 items writes 700,000 events; as objects they would need half a gigabyte, packed
they need a twentieth of it. An id is looked for in the packs whose range it falls in: ids grow
with time, so that is nearly always none or one.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from noetl.engine.events import Recorded
from noetl.store.ranked import age

if TYPE_CHECKING:
    from collections.abc import Sequence

PACK_EVENTS: Final = 512
_FASTEST: Final = 1
_encoder: Final = msgspec.json.Encoder()
_decoder: Final = msgspec.json.Decoder(list[Recorded])


class _Pack:
    """Events that follow each other, as compressed text, and their ids."""

    __slots__ = ("_data", "_plain", "ids", "newest", "newest_before", "oldest")

    def __init__(self, events: Sequence[Recorded], newest_before: tuple[int, str]) -> None:
        ranks = [age(event.event_id) for event in events]
        self.oldest, self.newest = min(ranks), max(ranks)
        self.newest_before = newest_before
        self.ids = "\n".join(["", *(event.event_id for event in events), ""]).encode()
        self._data, self._plain = b"", list(events)
        # A value that JSON cannot say is kept as it is: a commit that has begun must not fail.
        with suppress(TypeError, ValueError, OverflowError, RecursionError):
            self._data, self._plain = zlib.compress(_encoder.encode(events), _FASTEST), []

    def place_of(self, event_id: str, rank: tuple[int, str]) -> int | None:
        if not self.oldest <= rank <= self.newest:
            return None
        at = self.ids.find(f"\n{event_id}\n".encode())
        return None if at < 0 else self.ids.count(b"\n", 0, at)

    def events(self) -> list[Recorded]:
        return self._plain or _decoder.decode(zlib.decompress(self._data))


class Journal:
    """Append, read in order, find by id."""

    __slots__ = ("_fresh", "_newest", "_packs", "is_ended")

    def __init__(self) -> None:
        self._packs: list[_Pack] = []
        self._fresh: dict[str, Recorded] = {}
        self._newest = (0, "")
        self.is_ended = False

    @property
    def last_seq(self) -> int:
        """How many events there are: `seq` has no gaps."""
        return len(self._packs) * PACK_EVENTS + len(self._fresh)

    def append(self, events: Sequence[Recorded]) -> None:
        """Add events that follow the last one."""
        for event in events:
            self._fresh[event.event_id] = event
            if len(self._fresh) == PACK_EVENTS:
                pack = _Pack(list(self._fresh.values()), self._newest)
                self._packs.append(pack)
                self._newest = max(self._newest, pack.newest)
                self._fresh = {}

    def has(self, event_id: str) -> bool:
        """Whether an event of that id is stored."""
        return event_id in self._fresh or self._packed(event_id) is not None

    def find(self, event_id: str) -> Recorded | None:
        """The event of that id."""
        if event_id in self._fresh:
            return self._fresh[event_id]
        found = self._packed(event_id)
        return None if found is None else found[0].events()[found[1]]

    def read(self, after: int, limit: int) -> list[Recorded]:
        """Events behind a `seq`, unpacking no more than is asked for."""
        start, end = max(after, 0), min(max(after, 0) + max(limit, 0), self.last_seq)
        found: list[Recorded] = []
        while start < end and start < len(self._packs) * PACK_EVENTS:
            number, offset = divmod(start, PACK_EVENTS)
            part = self._packs[number].events()[offset : offset + end - start]
            found += part
            start += len(part)
        if start < end:
            offset = start - len(self._packs) * PACK_EVENTS
            found += list(self._fresh.values())[offset : offset + end - start]
        return found

    def _packed(self, event_id: str) -> tuple[_Pack, int] | None:
        rank = age(event_id)
        if rank > self._newest:
            return None
        for pack in reversed(self._packs):
            place = pack.place_of(event_id, rank)
            if place is not None:
                return pack, place
            if rank > pack.newest_before:
                break
        return None
