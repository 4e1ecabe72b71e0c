"""The partitions that are ours: what was given out of them, refused, settled and committed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from aiokafka import errors  # type: ignore[import-untyped] # it has no types

from noetl.sources.base import report_of
from noetl.sources.kafka_client import fault_of
from noetl.sources.kafka_messages import part_of, place_of_id
from noetl.sources.offsets import NEVER, Offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aiokafka import ConsumerRecord, TopicPartition

    from noetl.sources.base import AckReport
    from noetl.sources.kafka_client import Member
    from noetl.sources.places import KafkaPlace

COMMIT_S: Final = 10.0
_STALE: Final = ("stale", "its partition is not ours any more, or it was never delivered")


class Partitions:
    """What a member holds until its group is divided anew."""

    def __init__(self, member: Member, place: KafkaPlace, ack_wait_s: float | None) -> None:
        self._member = member
        self._place = place
        self._ack_wait_s = ack_wait_s
        self.held: dict[TopicPartition, Offsets] = {}
        self.waiting: dict[TopicPartition, asyncio.TimerHandle] = {}
        """Partitions that are not read now, since something of them was refused."""
        self._committing = asyncio.Lock()

    def assign(self, assigned: Iterable[TopicPartition]) -> None:
        """Begin where the group has ended."""
        self.held = {part: Offsets() for part in assigned}

    def revoke(self, revoked: Iterable[TopicPartition]) -> None:
        """Forget what is another member's now."""
        for part in revoked:
            self.held.pop(part, None)
            timer = self.waiting.pop(part, None)
            if timer is not None:
                timer.cancel()

    def give(self, record: ConsumerRecord) -> bool:
        """Give a record out; not one that somebody holds, that is settled, or that is not ours."""
        offsets = self.held.get(part_of(record))
        return offsets is not None and offsets.give(record.offset, self.due())

    def due(self) -> float:
        """Until when what is given out now may be held."""
        if self._ack_wait_s is None:
            return NEVER
        return asyncio.get_running_loop().time() + self._ack_wait_s

    def next_due(self) -> float:
        """When the first of all is held for too long."""
        return min((offsets.next_due for offsets in self.held.values()), default=NEVER)

    def lapse(self, now: float) -> None:
        """What was held for too long comes again."""
        for part, offsets in self.held.items():
            lapsed = offsets.lapsed(now)
            for offset in lapsed:
                offsets.refuse(offset)
            if lapsed:
                self.back(part, 0.0)

    def told(
        self, ack_ids: Sequence[str], do: Callable[[Offsets, int], bool]
    ) -> tuple[dict[str, tuple[str, str]], dict[TopicPartition, list[str]]]:
        """What the partitions say: ids that are no longer ours, and the others by partition."""
        faults: dict[str, tuple[str, str]] = {}
        places: dict[TopicPartition, list[str]] = {}
        for ack_id, (part, offset) in [(ack_id, place_of_id(ack_id)) for ack_id in ack_ids]:
            offsets = self.held.get(part)
            if offsets is None or not do(offsets, offset):
                faults[ack_id] = _STALE
            else:
                places.setdefault(part, []).append(ack_id)
        return faults, places

    async def settled(self, ack_ids: Sequence[str]) -> AckReport:
        """Settle, and commit what has no gap before it."""
        faults, places = self.told(ack_ids, lambda offsets, offset: offsets.settle(offset))
        ours = {part: self.held[part] for part in places}
        async with self._committing:
            known = {part: kept for part, kept in ours.items() if self.held.get(part) is kept}
            wanted = {
                part: at
                for part, offsets in known.items()
                if (at := offsets.to_commit()) is not None
            }
            fault = await self._committed(wanted) if wanted else None
            for part, at in wanted.items():
                if fault is None:
                    known[part].committed = at
                else:
                    faults |= dict.fromkeys(places[part], fault)
        lost = (part for part in places if part not in known)
        for part in lost:
            faults |= dict.fromkeys(places[part], _STALE)
        return report_of(ack_ids, faults)

    async def _committed(self, wanted: dict[TopicPartition, int]) -> tuple[str, str] | None:
        """Commit; why it could not be done."""
        try:
            async with asyncio.timeout(COMMIT_S):
                await self._member.commit(wanted)
        except (errors.CommitFailedError, errors.IllegalStateError):
            return _STALE
        except (errors.KafkaError, OSError, TimeoutError) as fault:
            told = fault_of(fault, self._place)
            return ("ack_timeout" if told.kind == "timeout" else "connection", told.message)
        return None

    def back(self, part: TopicPartition, delay_s: float) -> None:
        """Read a partition again from the first offset that was refused, after a while."""
        lowest = self.held[part].lowest_again
        if lowest is None:
            return
        self._member.pause(part)
        self._member.seek(part, lowest)
        loop = asyncio.get_running_loop()
        at = loop.time() + delay_s
        waiting = self.waiting.pop(part, None)
        if waiting is not None:
            at = max(at, waiting.when())
            waiting.cancel()
        self.waiting[part] = loop.call_at(at, self._resume, part)

    def _resume(self, part: TopicPartition) -> None:
        self.waiting.pop(part, None)
        self._member.resume(part)
