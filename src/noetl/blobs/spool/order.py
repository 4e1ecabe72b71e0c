"""Which message comes next: waiting messages in lanes, each lane in receive order.

Pure, and small: of a message there is its place, its id and its size, some 200 bytes in all,
however many wait. One lane is worked on by one at a time; what failed waits for the next pass.
"""

from __future__ import annotations

import struct
from bisect import insort
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

GLOBAL: Final = "global"
PER_KEY: Final = "per_key"
NONE: Final = "none"
LONGEST_LANE: Final = 64
"""A longer name of a lane is replaced by its digest."""
_HEAD: Final = struct.Struct(">QIH")
_Heap = list[tuple[bytes, str]]
"""Heads of lanes with the names of those; some are of the past."""
_FEW: Final = 64
_PLACE: Final = slice(21, -5)
"""Where the id of a message stands in its file name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A waiting message without its content."""

    seq: int
    name: str
    """Its file name."""
    downstream: str
    lane: str
    size: int


class _Lane:
    """Packed entries in order; those before `first` are gone."""

    __slots__ = ("entries", "first", "taken")

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.first = 0
        self.taken = 0
        """How many of it somebody works on."""

    @property
    def head(self) -> bytes | None:
        return self.entries[self.first] if self.first < len(self.entries) else None

    def add(self, packed: bytes) -> None:
        if not self.entries or packed > self.entries[-1]:
            self.entries.append(packed)
        else:
            insort(self.entries, packed, lo=self.first)

    def pop(self) -> None:
        self.first += 1
        if self.first > _FEW and self.first * 2 > len(self.entries):
            del self.entries[: self.first]
            self.first = 0

    def prune(self, gone: set[int]) -> list[bytes]:
        """Forget those whose place is in a set; what was forgotten."""
        live = self.entries[self.first :]
        lost = [packed for packed in live if _seq(packed) in gone]
        if lost:
            self.entries = [packed for packed in live if _seq(packed) not in gone]
            self.first = 0
        return lost


