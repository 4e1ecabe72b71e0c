"""The bus on a real server that is killed, wiped and started again."""

import asyncio
import itertools
import shutil
from contextlib import aclosing, asynccontextmanager, suppress

import pytest

from noetl.bus import link as links
from noetl.bus import publishing, pulls, streams, subjects
from noetl.bus.address import Address
from noetl.bus.base import BusGone, Delivery, Letter, TooLarge
from noetl.bus.link import Link
from noetl.bus.nats import NatsBus
from noetl.bus.streams import StreamDrift
from tests.servers.nats import wipe

LONG_S = 10.0
SUBJECT = subjects.commands("shared", "7")


@asynccontextmanager
async def opened(url, **more):
    bus = await NatsBus.open(url, **more)
    try:
        yield bus
    finally:
        await bus.close()


@asynccontextmanager
async def ready(url, **more):
    async with opened(url, **more) as bus:
        await bus.ready(LONG_S)
        yield bus


@asynccontextmanager
async def linked(url):
    link = await Link.open(Address.of(url))
    try:
        yield link
    finally:
        await link.close()


async def published(bus, payload, msg_id):
    """Publish, as often as the bus is away."""
    async with asyncio.timeout(LONG_S):
        while True:
            try:
                return await bus.publish(SUBJECT, payload, msg_id)
            except BusGone:
                await back(bus)


async def back(bus):
    """Wait for the bus, whatever it says."""
    try:
        await bus.ready(LONG_S)
    except StreamDrift:
        await asyncio.sleep(0.01)


async def fetched(bus, timeout_s=LONG_S):
    """Fetch, as often as the bus is away."""
    async with asyncio.timeout(LONG_S):
        while True:
            try:
                messages = await bus.hints("shared").fetch(10, timeout_s)
            except BusGone:
                await bus.ready(LONG_S)
                continue
            return [message.payload for message in messages]


@pytest.mark.parametrize("is_wiped", [False, True])
async def test_a_killed_server_comes_back_and_everything_goes_on(own_nats, is_wiped):
    async with ready(own_nats.url) as bus, bus.listen("noetl.control.>") as words:
        assert await published(bus, b"before", "1") is True
        assert await fetched(bus) == [b"before"]
        waiting = asyncio.create_task(bus.hints("shared").fetch(10, 60))
        await asyncio.sleep(0.05)
        own_nats.kill()
        with pytest.raises(BusGone):
            await waiting
        for call in (bus.publish(SUBJECT, b"x", "x"), bus.tell("x", b"")):
            with pytest.raises(BusGone):
                await call
        assert not bus.is_connected
        if is_wiped:
            shutil.rmtree(own_nats.nats.store_dir)
        port = own_nats.nats.port
        own_nats.spawn()
        await own_nats.ready()
        assert own_nats.nats.port == port
        again = asyncio.create_task(fetched(bus))
        assert await published(bus, b"after", "2") is True
        assert await again == [b"after"]
        await bus.tell(subjects.control("shared"), b"word")
        async with aclosing(words):
            assert (await anext(words)).payload == b"word"
        assert bus.connections == 2


class Load:
    """What a server is busy with, and how far that is."""

    def __init__(self):
        self.counts = {"published": 0, "fetched": 0, "heard": 0}
        self._moved = asyncio.Event()

    def _count(self, key, more):
        self.counts[key] += more
        self._moved.set()

    async def publish(self, bus):
        for number in itertools.count():
            letters = [Letter(SUBJECT, b"x" * 300, f"{id(bus)}-{number}-{n}") for n in range(20)]
            with suppress(BusGone):
                await bus.tell(subjects.control("shared"), b"")
                self._count("published", await bus.publish_many(letters))
            await asyncio.sleep(0.001)

    async def fetch(self, bus):
        while True:
            try:
                messages = await bus.hints("shared").fetch(64, 3)
            except BusGone:
                await asyncio.sleep(0.005)
                continue
            self._count("fetched", len(messages))
            for message in messages:
                await message.ack()

    async def hear(self, words):
        async for _ in words:
            self._count("heard", 1)

    async def goes_on(self):
        """Wait until everything has moved."""
        before = dict(self.counts)
        async with asyncio.timeout(LONG_S):
            for key, count in before.items():
                while self.counts[key] == count:
                    self._moved.clear()
                    await self._moved.wait()


async def test_a_server_that_dies_again_and_again_under_load_leaves_nobody_behind(own_nats):
    faults = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: faults.append(about))
    load, url = Load(), own_nats.url
    async with ready(url) as bus, ready(url) as other, bus.listen("noetl.control.*") as words:
        work = (load.hear(words), load.publish(bus), load.publish(other), load.fetch(bus))
        tasks = [asyncio.create_task(each) for each in (*work, load.fetch(other))]
        for round_ in range(6):
            await asyncio.sleep(0.05 + 0.03 * round_)
            (own_nats.kill if round_ % 2 else own_nats.stop)()
            if round_ in {2, 3}:
                shutil.rmtree(own_nats.nats.store_dir)
            own_nats.spawn()
            await own_nats.ready()
            await load.goes_on()
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in ended} == {asyncio.CancelledError}
    assert faults == []


