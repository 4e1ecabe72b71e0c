"""What every store of waiting messages does, and what a spool does on each; the fixture `store`."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import nats
import pytest

from noetl.blobs.base import InvalidKey
from noetl.blobs.objects import open_store
from noetl.blobs.spool.base import Listed, Size, SpoolError, SpoolTaken
from noetl.blobs.spool.item import Item, sha256_of
from noetl.blobs.spool.jetstream import CHUNK_BYTES, JetStreamStore
from noetl.blobs.spool.memory import MemoryStore
from noetl.blobs.spool.objects import BucketStore
from noetl.blobs.spool.opening import Means, opened
from noetl.blobs.spool.retried import Retried
from noetl.blobs.spool.rules import Place, Rules
from noetl.blobs.spool.spool import Spool
from noetl.bus.address import Address
from noetl.bus.broker import Broker
from noetl.bus.objects import NatsObjects
from noetl.bus.streams import ApiFault
from noetl.clock import SystemClock
from noetl.dsl.subscription.spool import Spool as Document
from noetl.ids import Ids, random_key
from tests.unit.intake.world import World, message, settled, until

PLACE = Place("default", "subscriptions/meters")
FOLDER = PLACE.waiting
KEY = f"{FOLDER}00000000000000000007-a.json"
BIG = bytes(range(256)) * (CHUNK_BYTES // 256) * 2 + b"end"
LONG_S = 30.0
BACKENDS = ["memory", "local_disk", "s3", "gcs", "nats_object"]


@pytest.fixture(params=BACKENDS)
async def store(request, tmp_path):
    """A store of each kind, opened as a document says."""
    if request.param == "memory":
        yield MemoryStore()
        return
    if request.param == "local_disk":
        meant = Document(backend="local_disk", path="spool")
        async with opened(meant, PLACE, Means(home=tmp_path)) as made:
            yield made
        return
    if request.param == "nats_object":
        async with broker_at(request.getfixturevalue("nats_url")) as (broker, bucket):
            means = Means(home=tmp_path, messages=lambda name: NatsObjects(broker, name))
            meant = Document(backend="nats_object", bucket=f"{bucket}/some/prefix")
            async with opened(meant, PLACE, means) as made:
                yield made
        return
    server = request.getfixturevalue(f"{request.param}_server")
    meant = Document(backend=request.param, bucket=f"{server.bucket()}/some/prefix")
    async with opened(meant, PLACE, Means(home=tmp_path, fields=server.fields)) as made:
        yield made


@asynccontextmanager
async def broker_at(url):
    """A broker, and the name of a bucket that goes with the block."""
    broker, bucket = Broker(Address.of(url), ()), f"b{random_key()[:12]}"
    broker.start()
    try:
        await broker.ready(10)
        yield broker, bucket
        with suppress(ApiFault):  # a test that stored nothing made no bucket
            await broker.here().call(f"STREAM.DELETE.OBJ_{bucket}")
    finally:
        await broker.close()


@pytest.fixture
async def spool(store):
    told = []
    made = Spool(store, PLACE, Rules(), SystemClock(), lambda *event: told.append(event))
    made.told = told
    await made.recover()
    return made


_ids = Ids(SystemClock(), 7)


def item(lane="m-9", message_id="plant.meters:3:77", downstream="tsdb", **fields):
    message = {"id": message_id, "data": {"n": 1.5, "é": [None, 2**70]}, "headers": {}}
    plan = {"playbook": "plant/store_reading", "execution_pool": "meters", "trace": None}
    given = {
        "subscription": PLACE.path,
        "source": "kafka",
        "message_id": message_id,
        "recv_seq": _ids.new(),
        "ordering_key": lane,
        "downstream": downstream,
        "dispatch_key": "m:k-1",
        "sha256": sha256_of(message, plan),
        "spooled_at": "2026-05-01T10:00:00.000Z",
        "reason": "circuit_open",
        "spec_version": 4,
        "plan": plan,
        "message": message,
    }
    return Item(**given | fields)


def key_of(one, folder=FOLDER):
    return folder + one.name


async def drained(spool, *downstreams):
    """What comes out, one after the other."""
    found = []
    while (entry := spool.take(downstreams or ("tsdb",))) is not None:
        found.append(await spool.get(entry))
        await spool.done(entry)
    return found


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\x00\xff\n", BIG], ids=["none", "json", "raw", "big"]
)
async def test_what_was_put_comes_back(store, data):
    await store.put_new(KEY, data)
    assert await store.get(KEY) == data
    assert await store.list(FOLDER) == [Listed(KEY, len(data))]
    assert await store.size(FOLDER) == Size(1, len(data))


async def test_a_new_object_is_created_once(store):
    await store.put_new(KEY, b"first")
    await store.put_new(KEY, b"first")
    with pytest.raises(SpoolTaken):
        await store.put_new(KEY, b"second")
    assert await store.get(KEY) == b"first"
    assert await store.size(FOLDER) == Size(1, 5)


async def test_of_new_objects_at_once_one_is_there(store):
    values = [str(n).encode() * 100 for n in range(5)]
    tries = [store.put_new(KEY, value) for value in values]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    won = [value for value, fault in zip(values, outcomes, strict=True) if fault is None]
    assert [await store.get(KEY)] == won
    assert [type(fault) for fault in outcomes if fault is not None] == [SpoolTaken] * 4
    assert await store.list(FOLDER) == [Listed(KEY, 100)]


async def test_a_second_put_replaces_the_first(store):
    await store.put(KEY, BIG)
    await store.put(KEY, b"b")
    assert await store.get(KEY) == b"b"
    assert await store.size(FOLDER) == Size(1, 1)


async def test_what_is_not_there_is_not_there(store):
    assert await store.get(KEY) is None
    assert list(await store.list(FOLDER)) == []
    assert await store.size(FOLDER) == Size()
    await store.delete(KEY)


async def test_what_was_deleted_is_gone_and_may_come_again(store):
    await store.put_new(KEY, b"x")
    await store.delete(KEY)
    await store.delete(KEY)
    assert await store.get(KEY) is None
    assert list(await store.list(FOLDER)) == []
    await store.put_new(KEY, b"y")
    assert await store.get(KEY) == b"y"


async def test_objects_are_listed_in_pages_and_in_order(store):
    names = [f"{n:020d}-x.json" for n in (30, 4, 5, 100, 7)]
    for name in names:
        await store.put_new(FOLDER + name, name.encode())
    await store.put_new(f"{FOLDER}more/{names[0]}", b"of another folder")
    await store.put_new(f"{PLACE.dead}{names[0]}", b"a dead letter")
    keys = [FOLDER + name for name in sorted(names)]
    assert [one.key for one in await store.list(FOLDER)] == keys
    first = [one.key for one in await store.list(FOLDER, limit=2)]
    second = [one.key for one in await store.list(FOLDER, first[-1], 2)]
    third = [one.key for one in await store.list(FOLDER, second[-1], 2)]
    assert (first, second, third) == (keys[:2], keys[2:4], keys[4:])
    assert list(await store.list(FOLDER, keys[-1], 2)) == []
    assert [one.key for one in await store.list(FOLDER, f"{FOLDER}{6:020d}", 9)] == keys[2:]
    assert await store.size(FOLDER) == Size(5, sum(map(len, names)))


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/../b", ".a", "a b", "é", "a\0b"])
async def test_a_key_that_could_lead_elsewhere_is_refused(store, key):
    for call in (store.put_new(key, b""), store.put(key, b""), store.get(key), store.delete(key)):
        with pytest.raises(InvalidKey):
            await call


async def test_an_item_is_spooled_with_reference_and_digest_and_comes_out(store, spool):
    one = item()
    assert await spool.put(one)
    assert await store.get(key_of(one)) == one.encode()
    assert spool.told[-1] == (
        "subscription.message.spooled",
        {
            "message_id": "plant.meters:3:77",
            "recv_seq": one.recv_seq,
            "spool_ref": f"noetl://spool/subscriptions/meters/{one.recv_seq}/plant.meters%3A3%3A77",
            "sha256": one.sha256,
            "downstream": "tsdb",
            "reason": "circuit_open",
            "bytes": len(one.encode()),
        },
    )
    assert (spool.pending(), spool.pending("tsdb"), spool.pending("other")) == (1, 1, 0)
    assert await drained(spool) == [one]
    assert (spool.pending(), spool.size_bytes) == (0, 0)
    assert await store.size(FOLDER) == Size()


async def test_what_waits_is_found_again_after_a_restart_in_order_per_key(store, spool):
    items = [item(lane=f"m-{n % 3}", message_id=f"t:{n}") for n in range(20)]
    await asyncio.gather(*map(spool.put, items))
    await store.put(f"{FOLDER}readme.txt", b"not ours")
    told = []
    again = Spool(store, PLACE, Rules(), SystemClock(), lambda *event: told.append(event))
    assert await again.recover() == 20
    about = {"pending": 20, "recv_seq_high_water": items[-1].recv_seq, "backend": store.name}
    assert told == [("subscription.spool.recovered", about)]
    assert (again.foreign, again.size_bytes) == (1, spool.size_bytes)
    assert await drained(again) == items
    assert [one.key for one in await store.list(FOLDER)] == [f"{FOLDER}readme.txt"]


async def test_one_flipped_bit_makes_a_dead_letter_that_is_never_dispatched(store, spool):
    bad, good = item(message_id="bad"), item(message_id="good")
    await spool.put(bad)
    await spool.put(good)
    data = bytearray(bad.encode())
    place = data.index(b'"n":1.5') + 4
    data[place] ^= 2
    await store.put(key_of(bad), bytes(data))
    assert await drained(spool) == [None, good]
    assert await store.get(key_of(bad, PLACE.dead)) == bytes(data)
    assert await store.get(key_of(bad)) is None
    kind, about = spool.told[-1]
    assert kind == "subscription.message.dead_lettered"
    assert (about["reason"], about["message_id"], about["sha256"]) == ("corrupt", "bad", None)
    assert spool.pending() == 0
    assert spool.dead_letters.size == Size(1, len(data))


async def test_an_item_that_cannot_be_read_at_the_start_becomes_a_dead_letter_unchanged(store):
    one = item()
    await store.put(key_of(one), b'{"v": 1')
    told = []
    spool = Spool(store, PLACE, Rules(), SystemClock(), lambda *event: told.append(event))
    assert await spool.recover() == 0
    assert await store.get(key_of(one, PLACE.dead)) == b'{"v": 1'
    assert told[0][1]["reason"] == "corrupt"


async def test_attempts_are_stored_outside_of_the_digest(store, spool):
    one = item()
    await spool.put(one)
    entry = spool.take(["tsdb"])
    assert (await spool.attempted(entry, await spool.get(entry))).attempts == 1
    assert spool.take(["tsdb"]) is None
    spool.next_pass()
    entry = spool.take(["tsdb"])
    found = await spool.get(entry)
    assert (found.attempts, found.sha256, found.dispatch_key) == (1, one.sha256, "m:k-1")
    found = await spool.attempted(entry, found, is_new_run=True)
    assert (found.attempts, found.dispatch_key) == (2, "m:k-1#r1")
    assert Item.decode(await store.get(key_of(one))) == found
    assert spool.size_bytes == len(found.encode())


async def test_a_dead_letter_is_redriven_at_its_place_or_discarded(store, spool):
    items = [item(message_id=f"t:{n}") for n in range(3)]
    for one in items:
        await spool.put(one)
    for _ in range(2):
        await spool.dead(spool.take(["tsdb"]), "replay_failed")
    assert spool.pending() == 1
    assert await store.get(key_of(items[0], PLACE.dead)) == items[0].encode()
    assert [one.key for one in await spool.dead_letters.list()] == [
        key_of(one, PLACE.dead) for one in items[:2]
    ]
    redriven = await spool.dead_letters.redrive(items[0].ref)
    assert (redriven.attempts, redriven.dispatch_key) == (0, "m:k-1#r1")
    await spool.dead_letters.discard(items[1].ref, "of no use")
    assert [kind for kind, _ in spool.told[-2:]] == [
        "subscription.message.redriven",
        "subscription.message.discarded",
    ]
    assert spool.dead_letters.size == await store.size(PLACE.dead) == Size()
    assert await drained(spool) == [redriven, items[2]]


async def test_a_second_put_of_the_same_message_is_the_first(store, spool):
    one = item()
    await spool.put(one)
    other = Spool(store, PLACE, Rules(), SystemClock(), lambda *_: None)
    assert await other.put(item(recv_seq=one.recv_seq, spooled_at="2026-05-01T10:00:01.000Z"))
    assert await store.get(key_of(one)) == one.encode()
    with pytest.raises(SpoolTaken):
        await Spool(store, PLACE, Rules(), SystemClock(), lambda *_: None).put(
            item(recv_seq=one.recv_seq, message={}, sha256=sha256_of({}, one.plan))
        )


async def test_19_the_drill_of_an_outage(store):
    target = {"name": "tsdb", "probe": "tcp", "target": "tsdb:5432"}
    pace = {"trip_after": 2, "probe_after_ms": 100, "probe_interval_ms": 100}
    world = World(spool={"circuit": {"downstream": [target], **pace}})
    world.store = store
    async with world.running() as engine:
        world.up["tsdb:5432"] = False
        await until(lambda: world.server.told("circuit.opened"), LONG_S)
        assert world.server.requests == []
        found = await engine.intake.handle([message(n, f"k{n % 2}") for n in range(6)])
        assert settled(found) == [("ack", "spooled")] * 6
        assert world.server.started == []
        assert len(await world.objects()) == 6
        world.up["tsdb:5432"] = True
        await until(lambda: world.server.told("spool.drained"), LONG_S)
        await engine.audit.flush()
    spooled = world.server.told("message.spooled")
    assert sorted(one["message_id"] for one in spooled) == [f"S:{n}" for n in range(6)]
    assert [len(one["sha256"]) for one in spooled] == [64] * 6
    refs = sorted(start.ingress.spool_ref for start in world.server.starts)
    assert refs == sorted(one["spool_ref"] for one in spooled)
    for lane in (0, 1):
        names = [f"S:{n}" for n in range(lane, 6, 2)]
        assert [name for name in world.server.started if name in names] == names
    assert [one["downstream"] for one in world.server.told("circuit.closed")] == ["tsdb"]
    told = {"replayed": 6, "deduped": 0, "dead_lettered": 0, "remaining": 0}
    assert world.server.told("spool.drained") == [told]
    assert await world.objects() == []


async def test_objects_on_a_broker_are_those_that_every_client_knows(nats_url):
    address = Address.of(nats_url)
    async with broker_at(nats_url) as (broker, bucket), AsyncExitStack() as stack:
        store = JetStreamStore(NatsObjects(broker, bucket))
        await store.put_new(KEY, BIG)
        await store.put_new(f"{FOLDER}deleted", b"x")
        client = await nats.connect(
            list(address.servers), user=address.user, password=address.password
        )
        stack.push_async_callback(client.close)
        theirs = await client.jetstream().object_store(bucket)
        found = await theirs.get(KEY)
        assert (found.data, found.info.size, found.info.chunks) == (BIG, len(BIG), 3)
        await store.put(KEY, b"another")
        assert (await theirs.get(KEY)).data == b"another"
        await theirs.put(f"{FOLDER}more", b"of theirs")
        assert await store.get(f"{FOLDER}more") == b"of theirs"
        await theirs.delete(f"{FOLDER}deleted")
        assert await store.get(f"{FOLDER}deleted") is None
        await store.put_new(f"{FOLDER}deleted", b"again")
        await store.delete(KEY)
        assert sorted(one.name for one in await theirs.list(ignore_deletes=True)) == [
            f"{FOLDER}deleted",
            f"{FOLDER}more",
        ]
        info = await broker.here().call(f"STREAM.INFO.OBJ_{bucket}")
        assert info["state"]["messages"] == 4  # a deleted object leaves nothing
        assert info["config"]["num_replicas"] == 1


async def test_a_bucket_that_is_opened_tells_its_copies_and_is_made_when_it_is_missing(
    nats_url, tmp_path, caplog
):
    async with broker_at(nats_url) as (broker, bucket):
        meant = Document(backend="nats_object", bucket=bucket)
        means = Means(home=tmp_path, messages=lambda name: NatsObjects(broker, name))
        for _ in range(2):
            async with opened(meant, PLACE, means):
                info = await broker.here().call(f"STREAM.INFO.OBJ_{bucket}")
                assert info["config"]["num_replicas"] == 1
        lines = [one for one in caplog.records if one.levelname == "WARNING"]
        assert [(one.bucket, one.copies) for one in lines] == [(bucket, 1)] * 2


async def test_a_broker_that_is_away_stores_nothing_and_is_used_again_unaided(own_nats):
    async with broker_at(own_nats.url) as (broker, bucket):
        store = Retried(JetStreamStore(NatsObjects(broker, bucket)), pauses_s=(0, 0))
        await store.put_new(KEY, b"1")
        own_nats.kill()
        with pytest.raises(SpoolError):
            await store.put_new(f"{FOLDER}2", b"2")
        own_nats.spawn()
        await own_nats.ready()
        await broker.ready(10)
        assert await store.get(KEY) == b"1"
        await store.put_new(f"{FOLDER}2", b"2")
        assert await store.size(FOLDER) == Size(2, 2)


async def test_objects_of_a_bucket_lie_below_its_prefix(s3_server, tmp_path):
    bucket = s3_server.bucket()
    meant = Document(backend="s3", bucket=f"s3://{bucket}/some/prefix/")
    async with opened(meant, PLACE, Means(home=tmp_path, fields=s3_server.fields)) as store:
        await store.put_new(KEY, b"x")
    whole = BucketStore(open_store(f"s3://{bucket}", s3_server.fields), "s3")
    assert await whole.get(f"some/prefix/{KEY}") == b"x"
