"""Admission, retention and counters of a spool, on the memory store."""

import asyncio
import gc
import time
from datetime import timedelta

import pytest

from noetl.blobs.spool.base import Size, SpoolError, SpoolFull
from noetl.blobs.spool.dead import NoDeadLetter
from noetl.blobs.spool.item import Corrupt
from noetl.blobs.spool.memory import MemoryStore
from noetl.blobs.spool.rules import Rules
from noetl.blobs.spool.spool import LATELY_S, SPOOLED, Spool
from noetl.dsl.subscription.spool import Retention
from noetl.dsl.subscription.spool import Spool as Document
from tests.unit.blobs.spool.samples import NOON, PLACE, Hands, item, seq_at, spool_of

SIZE = len(item().encode())
FULL = "subscription.spool.full"
ALERT = "subscription.spool.alert"
DEAD = "subscription.message.dead_lettered"


class Failing(MemoryStore):
    """A store that fails when it is told to."""

    def __init__(self):
        super().__init__()
        self.fault = None

    async def put_new(self, key, data):
        if self.fault is not None:
            raise self.fault
        await super().put_new(key, data)


def kinds(told):
    return [kind for kind, _ in told]


def dead_of(told):
    return [(about["message_id"], about["reason"]) for kind, about in told if kind == DEAD]


async def drained(spool):
    found = []
    while (entry := spool.take(["tsdb"])) is not None:
        found.append(int((await spool.get(entry)).message_id[2:]))
        await spool.done(entry)
    return found


def test_the_rules_of_a_document():
    kept = Retention(max_age_hours=1.5, max_bytes=100, on_full="alert_only")
    assert Rules.of(Document(ordering="none", retention=kept)) == Rules(
        ordering="none", max_bytes=100, dlq_max_bytes=100, on_full="alert_only", max_age_s=5400.0
    )
    assert Rules.of(Document(retention=Retention(dlq_max_bytes=7))).dlq_max_bytes == 7


async def test_26_stop_acking_refuses_and_tells_it_once_on_the_edge():
    spool, told = spool_of(max_bytes=2 * SIZE)
    for number in (1, 2):
        await spool.put(item(number))
    for _ in range(2):
        with pytest.raises(SpoolFull):
            await spool.put(item(3))
    about = {"downstream": "tsdb", "spool_bytes": 2 * SIZE, "max_bytes": 2 * SIZE}
    assert [event for event in told if event[0] == FULL] == [(FULL, about)]
    await spool.done(spool.take(["tsdb"]))
    await spool.put(item(3))
    with pytest.raises(SpoolFull):
        await spool.put(item(4))
    assert kinds(told).count(FULL) == 2
    assert await drained(spool) == [2, 3]


async def test_26_drop_to_dlq_moves_the_oldest_until_it_fits():
    spool, told = spool_of(max_bytes=2 * SIZE, dlq_max_bytes=2 * SIZE, on_full="drop_to_dlq")
    for number in (1, 2, 3, 4):
        await spool.put(item(number, lane=f"m-{number}"))
    assert dead_of(told) == [("t:1", "on_full_evicted"), ("t:2", "on_full_evicted")]
    assert (spool.size_bytes, spool.dead_letters.size) == (2 * SIZE, Size(2, 2 * SIZE))
    with pytest.raises(SpoolFull):  # no room for dead letters either
        await spool.put(item(5))
    assert kinds(told)[-1] == FULL
    assert await drained(spool) == [3, 4]


async def test_26_alert_only_stores_and_alerts_once_a_minute():
    clock = Hands()
    spool, told = spool_of(clock=clock, max_bytes=2 * SIZE, on_full="alert_only")
    for number in (1, 2, 3, 4):
        await spool.put(item(number))
    clock.turn(59)
    await spool.put(item(5))
    assert kinds(told).count(ALERT) == 1
    clock.turn(1)
    await spool.put(item(6))
    about = {"downstream": "tsdb", "spool_bytes": 5 * SIZE, "max_bytes": 2 * SIZE}
    assert [event for event in told if event[0] == ALERT][1] == (ALERT, about)
    assert await drained(spool) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("on_full", ["stop_acking", "drop_to_dlq", "alert_only"])
async def test_26_an_item_larger_than_all_of_it_becomes_a_dead_letter(on_full):
    spool, told = spool_of(max_bytes=SIZE - 1, on_full=on_full)
    assert not await spool.put(item(1))
    assert (spool.pending(), dead_of(told)) == (0, [("t:1", "too_large")])


@pytest.mark.parametrize("on_full", ["stop_acking", "drop_to_dlq"])
async def test_26_the_ceiling_holds_for_many_at_once(on_full):
    spool, _ = spool_of(max_bytes=3 * SIZE, on_full=on_full)
    puts = (spool.put(item(number)) for number in range(1, 9))
    await asyncio.gather(*puts, return_exceptions=True)
    assert spool.size_bytes <= 3 * SIZE
    assert spool.pending() == 3