async def test_files_that_are_deleted_under_a_running_server_heal(own_nats, monkeypatch):
    monkeypatch.setattr(publishing, "ANSWER_S", 0.5)
    async with ready(own_nats.url) as bus:
        await bus.publish(SUBJECT, b"x", "first")
        shutil.rmtree(own_nats.nats.store_dir)
        silences = 0
        for number in range(20):  # a file of a stream takes 8 MB
            try:
                await bus.publish(SUBJECT, b"x" * 1_000_000, f"{number}")
            except BusGone:
                silences += 1
        assert silences == 3
        assert await bus.publish(SUBJECT, b"x", "last") is True


async def test_streams_that_are_deleted_are_made_again_by_whoever_misses_them(clean_nats_url):
    async with ready(clean_nats_url) as bus, ready(clean_nats_url) as other:
        await bus.publish(SUBJECT, b"before", "1")
        waiting = asyncio.create_task(fetched(other))
        assert await waiting == [b"before"]
        parked = asyncio.create_task(fetched(other))
        await asyncio.sleep(0.05)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await wipe(clean_nats_url)
        results = await asyncio.gather(
            *(bus.publish(SUBJECT, b"%d" % n, f"n{n}") for n in range(20))
        )
        assert results == [True] * 20
        assert loop.time() - began >= 0.25  # the old files are gone by then
        found = await parked
        while len(found) < 20:
            found += await fetched(other)
        assert sorted(found) == sorted(b"%d" % n for n in range(20))
        assert (bus.connections, other.connections) == (1, 1)


async def test_a_consumer_that_is_deleted_is_made_again(clean_nats_url):
    async with ready(clean_nats_url) as bus, linked(clean_nats_url) as link:
        assert await bus.hints("shared").fetch(1, 0) == []
        name = f"CONSUMER.DELETE.{subjects.COMMANDS_STREAM}.{subjects.consumer('shared')}"
        await link.call(name)
        await bus.publish(SUBJECT, b"a", "1")
        assert await fetched(bus) == [b"a"]
        waiting = asyncio.create_task(fetched(bus))
        await asyncio.sleep(0.05)
        await link.call(name)
        await bus.publish(SUBJECT, b"b", "2")
        found = await waiting  # a new consumer begins where the stream does
        while b"b" not in found:
            found += await fetched(bus)


async def test_a_server_that_is_away_at_first_does_not_keep_anyone_from_starting(own_nats):
    own_nats.kill()
    async with opened(own_nats.url) as bus:
        with pytest.raises(BusGone, match="away"):
            await bus.publish(SUBJECT, b"a", "1")
        with pytest.raises(BusGone, match=r"127\.0\.0\.1") as caught:
            await bus.ready(0.2)
        assert own_nats.nats.password not in str(caught.value)
        with pytest.raises(BusGone):
            await bus.listen("x").__aenter__()
        own_nats.spawn()
        await bus.ready(LONG_S)
        assert await bus.publish(SUBJECT, b"a", "1") is True


async def test_a_wrong_password_is_said_and_the_right_one_may_be_given_apart(
    clean_nats_url, nats_server
):
    assert clean_nats_url == nats_server.url
    address = nats_server.nats.address
    async with opened(address, user="noetl", password="wrong") as bus:  # noqa: S106 - is refused
        with pytest.raises(BusGone) as caught:
            await bus.ready(0.2)
        assert "Are user and password right?" in caught.value.hint
    async with opened(address, user="noetl", password=nats_server.nats.password) as bus:
        await bus.ready(LONG_S)


async def test_a_request_that_is_never_heard_of_is_made_again(clean_nats_url, monkeypatch):
    monkeypatch.setattr(pulls, "GRACE_S", 0.05)
    async with ready(clean_nats_url) as bus:
        assert await bus.hints("shared").fetch(1, 0) == []
        (lane,) = bus.hints("shared")._idle  # noqa: SLF001 - the broker forgets it
        await lane.link.unhear(lane._subscription)  # noqa: SLF001 - the broker forgets it
        publishing = asyncio.create_task(bus.publish(SUBJECT, b"a", "1"))
        assert await bus.hints("shared").fetch(1, 0.1) == []
        await publishing
        assert bus.hints("shared")._idle == []  # noqa: SLF001 - the lane was given up


