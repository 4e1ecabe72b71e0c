"""What a gateway has on a real broker that is killed, wiped and started again."""

import asyncio
import json
import shutil
from contextlib import asynccontextmanager, suppress

import pytest

from noetl.bus import nats_clients, publishing, streams, subjects
from noetl.bus.address import Address
from noetl.bus.base import BusGone, Delivery, Letter
from noetl.bus.broker import Broker, BrokerTooOld
from noetl.bus.clients import History, Logged
from noetl.bus.gateway import GatewayBus
from noetl.bus.keys import Entry
from noetl.bus.link import Link
from noetl.bus.nats_keys import NatsKeys
from tests.servers.nats import wipe

LONG_S = 10.0


@asynccontextmanager
async def ready(url, **more):
    bus = await GatewayBus.open(url, **more)
    try:
        await bus.ready(LONG_S)
        yield bus
    finally:
        await bus.close()


@asynccontextmanager
async def linked(url):
    link = await Link.open(Address.of(url))
    try:
        yield link
    finally:
        await link.close()


async def until(call):
    """Call, as often as the bus is away."""
    async with asyncio.timeout(LONG_S):
        while True:
            try:
                return await call()
            except BusGone:
                await asyncio.sleep(0.01)


async def noticed(bus):
    """Wait until the bus knows that it is away."""
    async with asyncio.timeout(LONG_S):
        while True:
            if not bus.is_connected:
                return
            await asyncio.sleep(0.01)


async def next_of(words):
    async with asyncio.timeout(LONG_S):
        return await (words.get() if isinstance(words, asyncio.Queue) else anext(words))


class Wire:
    """What is between a gateway and its broker; it can be cut."""

    def __init__(self, nats):
        self.nats = nats
        self.url = ""
        self.is_cut = False
        self.ends = set()
        self.tasks = set()

    def cut(self):
        """Nobody gets through, until `mend`."""
        self.is_cut = True
        for end in self.ends:
            end.close()

    def mend(self):
        """Whoever comes gets through."""
        self.is_cut = False

    async def carry(self, reader, writer):
        """Bring one connection to the broker."""
        self.tasks.add(asyncio.current_task())
        self.ends.add(writer)
        try:
            if not self.is_cut:
                there, away = await asyncio.open_connection("127.0.0.1", self.nats.port)
                self.ends.add(away)
                await asyncio.gather(self.pour(reader, away), self.pour(there, writer))
        finally:
            writer.close()

    async def pour(self, reader, writer):
        """Everything, until either end is closed."""
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()