async def test_26_what_is_too_old_becomes_a_dead_letter_within_a_minute():
    clock = Hands()
    spool, told = spool_of(clock=clock, max_age_s=72 * 3600.0)
    await spool.put(item(1, at=NOON - timedelta(hours=72)))
    await spool.put(item(2, at=NOON - timedelta(hours=71)))
    await spool.tidy()
    assert spool.pending() == 2
    clock.turn(60)
    await spool.tidy()
    assert dead_of(told) == [("t:1", "retention_expired")]
    clock.turn(3600)
    await spool.tidy()
    assert dead_of(told)[1:] == [("t:2", "retention_expired")]
    assert (spool.pending(), spool.oldest_at) == (0, None)


async def test_25_a_write_that_fails_stores_nothing_and_keeps_no_room():
    store = Failing()
    spool, told = spool_of(store, max_bytes=SIZE)
    store.fault = SpoolError("no")
    for _ in range(3):
        with pytest.raises(SpoolError):
            await spool.put(item(1))
    assert (spool.pending(), spool.has_lane("tsdb", "m-9"), told) == (0, False, [])
    store.fault = None
    await spool.put(item(1))
    assert await drained(spool) == [1]


async def test_a_message_does_not_pass_one_of_its_lane_that_is_still_being_written():
    store = Failing()
    spool, _ = spool_of(store)
    go = asyncio.Event()

    class Slow(Failing):
        async def put_new(self, key, data):
            if "t_1" in key:
                await go.wait()
            await super().put_new(key, data)

    store.__class__ = Slow
    first = asyncio.create_task(spool.put(item(1)))
    await asyncio.sleep(0)
    await spool.put(item(2))
    assert spool.take(["tsdb"]) is None
    go.set()
    await first
    assert await drained(spool) == [1, 2]


async def test_what_is_gone_from_the_store_is_settled_when_it_is_read():
    store = MemoryStore()
    spool, _ = spool_of(store)
    await spool.put(item(1))
    await store.delete(PLACE.waiting + item(1).name)
    assert await spool.get(spool.take(["tsdb"])) is None
    assert (spool.pending(), spool.size_bytes) == (0, 0)


async def test_counters_are_compared_with_the_store_every_ten_minutes():
    store, clock = MemoryStore(), Hands()
    spool, _ = spool_of(store, clock)
    other, _ = spool_of(store, clock)
    for number in (1, 2, 3):
        await spool.put(item(number))
    await store.delete(PLACE.waiting + item(2).name)
    await other.put(item(4))
    clock.turn(599)
    await spool.tidy()
    assert spool.pending() == 3
    clock.turn(1)
    await spool.tidy()
    assert (spool.pending(), spool.size_bytes) == (3, 3 * SIZE)
    assert await drained(spool) == [1, 3, 4]


async def test_what_others_have_added_is_found_within_two_seconds():
    store, clock = MemoryStore(is_shared=True), Hands()
    spool, _ = spool_of(store, clock)
    other, _ = spool_of(store, clock)
    await other.put(item(1, at=NOON - timedelta(seconds=3)))
    assert await spool.tidy() == 0
    assert spool.pending() == 0
    clock.turn(2)
    assert await spool.tidy() == 1
    assert await drained(spool) == [1]


async def test_what_another_has_drained_is_known_within_two_seconds():
    store, clock = MemoryStore(is_shared=True), Hands()
    spool, _ = spool_of(store, clock)
    other, _ = spool_of(store, clock)
    await spool.put(item(1))
    await other.recover()
    assert await drained(other) == [1]
    await spool.tidy(drains=False)
    assert spool.has_lane("tsdb", "m-9")
    clock.turn(2)
    await spool.tidy(drains=False)
    assert not spool.has_lane("tsdb", "m-9")


async def test_a_look_is_as_rare_as_what_waits_is_much():
    store, clock = MemoryStore(is_shared=True), Hands()
    spool, _ = spool_of(store, clock)
    other, _ = spool_of(store, clock)
    for number in range(1000):
        await spool.put(item(number, at=NOON + timedelta(milliseconds=number)))
    await other.put(item(1000, at=NOON + timedelta(seconds=1)))
    clock.turn(2)
    assert await spool.tidy() == 0
    clock.turn(2)
    assert await spool.tidy() == 1


async def test_whoever_is_told_that_something_is_back_looks_at_once():
    store = MemoryStore(is_shared=True)
    spool, _ = spool_of(store)
    other, _ = spool_of(store)
    await other.put(item(1))
    await spool.look()
    assert spool.has_lane("tsdb", "m-9")


