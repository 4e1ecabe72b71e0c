"""Stores far away: how often they are asked, how long, and what is said of their faults."""

import asyncio

import pytest

from noetl.blobs.objects import open_store
from noetl.blobs.spool.base import SpoolError, SpoolTaken
from noetl.blobs.spool.memory import MemoryStore
from noetl.blobs.spool.objects import BucketStore
from noetl.blobs.spool.retried import PAUSES_S, TIMEOUT_S, Retried
from tests.fakes.objects import RefusingStore
from tests.unit.blobs.spool.samples import PLACE, item, spool_of

KEY = PLACE.waiting + item(1).name
FIELDS = {"access_key_id": "key-id", "secret_access_key": "a-secret-of-a-test"}


class Flaky(MemoryStore):
    """Fails so many times, before or after it did what it was asked for."""

    def __init__(self, times, *, is_done=False):
        super().__init__()
        self.times = times
        self.is_done = is_done
        self.asked = 0

    async def put_new(self, key, data):
        self.asked += 1
        if self.asked > self.times or self.is_done:
            await super().put_new(key, data)
        if self.asked <= self.times:
            raise SpoolError("not now")


@pytest.fixture
def refusing():
    made = RefusingStore()
    yield made
    made.stop()


def test_a_call_has_ten_seconds_and_three_tries():
    assert (TIMEOUT_S, len(PAUSES_S) + 1) == (10.0, 3)


async def test_two_failures_are_made_good_and_three_are_not():
    store = Flaky(2)
    await Retried(store, pauses_s=(0, 0)).put_new(KEY, b"x")
    assert (store.asked, await store.get(KEY)) == (3, b"x")
    store = Flaky(3)
    with pytest.raises(SpoolError):
        await Retried(store, pauses_s=(0, 0)).put_new(KEY, b"x")
    assert (store.asked, await store.get(KEY)) == (3, None)


async def test_a_write_whose_answer_was_lost_is_found_by_the_next_try():
    store = Flaky(1, is_done=True)
    await Retried(store, pauses_s=(0, 0)).put_new(KEY, b"x")
    assert (store.asked, await store.get(KEY)) == (2, b"x")


async def test_what_is_taken_is_not_tried_again():
    store = Flaky(0)
    await store.put(KEY, b"other")
    with pytest.raises(SpoolTaken):
        await Retried(store, pauses_s=(0, 0)).put_new(KEY, b"x")
    assert store.asked == 1


async def test_a_store_that_keeps_silent_is_given_up():
    class Silent(MemoryStore):
        async def get(self, _key):
            await asyncio.Event().wait()

    with pytest.raises(SpoolError, match=r"did not answer in 0\.01 s"):
        await Retried(Silent(), 0.01, (0, 0)).get(KEY)


@pytest.mark.parametrize("status", [500, 503, 403], ids=str)
async def test_25_a_bucket_that_refuses_stores_nothing(refusing, status):
    refusing.refuse_with(status, "InternalError", f"no bucket at {refusing.url}")
    library = open_store("s3://b", FIELDS | {"endpoint": refusing.url}, retries=0)
    store = Retried(BucketStore(library, "s3", "spools"), pauses_s=(0, 0))
    spool, told = spool_of(store)
    with pytest.raises(SpoolError) as caught:
        await spool.put(item(1))
    assert refusing.url not in str(caught.value)
    assert "a-secret" not in str(caught.value)
    assert [method for method, _ in refusing.asked] == ["PUT"] * 3
    assert (spool.pending(), spool.size_bytes, told) == (0, 0, [])
