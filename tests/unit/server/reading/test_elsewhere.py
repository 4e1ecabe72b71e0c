"""Commits of other servers: the bus wakes those who wait for them, and a look replaces it."""

from __future__ import annotations

import asyncio

from noetl.bus import subjects
from noetl.bus.memory import MemoryBus
from noetl.server.reading.elsewhere import PATIENCE_S, POLL_S, RARELY, Elsewhere, last_seq
from tests.unit.server.rig import virtually

SUBJECT = subjects.events("default", "default", "7", 3)


class Reader:
    """Notes what it is told."""

    def __init__(self, elsewhere: Elsewhere, run: str = "7") -> None:
        self.heard: list[int | None] = []
        self._elsewhere = elsewhere
        self._run = run

    def told(self, seq: int | None) -> None:
        self.heard.append(seq)

    @property
    def patience_s(self) -> float:
        return self._elsewhere.patience_s(self._run, self.told)

    def missed(self) -> bool:
        return self._elsewhere.missed(self._run, self.told)

    def leave(self) -> None:
        self._elsewhere.leave(self._run, self.told)


async def settled() -> None:
    await asyncio.sleep(0.001)


def test_a_message_tells_how_far_a_run_has_come() -> None:
    assert last_seq(b'{"first_seq":3,"last_seq":41}') == 41
    assert last_seq(b"{}") is None


@virtually
async def test_without_a_bus_the_log_is_looked_at() -> None:
    reader = Reader(Elsewhere(None))
    assert (reader.patience_s, reader.missed(), reader.patience_s) == (POLL_S, True, POLL_S)
    reader.leave()


@virtually
async def test_who_waited_in_vain_is_told_what_others_write() -> None:
    bus = MemoryBus()
    reader, other = Reader(elsewhere := Elsewhere(bus)), Reader(elsewhere, "8")
    assert reader.patience_s == PATIENCE_S
    await bus.publish(SUBJECT, b'{"last_seq":1}', "before")
    assert not reader.missed()
    assert reader.patience_s == POLL_S
    await settled()
    assert reader.heard == [None]  # it is heard from now on: what came before is in the log
    await bus.publish(SUBJECT, b'{"last_seq":5}', "after")
    await settled()
    assert (reader.heard, other.heard) == ([None, 5], [])
    assert reader.patience_s == POLL_S * RARELY
    assert reader.missed()
    reader.leave()
    await settled()
    await bus.publish(SUBJECT, b'{"last_seq":6}', "too late")
    await settled()
    assert reader.heard == [None, 5]
    assert len(asyncio.all_tasks()) == 1


@virtually
async def test_readers_of_a_run_share_one_listener() -> None:
    readers = [Reader(elsewhere := Elsewhere(bus := MemoryBus()))]
    readers += [Reader(elsewhere) for _ in range(2)]
    assert [reader.missed() for reader in readers[:2]] == [False, False]
    await settled()
    assert readers[2].missed()  # the listener is there: nobody will tell of it again
    await bus.publish(SUBJECT, b'{"last_seq":5}', "one")
    await settled()
    assert [reader.heard for reader in readers] == [[None, 5], [None, 5], [5]]
    assert len(asyncio.all_tasks()) == 2
    for reader in readers:
        reader.leave()
        reader.leave()
    await settled()
    assert len(asyncio.all_tasks()) == 1


@virtually
async def test_a_bus_that_is_away_is_tried_again_while_the_log_is_looked_at() -> None:
    bus = MemoryBus()
    await bus.close()
    reader = Reader(Elsewhere(bus))
    assert not reader.missed()
    for _ in range(2):
        await settled()
        assert (reader.heard, reader.patience_s) == ([], POLL_S)
        assert reader.missed()
    reader.leave()
    await settled()
    assert len(asyncio.all_tasks()) == 1