async def test_who_takes_over_forgets_what_another_has_done():
    store = MemoryStore()
    spool, _ = spool_of(store)
    for number in (1, 2, 3):
        await spool.put(item(number))
    other, _ = spool_of(store)
    await other.recover()
    await other.done(other.take(["tsdb"]))
    assert await spool.recover() == 2
    assert await drained(spool) == [2, 3]


async def test_a_dead_letter_that_died_before_is_replaced_by_what_became_of_it():
    store = MemoryStore()
    spool, _ = spool_of(store)
    await spool.put(item(1))
    entry = spool.take(["tsdb"])
    later = await spool.attempted(entry, await spool.get(entry))
    await store.put_new(PLACE.dead + entry.name, item(1).encode())
    await spool.recover()
    spool.next_pass()
    await spool.dead(spool.take(["tsdb"]), "replay_failed")
    assert await store.get(PLACE.dead + entry.name) == later.encode()
    assert spool.dead_letters.size == await store.size(PLACE.dead)


async def test_a_redriven_item_waits_for_room():
    spool, _ = spool_of(max_bytes=SIZE + 10)
    await spool.dead_letters.bury(item(1), "dispatch_rejected")
    await spool.put(item(2))
    with pytest.raises(SpoolFull):
        await spool.dead_letters.redrive(item(1).ref)
    assert spool.dead_letters.size.items == 1
    await spool.done(spool.take(["tsdb"]))
    await spool.dead_letters.redrive(item(1).ref)
    assert (await drained(spool), spool.dead_letters.size) == ([1], Size())


async def test_a_corrupt_dead_letter_is_not_redriven_but_may_be_discarded():
    store = MemoryStore()
    spool, told = spool_of(store)
    await store.put(PLACE.dead + item(1).name, b"{")
    await spool.recover()
    with pytest.raises(Corrupt):
        await spool.dead_letters.redrive(item(1).ref)
    await spool.dead_letters.discard(item(1).ref, "torn")
    assert (told[-1][0], told[-1][1]["reason"]) == ("subscription.message.discarded", "torn")
    assert spool.dead_letters.size == Size()


@pytest.mark.parametrize("path", ["subscriptions/meters", "subscriptions/others"])
async def test_a_dead_letter_that_is_not_there_is_unknown(path):
    spool, _ = spool_of()
    for call in (spool.dead_letters.redrive, spool.dead_letters.discard):
        with pytest.raises(NoDeadLetter):
            await call(f"noetl://spool/{path}/7/t%3A1")


async def test_27_admission_costs_the_same_whatever_waits():
    """A tenth of the size that the benchmark `spool` has."""
    spool, _ = spool_of()
    count, block = 10_000, 1_000
    took = []
    for start in range(0, count, block):
        items = [item(number, lane=f"m-{number % 100}") for number in range(start, start + block)]
        gc.collect()
        before = time.process_time()
        for one in items:
            await spool.put(one)
        took.append(time.process_time() - before)
    assert spool.pending() == count
    assert min(took[-3:]) < 3 * min(took[:3])


async def test_receive_times_are_those_of_the_snowflakes():
    spool, _ = spool_of()
    await spool.put(item(1, recv_seq=seq_at(NOON, 1)))
    assert spool.oldest_at == NOON


async def test_who_died_while_moving_a_message_leaves_it_twice_and_its_run_ends_both():
    store = MemoryStore()
    spool, _ = spool_of(store)
    await spool.put(item(1))
    await spool.put(item(2))
    await store.put_new(PLACE.dead + item(1).name, item(1).encode())
    again, _ = spool_of(store)
    assert await again.recover() == 2
    assert again.dead_letters.size == Size(1, SIZE)
    assert await drained(again) == [1, 2]
    assert (again.dead_letters.size, await store.size(PLACE.dead)) == (Size(), Size())


async def test_an_attempt_that_only_told_that_something_is_away_is_not_counted():
    spool, _ = spool_of()
    await spool.put(item(1))
    entry = spool.take(["tsdb"])
    later = await spool.attempted(entry, await spool.get(entry), is_new_run=True, is_counted=False)
    assert (later.attempts, later.dispatch_key) == (0, "m:k-1#r1")


async def test_of_what_is_found_the_latest_is_told_once_more():
    store, clock, again = MemoryStore(), Hands(), []
    spool, told = spool_of(store, clock)
    old = item(1, at=NOON - timedelta(seconds=LATELY_S + 3))
    late = [item(number, at=NOON - timedelta(seconds=number)) for number in (9, 5, 2)]
    for one in (old, *late):
        await spool.put(one)
    said = {about["recv_seq"]: about for name, about in told if name == SPOOLED}
    other = Spool(store, PLACE, Rules(), clock, lambda *_: None, lambda *one: again.append(one))
    assert await other.recover() == 4
    expected = [(SPOOLED, said[one.recv_seq], one.spooled_at) for one in late]
    assert again == expected
    assert await other.recover() == 4
    assert again == expected, "nothing of it is new"
