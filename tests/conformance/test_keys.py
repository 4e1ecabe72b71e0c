"""What every bucket of keys does."""

import asyncio
import contextlib

import pytest

from noetl.bus.base import BusGone
from noetl.bus.gateway import GatewayBus, MemoryGatewayBus
from noetl.bus.keys import BadKey, Entry, KeyChanged

LONG_S = 10.0


async def on_memory(_url):
    return MemoryGatewayBus()


async def on_nats(url):
    bus = await GatewayBus.open(url, sessions_bucket="my_sessions")
    await bus.ready(LONG_S)
    return bus


@pytest.fixture(params=[on_memory, on_nats])
async def bus(request, clean_nats_url):
    bus = await request.param(clean_nats_url)
    yield bus
    await bus.close()


@pytest.fixture
def keys(bus):
    return bus.sessions


async def test_a_key_has_its_newest_value(keys):
    assert await keys.get("s.1") is None
    first = await keys.put("s.1", b"a")
    second = await keys.put("s.1", b"b", ttl_s=60)
    assert 0 < first < second
    assert await keys.get("s.1") == Entry("s.1", b"b", second)
    assert await keys.get("s") is None


async def test_buckets_are_apart(bus):
    await bus.sessions.put("a", b"1")
    assert await bus.requests.get("a") is None
    assert await bus.circuits.get("a") is None


async def test_a_key_may_be_empty_and_a_value_any_bytes(keys):
    await keys.put("a", b"")
    value = bytes(range(256)) * 1000
    await keys.put("b", value)
    assert (await keys.get("a")).value == b""
    assert (await keys.get("b")).value == value


async def test_only_a_missing_key_is_created(keys):
    revision = await keys.create("a.b", b"1", ttl_s=60)
    with pytest.raises(KeyChanged) as caught:
        await keys.create("a.b", b"2")
    assert (caught.value.code, caught.value.status) == ("revision_conflict", 409)
    assert await keys.get("a.b") == Entry("a.b", b"1", revision)


async def test_a_deleted_key_is_missing_and_may_be_created(keys):
    first = await keys.create("a.b", b"1")
    await keys.delete("a.b")
    assert await keys.get("a.b") is None
    assert await keys.names("a") == []
    assert await keys.create("a.b", b"2") > first
    await keys.delete("never.was")
    assert await keys.names("never") == []


async def test_only_the_revision_that_was_read_is_updated(keys):
    first = await keys.put("a", b"1")
    second = await keys.update("a", b"2", first)
    for stale in (first, 0, second + 100):
        with pytest.raises(KeyChanged):
            await keys.update("a", b"3", stale)
    assert await keys.get("a") == Entry("a", b"2", second)
    with pytest.raises(KeyChanged):
        await keys.update("missing", b"", first)


async def test_only_the_revision_that_was_read_is_deleted(keys):
    first = await keys.put("a", b"1")
    second = await keys.put("a", b"2")
    for stale in (first, second + 100):
        with pytest.raises(KeyChanged):
            await keys.delete("a", stale)
    assert (await keys.get("a")).value == b"2"
    await keys.delete("a", second)
    assert await keys.get("a") is None
    with pytest.raises(KeyChanged):
        await keys.delete("a", second)


async def one_of(*tries):
    """How many succeed; the others find that somebody was faster."""
    ended = await asyncio.gather(*tries, return_exceptions=True)
    assert {type(each) for each in ended if isinstance(each, Exception)} == {KeyChanged}
    return sum(not isinstance(each, Exception) for each in ended)


async def test_of_many_who_create_update_or_delete_one_succeeds(keys):
    assert await one_of(*(keys.create("k", b"%d" % n) for n in range(20))) == 1
    revision = (await keys.get("k")).revision
    assert await one_of(*(keys.update("k", b"%d" % n, revision) for n in range(20))) == 1
    revision = (await keys.get("k")).revision
    assert await one_of(*(keys.delete("k", revision) for _ in range(20))) == 1
    assert await keys.get("k") is None