class Order:
    """The waiting messages of one subscription."""

    def __init__(self, ordering: str = PER_KEY) -> None:
        self.size_bytes = 0
        self._ordering = ordering
        self._lanes: dict[str, _Lane] = {}
        self._known: set[int] = set()
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._counts: Counter[str] = Counter()
        self._ready: dict[str, _Heap] = {}
        self._ages: _Heap = []
        self._aside: _Heap = []
        self._arriving: dict[str, list[int]] = {}
        self._released: set[int] = set()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._known)

    def __contains__(self, seq: int) -> bool:
        """Whether the message of a place waits."""
        return seq in self._known

    def count(self, downstream: str) -> int:
        """How many wait for it."""
        return self._counts[downstream]

    def has_lane(self, downstream: str, lane: str) -> bool:
        """Whether messages wait in a lane, so that the next one has to wait behind them."""
        name = self._lane_name(downstream, lane)
        return self._ordering != NONE and (name in self._lanes or name in self._arriving)

    def expect(self, entry: Entry) -> None:
        """A message is on its way to the store; what came after it does not pass it."""
        name = self._lane_name(entry.downstream, entry.lane)
        self._arriving.setdefault(name, []).append(entry.seq)

    def arrived(self, entry: Entry, *, is_there: bool) -> None:
        """A message is in the store, and waits from now on; or it did not get there."""
        name = self._lane_name(entry.downstream, entry.lane)
        left = self._arriving[name]
        left.remove(entry.seq)
        if not left:
            del self._arriving[name]
        if is_there:
            self.add(entry)
        if name in self._lanes:
            self._offer(name)

    def add(self, entry: Entry) -> bool:
        """Let a message wait; false when it does already."""
        if entry.seq in self._known:
            return False
        self._known.add(entry.seq)
        self._counts[entry.downstream] += 1
        self.size_bytes += entry.size
        self._insert(self._packed(entry), self._lane_name(entry.downstream, entry.lane))
        return True

    def take(self, downstreams: Iterable[str]) -> Entry | None:
        """The oldest message of these that is first in a lane nobody works on."""
        best: tuple[bytes, str] | None = None
        for downstream in downstreams:
            ready = self._ready.get(downstream)
            while ready and not self._is_ready(*ready[0]):
                heappop(ready)
            if ready and (best is None or ready[0] < best):
                best = ready[0]
        return None if best is None else self._taken(*best)

    def take_behind(self, entry: Entry) -> Entry | None:
        """The next message of the same lane, for one who has just taken the one before it."""
        name = self._lane_name(entry.downstream, entry.lane)
        lane = self._lanes.get(name)
        head = None if lane is None else lane.head
        if head is None or any(seq < _seq(head) for seq in self._arriving.get(name, ())):
            return None
        return self._taken(head, name)

    def oldest(self) -> Entry | None:
        """The oldest message that nobody works on."""
        while self._ages and not self._is_head(*self._ages[0]):
            heappop(self._ages)
        found = [heap[0] for heap in (self._ages, self._aside) if heap]
        return self._entry(*min(found)) if found else None

    def take_oldest(self) -> Entry | None:
        """Take the oldest message that nobody works on, whatever it waits for."""
        entry = self.oldest()
        if entry is None:
            return None
        if self._aside and _seq(self._aside[0][0]) == entry.seq:
            heappop(self._aside)  # its lane counts it as taken already
            return entry
        return self._taken(*self._ages[0])

    def settle(self, entry: Entry) -> None:
        """A message that was taken waits no more; the next one of its lane may go."""
        if entry.seq not in self._known:
            return
        self._forget(entry.seq, entry.downstream, entry.size)
        if entry.seq in self._released:
            self._released.discard(entry.seq)
        else:
            self._free(self._lane_name(entry.downstream, entry.lane))

    def release(self, entry: Entry) -> None:
        """A message that was taken is as good as settled: the next one of its lane may go."""
        self._released.add(entry.seq)
        self._free(self._lane_name(entry.downstream, entry.lane))

    def give_back(self, entry: Entry, size: int | None = None) -> None:
        """A message that was taken, and has failed, waits for the next pass; so does its lane."""
        if size is not None:
            self.size_bytes += size - entry.size
            entry = Entry(entry.seq, entry.name, entry.downstream, entry.lane, size)
        name = self._lane_name(entry.downstream, entry.lane)
        if entry.seq in self._released:
            self._released.discard(entry.seq)
            self._lanes.setdefault(name, _Lane()).taken += 1
        heappush(self._aside, (self._packed(entry), name))

    def next_pass(self) -> None:
        """Let what has failed come again."""
        aside, self._aside = self._aside, []
        for packed, name in aside:
            self._insert(packed, name)
            self._free(name)

    def prune(self, gone: set[int]) -> int:
        """Forget messages that lie in the store no more, unless somebody works on them."""
        lost = [one for lane in self._lanes.values() for one in lane.prune(gone)]
        failed = [one for one in self._aside if _seq(one[0]) in gone]
        self._aside = [one for one in self._aside if _seq(one[0]) not in gone]
        heapify(self._aside)
        lost += [packed for packed, _ in failed]
        for packed in lost:
            seq, size, number = _HEAD.unpack_from(packed)
            self._forget(seq, self._names[number], size)
        for _, name in failed:
            self._free(name)
        if lost:
            for name in list(self._lanes):
                self._offer(name)
        return len(lost)

    def seqs(self) -> set[int]:
        """The places of all that wait."""
        return set(self._known)

    def _lane_name(self, downstream: str, lane: str) -> str:
        """Lanes of different downstreams are different lanes, unless there is but one."""
        if self._ordering == GLOBAL:
            return ""
        if self._ordering == NONE:
            return downstream
        if len(lane) > LONGEST_LANE:
            lane = sha256(lane.encode(errors="surrogatepass")).hexdigest()
        return f"{self._number(downstream)}:{lane}"

    def _number(self, downstream: str) -> int:
        number = self._numbers.get(downstream)
        if number is None:
            number = self._numbers[downstream] = len(self._names)
            self._names.append(downstream)
        return number

    def _packed(self, entry: Entry) -> bytes:
        head = _HEAD.pack(entry.seq, entry.size, self._number(entry.downstream))
        return head + entry.name[_PLACE].encode()

    def _entry(self, packed: bytes, lane: str) -> Entry:
        seq, size, number = _HEAD.unpack_from(packed)
        name = f"{seq:020d}-{packed[_HEAD.size :].decode()}.json"
        shown = lane.partition(":")[2] if self._ordering == PER_KEY else ""
        return Entry(seq, name, self._names[number], shown, size)

    def _insert(self, packed: bytes, name: str) -> None:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane()
        lane.add(packed)
        if lane.head is packed:
            self._offer(name)

    def _taken(self, packed: bytes, name: str) -> Entry:
        """Take the head of a lane."""
        lane = self._lanes[name]
        lane.pop()
        lane.taken += 1
        self._offer(name)
        return self._entry(packed, name)

    def _free(self, name: str) -> None:
        """Somebody does no longer work on one of a lane."""
        self._lanes[name].taken -= 1
        self._offer(name)

    def _offer(self, name: str) -> None:
        """Have the head of a lane found, by those who look for work and for what is old."""
        lane = self._lanes[name]
        head = lane.head
        if head is None:
            if not lane.taken:
                del self._lanes[name]
            return
        self._push(self._ages, (head, name))
        if self._is_ready(head, name):
            downstream = self._names[_HEAD.unpack_from(head)[2]]
            self._push(self._ready.setdefault(downstream, []), (head, name))

    def _push(self, heap: _Heap, node: tuple[bytes, str]) -> None:
        """Add to a heap; before it has more of the past in it than of the present, clean it."""
        heappush(heap, node)
        if len(heap) > 2 * len(self._lanes) + _FEW:
            heap[:] = {one for one in heap if self._is_head(*one)}
            heapify(heap)

    def _is_head(self, packed: bytes, name: str) -> bool:
        lane = self._lanes.get(name)
        return lane is not None and lane.head == packed

    def _is_ready(self, packed: bytes, name: str) -> bool:
        lane = self._lanes.get(name)
        if lane is None or lane.head != packed:
            return False
        if self._ordering == NONE:
            return True
        return not lane.taken and all(seq > _seq(packed) for seq in self._arriving.get(name, ()))

    def _forget(self, seq: int, downstream: str, size: int) -> None:
        self._known.discard(seq)
        self._counts[downstream] -= 1
        self.size_bytes -= size


def _seq(packed: bytes) -> int:
    return int.from_bytes(packed[:8], "big")