@asynccontextmanager
async def wired(server):
    """A way to the broker that can be cut."""
    wire = Wire(server.nats)
    listening = await asyncio.start_server(wire.carry, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    wire.url = server.url.replace(f":{server.nats.port}", f":{port}")
    try:
        yield wire
    finally:
        listening.close()
        wire.cut()
        await asyncio.wait(wire.tasks)


def commit(number):
    subject = subjects.events("t", "o", f"{number}", 0)
    headers = ((subjects.REQUEST_HEADER, f"r{number}"),)
    return Letter(subject, b"%d" % number, f"id-{number}", headers)


@pytest.mark.parametrize("is_wiped", [False, True])
async def test_a_killed_broker_comes_back_and_everything_goes_on(own_nats, is_wiped):
    messages = asyncio.Queue()
    async with (
        ready(own_nats.url) as bus,
        bus.clients.hear("client-a", messages.put_nowait),
        bus.sessions.watch("s.kept") as entries,
    ):
        epoch = await bus.clients.epoch()
        revision = await bus.sessions.put("s.kept", b"1", ttl_s=600)
        seq = await bus.clients.append("client-a", b"1", "1")
        assert await next_of(messages) == Logged(seq, b"1", 0)
        assert await next_of(entries) == Entry("s.kept", b"1", revision)
        waiting = asyncio.create_task(bus.feed.fetch(8, 60))
        await asyncio.sleep(0.05)
        own_nats.kill()
        with pytest.raises(BusGone):
            await waiting
        for call in (bus.sessions.get("s.kept"), bus.clients.epoch(), bus.sessions.names("s")):
            with pytest.raises(BusGone):
                await call
        assert not bus.is_connected
        if is_wiped:
            shutil.rmtree(own_nats.nats.store_dir)
        own_nats.spawn()
        await own_nats.ready()
        await bus.ready(LONG_S)
        assert (await bus.clients.epoch() == epoch) is not is_wiped
        kept = None if is_wiped else Entry("s.kept", b"1", revision)
        assert await until(lambda: bus.sessions.get("s.kept")) == kept
        history = await bus.clients.after("client-a", seq)
        assert history == History((), is_whole=not is_wiped)
        last = await until(lambda: bus.clients.append("client-a", b"2", "2"))
        assert await next_of(messages) == Logged(last, b"2", 0 if is_wiped else seq)
        again = await bus.sessions.put("s.kept", b"2")
        assert await next_of(entries) == Entry("s.kept", b"2", again)
        assert await until(lambda: bus.feed.fetch(8, 0)) == []
        await bus.bus.publish_many([commit(1)])
        (fed,) = await until(lambda: bus.feed.fetch(8, LONG_S))
        assert (fed.request_id, fed.payload) == ("r1", b"1")
        assert bus.connections == 2


async def test_what_was_missed_over_a_lost_connection_is_known_by_the_next_message(own_nats):
    messages = asyncio.Queue()
    async with (
        wired(own_nats) as wire,
        ready(wire.url) as bus,
        ready(own_nats.url) as other,
        bus.clients.hear("client-a", messages.put_nowait),
    ):
        first = await bus.clients.append("client-a", b"1", "1")
        assert await next_of(messages) == Logged(first, b"1", 0)
        wire.cut()
        await noticed(bus)
        missed = await other.clients.append("client-a", b"2", "2")
        wire.mend()
        await bus.ready(LONG_S)
        last = await other.clients.append("client-a", b"3", "3")
        assert await next_of(messages) == Logged(last, b"3", missed)
        history = (Logged(missed, b"2", first), Logged(last, b"3", missed))
        assert await bus.clients.after("client-a", first) == History(history, is_whole=True)
        assert bus.connections == 2


async def test_what_was_committed_while_no_gateway_was_there_is_fed(clean_nats_url):
    async with ready(clean_nats_url) as bus:
        assert await bus.feed.fetch(8, 0) == []
        await bus.bus.publish_many([commit(1)])
    async with ready(clean_nats_url) as bus:
        (fed,) = await bus.feed.fetch(8, LONG_S)
        assert fed.request_id == "r1"


async def test_what_was_committed_before_the_first_gateway_is_not_fed(clean_nats_url):
    async with ready(clean_nats_url) as bus:
        await bus.bus.publish_many([commit(1)])
        assert await bus.feed.fetch(8, 0) == []
        await bus.bus.publish_many([commit(2)])
        (fed,) = await bus.feed.fetch(8, LONG_S)
        assert fed.request_id == "r2"


async def test_commits_without_a_request_leave_nothing_behind(clean_nats_url):
    async with ready(clean_nats_url) as bus, linked(clean_nats_url) as link:
        assert await bus.feed.fetch(1, 0) == []
        subject = subjects.events("t", "o", "7", 0)
        await bus.bus.publish_many([Letter(subject, b"x" * 1000, f"{n}") for n in range(500)])
        await bus.bus.publish_many([commit(1)])
        (fed,) = await bus.feed.fetch(100, LONG_S)
        await fed.ack()
        async with asyncio.timeout(LONG_S):
            while True:
                verb = f"CONSUMER.INFO.{subjects.EVENTS_STREAM}.{subjects.FEED_CONSUMER}"
                info = await link.call(verb)
                if (info["num_pending"], info["num_ack_pending"]) == (0, 0):
                    break
                await asyncio.sleep(0.01)


async def test_streams_that_are_deleted_are_made_again_by_whoever_misses_them(
    clean_nats_url, monkeypatch
):
    monkeypatch.setattr(nats_clients, "EPOCH_S", 0.0)
    async with ready(clean_nats_url) as bus, ready(clean_nats_url) as other:
        calls = [
            lambda: bus.sessions.get("a"),
            lambda: bus.sessions.put("a", b"1"),
            lambda: bus.sessions.names("a"),
            lambda: bus.clients.after("client-a", 5),
            lambda: bus.clients.append("client-a", b"1", "1"),
            lambda: bus.feed.fetch(1, 0),
        ]
        epochs = {await bus.clients.epoch(), await other.clients.epoch()}
        for call in calls:
            await wipe(clean_nats_url)
            await call()
            assert await bus.clients.epoch() == await other.clients.epoch()
            epochs.add(await bus.clients.epoch())
        assert len(epochs) == len(calls) + 1
        await wipe(clean_nats_url)
        await bus.clients.forget("client-a")
        await bus.sessions.delete("a")
        assert (bus.connections, other.connections) == (1, 1)


async def test_a_gateway_leaves_the_stream_of_commands_alone(clean_nats_url):
    wanted = streams.commands(Delivery(max_age_s=600.0))
    async with linked(clean_nats_url) as link:
        await streams.declare(link, [wanted])
        async with ready(clean_nats_url):
            assert await streams.differing(link, [wanted]) == {}


async def test_buckets_of_the_same_name_are_one(clean_nats_url):
    async with ready(clean_nats_url, sessions_bucket="b", requests_bucket="b") as bus:
        await bus.sessions.put("a", b"1")
        assert (await bus.requests.get("a")).value == b"1"


async def test_a_bucket_of_an_older_gateway_is_repaired_in_place(clean_nats_url):
    old = streams.bucket("sessions").config() | {"allow_msg_ttl": False}
    del old["republish"]
    async with linked(clean_nats_url) as link:
        await link.call("STREAM.CREATE.KV_sessions", old)
        await link.send("$KV.sessions.a", b"kept")
        await link.flush()
    async with ready(clean_nats_url) as bus, bus.sessions.watch("s.a") as entries:
        assert (await bus.sessions.get("a")).value == b"kept"
        revision = await bus.sessions.put("s.a", b"1", ttl_s=60)
        assert await next_of(entries) == Entry("s.a", b"1", revision)


async def test_marks_that_others_leave_are_no_keys(clean_nats_url):
    async with ready(clean_nats_url) as bus, linked(clean_nats_url) as link:
        await bus.sessions.put("a.b", b"1")
        await link.send("$KV.sessions.a.b", b"", headers={"KV-Operation": "DEL"})
        await link.flush()
        assert await bus.sessions.get("a.b") is None
        revision = await bus.sessions.create("a.b", b"2")
        assert await bus.sessions.get("a.b") == Entry("a.b", b"2", revision)


async def test_what_others_say_in_our_name_is_not_heard(clean_nats_url):
    messages = asyncio.Queue()
    async with (
        ready(clean_nats_url) as bus,
        bus.sessions.watch("a.b") as entries,
        bus.clients.hear("client-a", messages.put_nowait),
        linked(clean_nats_url) as link,
    ):
        await link.send("noetl.keys.sessions.a.b", b"not from the bucket")
        await link.send(subjects.live("client-a"), b"not from the log")
        await link.flush()
        revision = await bus.sessions.put("a.b", b"1")
        seq = await bus.clients.append("client-a", b"1", "1")
        assert await next_of(entries) == Entry("a.b", b"1", revision)
        assert await next_of(messages) == Logged(seq, b"1", 0)


async def test_names_are_listed_in_pages(clean_nats_url):
    class Paged(Broker):
        async def info(self, stream, asked=None):
            page = await super().info(stream, asked)
            names = sorted(page["state"].get("subjects") or {})[:2]
            return page | {"state": {"subjects": dict.fromkeys(names, 1)}}

    broker = Paged(Address.of(clean_nats_url), (streams.bucket("b"),))
    broker.start()
    try:
        await broker.ready(LONG_S)
        keys = NatsKeys(broker, "b")
        for number in range(5):
            await keys.put(f"a.{number}", b"")
        assert sorted(await keys.names("a")) == [f"a.{number}" for number in range(5)]
    finally:
        await broker.close()


async def test_one_silence_that_many_meet_costs_no_stream(own_nats, monkeypatch):
    monkeypatch.setattr(publishing, "ANSWER_S", 0.3)
    async with ready(own_nats.url) as bus:
        epoch = await bus.clients.epoch()
        await bus.clients.append("client-a", b"1", "1")
        own_nats.pause()
        try:
            calls = (bus.clients.append("client-a", b"1", f"s{n}") for n in range(20))
            ended = await asyncio.gather(*calls, return_exceptions=True)
        finally:
            own_nats.resume()
        assert all(isinstance(each, BusGone) for each in ended)
        assert await until(lambda: bus.clients.append("client-a", b"1", "2")) > 0
        monkeypatch.setattr(nats_clients, "EPOCH_S", 0.0)
        assert await bus.clients.epoch() == epoch


@pytest.mark.parametrize(("version", "is_refused"), [("2.10.29", True), ("2.11.0-RC.1", False)])
async def test_a_broker_that_is_too_old_is_refused_at_start(version, is_refused):
    served = set()

    async def serve(reader, writer):
        served.add(asyncio.current_task())
        about = {"server_id": "x", "version": version, "headers": True, "max_payload": 1048576}
        writer.write(b"INFO %s\r\n" % json.dumps(about).encode())
        try:
            while line := await reader.readline():
                if line == b"PING\r\n":
                    writer.write(b"PONG\r\n")
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    bus = await GatewayBus.open(f"nats://127.0.0.1:{port}")
    try:
        with pytest.raises(BrokerTooOld if is_refused else BusGone) as caught:
            await bus.ready(LONG_S if is_refused else 0.3)
        if is_refused:
            assert (caught.value.code, version in caught.value.message) == ("broker_too_old", True)
            assert "2.11" in caught.value.hint
            with pytest.raises(BusGone, match=version):
                await bus.sessions.get("a")
    finally:
        await bus.close()
        server.close()
        await asyncio.wait(served)


async def test_the_log_of_clients_ages(own_nats):
    async with ready(own_nats.url) as bus, linked(own_nats.url) as link:
        seqs = [await bus.clients.append("client-a", b"%d" % n, f"{n}") for n in range(3)]
        # What age does to a log, without the wait: its oldest messages are gone.
        purge = {"seq": seqs[1] + 1}
        await link.call(f"STREAM.PURGE.{subjects.CLIENTS_STREAM}", purge)
        rest = Logged(seqs[2], b"2", 0)
        assert await bus.clients.after("client-a", seqs[0]) == History((rest,), is_whole=False)
        assert await bus.clients.after("client-a", seqs[1]) == History((rest,), is_whole=True)
        whole = await bus.clients.after("client-a", seqs[2])
        assert whole == History((), is_whole=True)
