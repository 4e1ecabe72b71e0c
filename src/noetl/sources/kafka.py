"""Messages of a Kafka topic: one member of a group, whose commits never pass what is not settled.

Kafka itself knows one number per partition. What was given out, refused and settled beyond it is
remembered here, and forgotten with the partition: its next reader gets all of it again.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from aiokafka import (  # type: ignore[import-untyped] # it has no types
    ConsumerRebalanceListener,
    TopicPartition,
    errors,
)

from noetl.clock import rfc3339
from noetl.sources.base import Facts, report_of
from noetl.sources.kafka_client import OPEN_S, SESSION_MS, fault_of, join, leave, no_topic
from noetl.sources.kafka_messages import message_of, part_of, place_of_id
from noetl.sources.kafka_partitions import COMMIT_S, Partitions
from noetl.sources.places import as_written

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from aiokafka import ConsumerRecord

    from noetl.clock import Clock
    from noetl.sources.base import AckReport, PolledMessage
    from noetl.sources.kafka_client import Member
    from noetl.sources.places import Addresses, KafkaPlace

LOOK_S: Final = 1.0
"""How long the fetch of records that are known to be there may take."""
GRACE_S: Final = 2.0
_SLICE_MS: Final = 100


class KafkaSource(ConsumerRebalanceListener):  # type: ignore[misc] # the library has no types
    """The messages of one topic for one group."""

    def __init__(
        self, member: Member, place: KafkaPlace, clock: Clock, ack_wait_s: float | None = None
    ) -> None:
        self._member = member
        self._place = place
        self._clock = clock
        self._ack_wait_s = ack_wait_s
        self._parts = Partitions(member, place, ack_wait_s)
        self._early: list[ConsumerRecord] = []
        self._generation = 0
        self._joined = asyncio.Event()
        self.is_fresh = True
        """Nobody has polled it."""

    @classmethod
    async def open(
        cls,
        place: KafkaPlace,
        clock: Clock,
        *,
        addresses: Addresses = as_written,
        ack_wait_s: float | None = None,
        session_ms: int = SESSION_MS,
    ) -> KafkaSource:
        """Join the group; what nobody settles within `ack_wait_s` is given again."""
        member = await join(place, addresses, session_ms)
        source = cls(member, place, clock, ack_wait_s)
        try:
            await source._begin()
        except BaseException:
            await leave(member)
            raise
        return source

    async def poll(self, batch: int, timeout_ms: int) -> list[PolledMessage]:
        """What waits now, else what comes within the time; never more than `batch`."""
        self.is_fresh = False
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_ms / 1000
        found: list[PolledMessage] = []
        if not timeout_ms and await self._is_behind():
            end = loop.time() + LOOK_S
        while True:
            self._parts.lapse(loop.time())
            wait_s = max(0.0, min(end, self._parts.next_due()) - loop.time())
            found += await self._fetched(batch - len(found), wait_s)
            if len(found) >= batch or loop.time() >= end:
                return found
            if found and not self._has_more():
                return found
            if found:
                end = min(end, loop.time() + LOOK_S)

    async def ack(self, ack_ids: Sequence[str]) -> AckReport:
        """They need no further delivery; what is settled without a gap is committed."""
        return await self._parts.settled(ack_ids)

    async def nack(self, ack_ids: Sequence[str], delay_ms: int = 0) -> AckReport:
        """Deliver them again: their partitions go back to the first of them, after the delay."""
        faults, places = self._parts.told(ack_ids, lambda offsets, offset: offsets.refuse(offset))
        for part in places:
            self._parts.back(part, delay_ms / 1000)
        return report_of(ack_ids, faults)

    async def term(self, ack_ids: Sequence[str]) -> AckReport:
        """Never deliver them again: Kafka knows no other way than to go on."""
        return await self._parts.settled(ack_ids)

    async def extend(self, ack_ids: Sequence[str]) -> AckReport:
        """Somebody still works at them; Kafka itself never asks."""
        due = self._parts.due()
        faults, _ = self._parts.told(ack_ids, lambda offsets, offset: offsets.extend(offset, due))
        return report_of(ack_ids, faults)

    async def backlog(self) -> int | None:
        """Records of the topic that the group has not settled."""
        parts = self._every()
        async with self._asking():
            ends = await self._member.end_offsets(parts)
            firsts = await self._member.beginning_offsets(parts)
            told = await asyncio.gather(*(self._member.committed(part) for part in parts))
        starts = dict(zip(parts, told, strict=True))
        return int(sum(ends[part] - (starts[part] or firsts[part]) for part in parts))

    def facts(self) -> Facts:
        """Kafka delivers as often as it is asked; how long a topic keeps records is its own."""
        return Facts(ack_wait_s=self._ack_wait_s)

    async def close(self) -> None:
        """Leave the group; what was not settled is delivered to its next reader."""
        self._parts.revoke(list(self._parts.held))
        await leave(self._member)

    async def take_over(self, ack_ids: Sequence[str]) -> None:
        """Hold messages that another member was given, so that they can be settled here.

        Only what comes next in its partition can be taken over: a commit passes nothing. A source
        that was polled has its own messages to settle and takes none.
        """
        if not self.is_fresh:
            return
        wanted: dict[TopicPartition, set[int]] = {}
        for ack_id in ack_ids:
            part, offset = place_of_id(ack_id)
            if part in self._parts.held:
                wanted.setdefault(part, set()).add(offset)
        async with self._asking():
            for part, offsets in wanted.items():
                position = await self._member.position(part)
                early = [record.offset for record in self._early if part_of(record) == part]
                at = min([position, *early])
                while at in offsets:
                    self._parts.held[part].give(at, self._parts.due())
                    at += 1
                if at > position:
                    self._member.seek(part, at)

    # ------------------------------------------------------------------ the group

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Forget what is another member's now."""
        self._generation += 1
        self._parts.revoke(revoked)

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Begin where the group has ended."""
        self._generation += 1
        self._parts.assign(assigned)
        self._joined.set()

    async def _begin(self) -> None:
        """Have partitions, or the word that there are none for us."""
        try:
            async with asyncio.timeout(OPEN_S):
                if self._place.topic not in await self._member.topics():
                    raise no_topic(self._place)
                self._member.subscribe([self._place.topic], listener=self)
                while not self._joined.is_set():
                    found = await self._member.getmany(timeout_ms=_SLICE_MS, max_records=1)
                    self._early += [record for records in found.values() for record in records]
                    self._member.check()
        except (errors.KafkaError, OSError, TimeoutError) as fault:
            self._member.check()
            raise fault_of(fault, self._place) from fault

    # ------------------------------------------------------------------ messages in

    async def _fetched(self, most: int, wait_s: float) -> list[PolledMessage]:
        self._member.check()
        generation = self._generation
        records, self._early = self._early[:most], self._early[most:]
        if not records:
            try:
                async with asyncio.timeout(wait_s + GRACE_S):
                    found = await self._member.getmany(
                        timeout_ms=round(wait_s * 1000), max_records=most
                    )
            except TimeoutError:
                self._member.check()
                return []  # the group is being divided anew
            except (errors.KafkaError, OSError) as fault:
                raise fault_of(fault, self._place) from fault
            records = [record for listed in found.values() for record in listed]
        if generation != self._generation:
            await self._rewind({part_of(record) for record in records})
            return []
        received = rfc3339(self._clock.now())
        return [message_of(record, received) for record in records if self._parts.give(record)]

    async def _rewind(self, parts: set[TopicPartition]) -> None:
        """The group was divided anew while records came: read them again as what they are now."""
        async with self._asking():
            for part in parts & self._parts.held.keys():
                at = await self._member.committed(part)
                if at is None:
                    await self._member.seek_to_beginning(part)
                else:
                    self._member.seek(part, at)

    async def _is_behind(self) -> bool:
        """Whether the brokers have more than we have read."""
        if self._early:
            return True
        parts = [part for part in self._parts.held if part not in self._parts.waiting]
        if not parts:
            return False
        async with self._asking():
            ends = await self._member.end_offsets(parts)
            places = await asyncio.gather(*(self._member.position(part) for part in parts))
        return any(at < ends[part] for part, at in zip(parts, places, strict=True))

    def _has_more(self) -> bool:
        """Whether a partition that we have just read has more, as its broker said."""
        for part, offsets in self._parts.held.items():
            if part in self._parts.waiting or offsets.next is None:
                continue
            if (self._member.highwater(part) or 0) > offsets.next:
                return True
        return False

    def _every(self) -> list[TopicPartition]:
        found = self._member.partitions_for_topic(self._place.topic) or ()
        return [TopicPartition(self._place.topic, number) for number in sorted(found)]

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """A question to the brokers: within a time, and its faults in our words."""
        try:
            async with asyncio.timeout(COMMIT_S):
                yield
        except (errors.KafkaError, OSError, TimeoutError) as fault:
            self._member.check()
            raise fault_of(fault, self._place) from fault