async def test_many_who_count_together_miss_nothing(keys):
    await keys.put("n", b"0")

    async def count():
        while True:
            found = await keys.get("n")
            try:
                return await keys.update("n", b"%d" % (int(found.value) + 1), found.revision)
            except KeyChanged:
                continue

    async with asyncio.timeout(LONG_S):
        revisions = await asyncio.gather(*(count() for _ in range(20)))
    assert (await keys.get("n")).value == b"20"
    assert len(set(revisions)) == 20


async def test_creating_and_deleting_by_turns_comes_to_an_end(keys):
    async def turn():
        for _ in range(10):
            with contextlib.suppress(KeyChanged):
                await keys.delete("t.x", await keys.create("t.x", b"1"))

    await asyncio.gather(*(turn() for _ in range(4)))
    assert await keys.names("t") == []


async def forgotten(keys, key):
    """Look until the key is there no more: nobody tells when its time is over."""
    while True:
        if await keys.get(key) is None:
            return
        await asyncio.sleep(0.02)


async def test_a_key_is_forgotten_after_its_time_unless_it_is_set_again(keys):
    await keys.put("t.short", b"1", ttl_s=0.3)
    await keys.put("t.renewed", b"1", ttl_s=0.3)
    await keys.put("t.renewed", b"2", ttl_s=600)
    await keys.create("t.kept", b"1")
    assert sorted(await keys.names("t")) == ["t.kept", "t.renewed", "t.short"]
    async with asyncio.timeout(LONG_S):
        await forgotten(keys, "t.short")
    assert sorted(await keys.names("t")) == ["t.kept", "t.renewed"]
    assert (await keys.get("t.renewed")).value == b"2"
    assert await keys.create("t.short", b"2", ttl_s=600) > 0


async def test_names_are_those_below_a_prefix(keys):
    for key in ("c.1.a", "c.1.b", "c.10.c", "c.1", "cc.1.d", "u.1.a"):
        await keys.put(key, b"")
    assert sorted(await keys.names("c.1")) == ["c.1.a", "c.1.b"]
    assert sorted(await keys.names("c")) == ["c.1", "c.1.a", "c.1.b", "c.10.c"]
    assert await keys.names("c.2") == []
    assert len(await keys.names("")) == 6


async def test_who_watches_hears_what_is_kept_from_now_on(keys):
    await keys.put("w.a", b"before")
    async with keys.watch("w.a") as entries:
        for other in ("w", "w.a.b", "w.b", "v.a"):
            await keys.put(other, b"1")
        revision = await keys.put("w.a", b"1", ttl_s=60)
        with pytest.raises(KeyChanged):
            await keys.update("w.a", b"refused", revision + 1)
        await keys.delete("w.a")
        last = await keys.create("w.a", b"")
        async with asyncio.timeout(LONG_S):
            heard = [await anext(entries) for _ in range(3)]
    assert heard == [
        Entry("w.a", b"1", revision),
        Entry("w.a", b"", 0),
        Entry("w.a", b"", last),
    ]


@pytest.mark.parametrize("key", ["", "a.", ".a", "a..b", "a b", "a.*", ">", "ä", "x" * 513])
async def test_what_is_no_key_is_refused(keys, key):
    for call in (keys.get(key), keys.put(key, b""), keys.create(key, b""), keys.delete(key)):
        with pytest.raises(BadKey):
            await call


async def test_a_closed_bus_has_no_keys(bus, keys):
    async with keys.watch("a") as entries:
        await bus.close()
        assert [entry async for entry in entries] == []
    for call in (keys.get("a"), keys.put("a", b""), keys.create("a", b""), keys.delete("a")):
        with pytest.raises(BusGone):
            await call
    with pytest.raises(BusGone):
        await keys.names("a")
    with pytest.raises(BusGone):
        await keys.watch("a").__aenter__()
    assert not bus.is_connected