async def test_what_has_drifted_is_repaired_in_place(own_nats):
    wanted = streams.commands(Delivery())
    async with linked(own_nats.url) as link:
        old = wanted.config() | {"max_age": 60 * 10**9, "duplicate_window": 10**9}
        await link.call(f"STREAM.CREATE.{wanted.name}", old)
        await link.send(SUBJECT, b"kept")
        said = await streams.declare(link, streams.core())
        assert said == [
            "repaired NOETL_COMMANDS: max_age, duplicate_window",
            "made NOETL_EVENTS",
        ]
        assert await streams.declare(link, streams.core()) == []
        info = await link.call(f"STREAM.INFO.{wanted.name}")
        assert info["state"]["messages"] == 1
        for key, value in wanted.config().items():
            assert info["config"][key] == value
        before = streams.consumer("shared", Delivery(ack_wait_s=1.0))
        after = streams.consumer("shared")
        for consumer in (before, after, after):
            await streams.join(link, consumer)
        name = f"CONSUMER.INFO.{wanted.name}.{subjects.consumer('shared')}"
        kept = (await link.call(name))["config"]
        for key, value in after.config().items():
            assert kept[key] == value


async def test_what_cannot_be_repaired_is_refused_by_name(own_nats):
    wanted = streams.commands(Delivery())
    async with linked(own_nats.url) as link:
        await link.call(f"STREAM.CREATE.{wanted.name}", wanted.config() | {"storage": "memory"})
        async with opened(own_nats.url) as bus:
            with pytest.raises(StreamDrift, match=r"NOETL_COMMANDS \(storage\)") as caught:
                await bus.ready(LONG_S)
            assert caught.value.hint
            with pytest.raises(BusGone, match="NOETL_COMMANDS"):
                await bus.publish(SUBJECT, b"a", "1")
            await link.call(f"STREAM.DELETE.{wanted.name}")
            assert await published(bus, b"a", "1") is True
        await wipe(own_nats.url)
        await link.call("STREAM.CREATE.OTHER", {"name": "OTHER", "subjects": ["noetl.events.>"]})
        with pytest.raises(StreamDrift, match="the stream NOETL_EVENTS: subjects overlap"):
            await streams.declare(link, streams.core())


async def test_every_stream_and_bucket_can_be_declared(clean_nats_url):
    every = (*streams.core(), streams.CLIENTS, *streams.BUCKETS, streams.SPOOL)
    async with linked(clean_nats_url) as link:
        assert len(await streams.declare(link, every)) == len(every)
        assert await streams.declare(link, every) == []


async def test_two_who_declare_at_the_same_time_agree(clean_nats_url):
    async with linked(clean_nats_url) as link:
        await asyncio.gather(*(streams.declare(link, streams.core()) for _ in range(10)))
        assert await streams.declare(link, streams.core()) == []


async def test_headers_go_with_a_message(clean_nats_url):
    async with ready(clean_nats_url) as bus, linked(clean_nats_url) as link:
        heard = asyncio.Queue()
        await link.hear("noetl.events.>", heard.put)
        await link.flush()
        letter = Letter(subjects.events("t", "o", "7", 0), b"{}", "9", (("Noetl-Request", "r"),))
        assert await bus.publish_many([letter]) == 1
        assert (await heard.get()).headers == {"Nats-Msg-Id": "9", "Noetl-Request": "r"}


async def test_what_is_too_large_is_not_tried_again(clean_nats_url):
    async with ready(clean_nats_url) as bus:
        with pytest.raises(TooLarge, match="9000000 bytes"):
            await bus.publish(SUBJECT, b"x" * 9_000_000, "1")
        assert await bus.publish(SUBJECT, b"x", "1") is True


async def test_a_broker_that_does_not_answer_costs_a_moment(clean_nats_url, monkeypatch):
    monkeypatch.setattr(links, "ANSWER_S", 0.05)
    monkeypatch.setattr(publishing, "ANSWER_S", 0.05)
    async with ready(clean_nats_url) as bus, linked(clean_nats_url) as link:
        await link.hear("nobody.answers", asyncio.Queue().put)
        with pytest.raises(BusGone, match="kept no message"):
            await bus.publish("nobody.answers", b"x", "1")
        with pytest.raises(BusGone, match="no stream"):
            await bus.publish("nobody.listens", b"x", "1")


async def test_many_publishers_share_one_connection(clean_nats_url):
    async with ready(clean_nats_url) as bus:
        letters = [Letter(SUBJECT, b"x", f"{n}") for n in range(2000)]
        chunks = [letters[start : start + 100] for start in range(0, 2000, 100)]
        assert sum(await asyncio.gather(*map(bus.publish_many, chunks))) == 2000
        count = 0
        while count < 2000:
            messages = await bus.hints("shared").fetch(256, LONG_S)
            count += len(messages)
            for message in messages:
                await message.ack()
        assert bus.connections == 1
