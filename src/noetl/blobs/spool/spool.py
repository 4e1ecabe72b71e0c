"""The spool of one subscription: messages that wait, what may wait, and which comes next.

What waits is known by an index without content, so that no message costs a listing. Everything
that happens is told by the name of its event. Nobody else may work on the messages of the spool
at the same time; others may add some.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from noetl.blobs.spool.base import SpoolTaken
from noetl.blobs.spool.dead import DeadLetters
from noetl.blobs.spool.item import Corrupt, Item, parts_of_name
from noetl.blobs.spool.order import Entry, Order
from noetl.blobs.spool.room import Room
from noetl.ids import EPOCH, made_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from noetl.blobs.spool.base import Listed, SpoolStore
    from noetl.blobs.spool.dead import Tell
    from noetl.blobs.spool.rules import Place, Rules
    from noetl.clock import Clock

    Learned = deque[tuple[int, dict[str, Any], str]]
    """Messages that lie in the store: their places, what is told of them, and when they came."""
    TellAgain = Callable[[str, dict[str, Any], str], None]

SPOOLED: Final = "subscription.message.spooled"
RECOVERED: Final = "subscription.spool.recovered"
LOOK_S: Final = 2.0
SWEEP_S: Final = 60.0
CHECK_S: Final = 600.0
LATELY_S: Final = 300.0
"""Whoever stores a message has told of it, or keeps what he tells, well before."""
MOST_LATELY: Final = 10_000
"""More than that nobody has told of that dies: so much fits into memory."""
_PAGE: Final = 1000
_READS: Final = 16
_RECENT: Final = timedelta(minutes=5)
"""How far back one looks for what others have just added."""
_log = logging.getLogger("noetl.spool")


class Spool:
    """Messages that wait, in lanes; `recover` comes first."""

    def __init__(  # noqa: PLR0913, PLR0917 - its parts, met in one place
        self,
        store: SpoolStore,
        place: Place,
        rules: Rules,
        clock: Clock,
        tell: Tell,
        tell_again: TellAgain | None = None,
    ) -> None:
        """`tell` takes the name of an event and what it says; it must not wait.

        `tell_again` takes what somebody who died may not have told, and since when it is true.
        """
        self.place = place
        self.foreign = 0
        """Objects in the folder that are not ours; they are left alone."""
        self.dead_letters = DeadLetters(store, place, tell, self._back)
        self._store = store
        self._rules = rules
        self._clock = clock
        self._tell = tell
        self._tell_again = tell_again
        self._order = Order(rules.ordering)
        self._room = Room(self._order, rules, clock, tell)
        self._done_at = dict.fromkeys((LOOK_S, SWEEP_S, CHECK_S), clock.monotonic())
        self._twice: set[int] = set()
        """Messages that wait and are dead letters too: somebody died while moving them."""

    @property
    def size_bytes(self) -> int:
        """What waits, in bytes."""
        return self._order.size_bytes

    @property
    def oldest_at(self) -> datetime | None:
        """When the oldest message that nobody works on was received."""
        oldest = self._order.oldest()
        return None if oldest is None else made_at(oldest.seq)

    def pending(self, downstream: str | None = None) -> int:
        """How many messages wait, or wait for one downstream."""
        return len(self._order) if downstream is None else self._order.count(downstream)

    def has_lane(self, downstream: str, lane: str) -> bool:
        """Whether messages of a lane wait: a live one has to join them to stay in order."""
        return self._order.has_lane(downstream, lane)

    async def recover(self) -> int:
        """Learn what waits in the store; how many that are.

        Also for one who takes over from another: what that one has done is forgotten.
        """
        await self.dead_letters.count()
        learned: Learned = deque(maxlen=MOST_LATELY)
        await self._scan(learned=learned)
        known = self._order.seqs()
        self._twice = await self.dead_letters.among(known)
        high = max(known, default=0)
        about = {"pending": self.pending(), "recv_seq_high_water": str(high)}
        self._tell(RECOVERED, about | {"backend": self._store.name})
        self._retell(learned)
        return self.pending()

    async def put(self, item: Item) -> bool:
        """Store a message for good; false when it was too large to wait, and is a dead letter.

        `SpoolFull` and `SpoolError` mean that it is not stored: it must not be acknowledged.
        """
        size = len(item.encode())
        if size > self._rules.max_bytes:
            await self.dead_letters.bury(item, "too_large")
            return False
        await self._back(item)
        self._tell(SPOOLED, _about(item, size))
        return True

    def take(self, downstreams: Iterable[str]) -> Entry | None:
        """The next message for these, the oldest whose lane nobody works on.

        Whoever takes it ends with `done`, `attempted`, `dead` or `give_back`, the last one also
        when another fails; until then its lane waits.
        """
        return self._order.take(downstreams)

    def take_behind(self, entry: Entry) -> Entry | None:
        """The next message of a lane, for one who has just taken the one before it and wants both.

        Each is ended on its own, and the lane waits for all of them.
        """
        return self._order.take_behind(entry)

    async def get(self, entry: Entry) -> Item | None:
        """A message that was taken; none when it is gone or corrupt, and then it is settled.

        When this fails the message is still taken.
        """
        data = await self._store.get(self.place.waiting + entry.name)
        if data is None:
            self._order.settle(entry)
            return None
        item = self._decoded(entry.name, data)
        if item is None or item.downstream != entry.downstream:
            await self.dead_letters.move(entry.name, data, entry.downstream, "corrupt")
            self._order.settle(entry)
            return None
        return item

    async def done(self, entry: Entry) -> None:
        """A message that was taken has its run: it waits no more, nor is it a dead letter."""
        if entry.seq in self._twice:
            await self.dead_letters.forget(entry.name)
            self._twice.discard(entry.seq)
        await self._store.delete(self.place.waiting + entry.name)
        self._order.settle(entry)

    async def attempted(
        self, entry: Entry, item: Item, *, is_new_run: bool = False, is_counted: bool = True
    ) -> Item:
        """A message that was taken has failed once more; it waits for the next pass.

        With `is_new_run` its next attempt is a run of its own, since the last one did run.
        """
        item = item.attempted(is_new_run=is_new_run, is_counted=is_counted)
        data = item.encode()
        await self._store.put(self.place.waiting + entry.name, data)
        self._order.give_back(entry, len(data))
        return item

    def release(self, entry: Entry) -> None:
        """A message that was taken has its run: its lane goes on, while it is still to be ended.

        Given back after all it waits for the next pass, and its key makes that a duplicate.
        """
        self._order.release(entry)

    def give_back(self, entry: Entry) -> None:
        """A message that was taken could not be tried; it waits for the next pass."""
        self._order.give_back(entry)

    async def dead(self, entry: Entry, reason: str, item: Item | None = None) -> None:
        """A message that was taken becomes a dead letter, as it is now; its lane goes on."""
        if item is not None:
            data: bytes | None = item.encode()
        else:
            data = await self._store.get(self.place.waiting + entry.name)
        if data is not None:
            await self.dead_letters.move(entry.name, data, entry.downstream, reason)
        self._order.settle(entry)

    def next_pass(self) -> None:
        """Let messages that failed, and their lanes, come again."""
        self._order.next_pass()

    async def tidy(self, *, drains: bool = True) -> int:
        """Do what time asks for, call it every second or two; how many others have added.

        Whoever drains makes dead letters of messages that are too old, compares counters with the
        store, and finds what others have added to a shared one. Whoever does not drain learns when
        what it knows to wait was drained by another.
        """
        if not drains:
            if self.pending() and self._is_due(LOOK_S, self._pages):
                await self._scan()
            return 0
        found = 0
        if self._store.is_shared and self._is_due(LOOK_S, self._pages):
            recent = self._clock.now() - _RECENT
            found = await self._scan(max(0, int((recent - EPOCH).total_seconds() * 1000)) << 22)
        if self._is_due(SWEEP_S):
            await self._sweep()
        if self._is_due(CHECK_S):
            await self._check()
        return found

    async def look(self) -> None:
        """Learn what waits now in a store that is shared."""
        if self._store.is_shared:
            await self._scan()

    @property
    def _pages(self) -> int:
        """How many listings a look costs: the more, the rarer it is."""
        return 1 + self.pending() // _PAGE

    async def _back(self, item: Item) -> None:
        """Have a message wait at its place, when it may."""
        data = item.encode()
        entry = _entry(item, len(data))
        if entry.seq in self._order:
            return
        self._order.expect(entry)
        is_there = False
        try:
            async with self._room.admit(entry, self._evict):
                await self._store_new(entry.name, data, item)
                is_there = True
        finally:
            self._order.arrived(entry, is_there=is_there)

    async def _store_new(self, name: str, data: bytes, item: Item) -> None:
        try:
            await self._store.put_new(self.place.waiting + name, data)
        except SpoolTaken:
            there = await self._store.get(self.place.waiting + name)
            if there is None or Item.decode(there).sha256 != item.sha256:
                raise

    async def _evict(self) -> bool:
        """Make a dead letter of the oldest message; false when there is no room for it."""
        oldest = self._order.oldest()
        letters = self.dead_letters.size.size_bytes
        if oldest is None or letters + oldest.size > self._rules.dlq_max_bytes:
            return False
        await self._bury_oldest("on_full_evicted")
        return True

    async def _bury_oldest(self, reason: str) -> None:
        entry = self._order.take_oldest()
        if entry is None:
            return
        try:
            await self.dead(entry, reason)
        except BaseException:
            self._order.give_back(entry)
            raise

    async def _sweep(self) -> None:
        """Make dead letters of what has waited too long."""
        if self._rules.max_age_s is None:
            return
        limit = self._clock.now() - timedelta(seconds=self._rules.max_age_s)
        while (at := self.oldest_at) is not None and at < limit:
            await self._bury_oldest("retention_expired")

    async def _check(self) -> None:
        """Compare what is known with the store, and learn what differs."""
        known = len(self._order), self._order.size_bytes
        await self.dead_letters.count()
        if await self._scan():
            _log.warning(
                "the spool was not what was known of it",
                extra={
                    "subscription": self.place.path,
                    "known": known,
                    "found": (len(self._order), self._order.size_bytes),
                },
            )

    def _retell(self, learned: Learned) -> None:
        """Tell of the latest once more: whoever stored them may have died before he did."""
        if self._tell_again is None or not learned:
            return
        since = made_at(max(seq for seq, _, _ in learned)) - timedelta(seconds=LATELY_S)
        for seq, about, at in sorted(learned, key=lambda one: one[0]):
            if made_at(seq) >= since:
                self._tell_again(SPOOLED, about, at)

    async def _scan(self, start: int = 0, learned: Learned | None = None) -> int:
        """Learn what lies in the store from a place on; from the first, also what is gone.

        How many differed.
        """
        known = self._order.seqs() if not start else set()
        foreign = differed = 0
        after = f"{self.place.waiting}{start:020d}" if start else ""
        while page := await self._store.list(self.place.waiting, after, _PAGE):
            after = page[-1].key
            new: list[tuple[Listed, int]] = []
            for one in page:
                parts = parts_of_name(one.key.rpartition("/")[2])
                if parts is None:
                    foreign += 1
                    continue
                known.discard(parts[0])
                if parts[0] not in self._order:
                    new.append((one, parts[0]))
            differed += len(new)
            for first in range(0, len(new), _READS):
                some = new[first : first + _READS]
                await asyncio.gather(*(self._learn(*one, learned) for one in some))
        if not start:
            self.foreign = foreign
            differed += self._order.prune(known)
        return differed

    async def _learn(self, listed: Listed, seq: int, learned: Learned | None) -> None:
        """Let a message wait that lies in the store."""
        data = await self._store.get(listed.key)
        if data is None or seq in self._order:
            return
        name = listed.key.rpartition("/")[2]
        item = self._decoded(name, data)
        if item is None:
            await self.dead_letters.move(name, data, "", "corrupt")
            return
        self._order.add(_entry(item, len(data)))
        if learned is not None:
            learned.append((seq, _about(item, len(data)), item.spooled_at))

    def _decoded(self, name: str, data: bytes) -> Item | None:
        """What is stored under a name; none unless it is what was stored there."""
        try:
            item = Item.decode(data)
        except Corrupt:
            return None
        return item if item.name == name and item.subscription == self.place.path else None

    def _is_due(self, interval_s: float, times: int = 1) -> bool:
        now = self._clock.monotonic()
        if now - self._done_at[interval_s] < interval_s * times:
            return False
        self._done_at[interval_s] = now
        return True


def _entry(item: Item, size: int) -> Entry:
    return Entry(int(item.recv_seq), item.name, item.downstream, item.ordering_key or "", size)


def _about(item: Item, size: int) -> dict[str, Any]:
    """What is told of a message that waits."""
    return {
        "message_id": item.message_id,
        "recv_seq": item.recv_seq,
        "spool_ref": item.ref,
        "sha256": item.sha256,
        "downstream": item.downstream,
        "reason": item.reason,
        "bytes": size,
    }
