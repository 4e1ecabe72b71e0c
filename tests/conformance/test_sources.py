"""What every source does; a backend is an async factory from a wait for acks to a source."""

import asyncio
import contextlib
import itertools
import os

import pytest
from aiokafka import AIOKafkaProducer
from google.pubsub_v1.types import PubsubMessage
from nats.js.api import ConsumerConfig

from noetl.clock import SystemClock
from noetl.sources.connecting import connect
from noetl.sources.kafka import KafkaSource
from noetl.sources.memory import MemorySource
from noetl.sources.nats import NatsSource
from noetl.sources.places import as_written, place_of
from noetl.sources.pubsub import PubsubSource
from tests.fakes.pubsub import Desk

NUMBERS = itertools.count()
LONG_MS = 5000
LONG_S = 30.0
DEADLINE = 10
"""Seconds of Pub/Sub, whose own length a test may choose."""


class Memory:
    """A queue of this process."""

    def __init__(self, ack_wait_s):
        self.source = MemorySource(SystemClock(), ack_wait_s=ack_wait_s)

    async def publish(self, *bodies, headers=None):
        for body in bodies:
            self.source.publish(body, headers, key="k")

    async def close(self):
        await self.source.close()


class Nats:
    """A durable consumer of a stream of its own."""

    def __init__(self, client, source, stream):
        self._client, self._stream = client, stream
        self.source = source

    async def publish(self, *bodies, headers=None):
        for body in bodies:
            await self._client.jetstream().publish(f"{self._stream}.a", body, headers=headers)

    async def close(self):
        await self._client.jetstream().delete_stream(self._stream)
        await self._client.close()


class Kafka:
    """A topic of one partition, read by a group of its own."""

    def __init__(self, producer, source, topic):
        self._producer, self._topic = producer, topic
        self.source = source

    async def publish(self, *bodies, headers=None):
        told = [(name, value.encode()) for name, value in (headers or {}).items()]
        for body in bodies:
            await self._producer.send_and_wait(self._topic, body, key=b"k", headers=told)

    async def close(self):
        await self.source.close()
        await self._producer.stop()


class Pubsub:
    """A topic with one subscription."""

    def __init__(self, desk, source, name):
        self._desk, self._name = desk, name
        self.source = source

    async def publish(self, *bodies, headers=None):
        made = [PubsubMessage(data=body, attributes=headers, ordering_key="k") for body in bodies]
        await self._desk.publish(self._name, *made)

    async def close(self):
        await self.source.close()
        await self._desk.close()


async def on_memory(ack_wait_s, _request):
    return Memory(ack_wait_s)


async def on_nats(ack_wait_s, request):
    fields = {"url": request.getfixturevalue("nats_url"), "stream": "s", "consumer": "c"}
    client = await connect(place_of("nats", fields, {}), as_written)
    name = f"S{os.getpid()}_{next(NUMBERS)}"
    js = client.jetstream()
    await js.add_stream(name=name, subjects=[f"{name}.>"])
    about = ConsumerConfig(durable_name="c", ack_policy="explicit", ack_wait=ack_wait_s)
    await js.add_consumer(name, about)
    return Nats(client, await NatsSource.open(client, name, "c", SystemClock()), name)


async def on_kafka(ack_wait_s, request):
    cluster = request.getfixturevalue("kafka_cluster")
    topic = cluster.topic()
    producer = AIOKafkaProducer(bootstrap_servers=cluster.brokers)
    await producer.start()
    place = place_of("kafka", {"brokers": cluster.brokers, "topic": topic, "group": topic}, {})
    source = await KafkaSource.open(place, SystemClock(), ack_wait_s=ack_wait_s)
    return Kafka(producer, source, topic)


async def on_pubsub(ack_wait_s, request):
    host, name = request.getfixturevalue("pubsub_emulator").host, f"s-{next(NUMBERS)}"
    desk = Desk(host)
    # A subscription knows whole seconds alone: for a short wait they are short ones.
    second = "1" if ack_wait_s >= DEADLINE else str(ack_wait_s / DEADLINE)
    path = await desk.subscription(name, second=second, ack_deadline_seconds=DEADLINE)
    place = place_of("pubsub", {"subscription": path, "endpoint": f"http://{host}"}, {})
    return Pubsub(desk, await PubsubSource.open(place, SystemClock()), name)


@pytest.fixture(params=[on_memory, on_nats, on_kafka, on_pubsub])
async def made(request):
    async with contextlib.AsyncExitStack() as stack:

        async def make(ack_wait_s=LONG_S):
            backend = await request.param(ack_wait_s, request)
            stack.push_async_callback(backend.close)
            return backend

        yield make


async def backlog(backend, count):
    """Whether a source tells so many, if it tells."""
    return await backend.source.backlog() in {None, count}


def ids(messages):
    return [message.ack_id for message in messages]


async def polled(backend, count):
    """So many messages, in as many polls as the source needs."""
    found = []
    async with asyncio.timeout(LONG_S):
        while len(found) < count:
            found += await backend.source.poll(count - len(found), LONG_MS)
    return found


async def test_a_poll_gives_what_waits_in_order_and_not_more_than_asked(made):
    backend = await made()
    await backend.publish(b'{"n": 1}', b'{"n": 2}', b'{"n": 3}')
    first = await backend.source.poll(2, LONG_MS)
    assert [message.data for message in first] == [{"n": 1}, {"n": 2}]
    assert [message.data for message in await backend.source.poll(2, LONG_MS)] == [{"n": 3}]


async def test_a_poll_without_messages_ends_with_its_time(made):
    backend = await made()
    assert await backend.source.poll(5, 0) == []
    assert await backend.source.poll(5, 50) == []


async def test_a_poll_that_waits_is_woken_by_the_next_message(made):
    backend = await made()
    waiting = asyncio.create_task(backend.source.poll(5, LONG_MS))
    await asyncio.sleep(0.05)
    await backend.publish(b"late")
    assert [message.data for message in await waiting] == ["late"]


async def test_a_body_is_json_or_text_or_bytes(made):
    backend = await made()
    await backend.publish(b"[1]", b"plain", b"", b"\xff\xfe")
    found = {message.id: message for message in await backend.source.poll(10, LONG_MS)}
    values = [(m.data, m.as_json().get("encoding"), m.as_json().get("raw")) for m in found.values()]
    assert values == [
        ([1], None, None), ("plain", None, None), (None, None, None), (None, "base64", "//4="),
    ]  # fmt: skip
    assert len(found) == 4


async def test_headers_are_lower_case_and_attributes_are_not(made):
    backend = await made()
    await backend.publish(b"1", headers={"X-Kind": "Demo"})
    [message] = await backend.source.poll(1, LONG_MS)
    assert message.headers["x-kind"] == "Demo"
    assert message.attributes["X-Kind"] == "Demo"
    assert message.metadata["size_bytes"] == 1
    assert message.metadata["received_at"].endswith("Z")
    assert message.metadata["source"] == type(backend).__name__.lower()
    assert message.ordering_key


async def test_what_was_acknowledged_does_not_come_again(made):
    backend = await made(ack_wait_s=0.2)
    await backend.publish(b"1", b"2")
    found = await backend.source.poll(2, LONG_MS)
    report = await backend.source.ack(ids(found))
    assert (report.requested, report.disposed, report.errors) == (2, 2, ())
    assert await backend.source.poll(2, 400) == []
    assert await backlog(backend, 0)


async def test_what_was_not_settled_comes_again_under_the_same_id(made):
    backend = await made(ack_wait_s=0.2)
    await backend.publish(b"1")
    [first] = await backend.source.poll(1, LONG_MS)
    assert await backlog(backend, 1)
    [second] = await backend.source.poll(1, LONG_MS)
    assert second.id == first.id
    counts = [message.metadata.get("delivered") for message in (first, second)]
    assert counts in ([1, 2], [None, None])
    await backend.source.ack(ids([second]))


async def test_what_was_refused_comes_again_at_once_or_after_the_delay(made):
    backend = await made()
    await backend.publish(b"1")
    found = await backend.source.poll(1, LONG_MS)
    assert (await backend.source.nack(ids(found))).disposed == 1
    found = await backend.source.poll(1, LONG_MS)
    assert found
    await backend.source.nack(ids(found), 300)
    assert await backend.source.poll(1, 0) == []
    assert len(await backend.source.poll(1, LONG_MS)) == 1


async def test_what_was_given_up_never_comes_again(made):
    backend = await made(ack_wait_s=0.2)
    await backend.publish(b"1")
    assert (await backend.source.term(ids(await backend.source.poll(1, LONG_MS)))).disposed == 1
    assert await backend.source.poll(1, 400) == []


async def test_who_still_works_gets_more_time(made):
    backend = await made(ack_wait_s=0.6)
    await backend.publish(b"1")
    found = await backend.source.poll(1, LONG_MS)
    for _ in range(4):
        await asyncio.sleep(0.2)
        assert (await backend.source.extend(ids(found))).disposed == 1
    assert await backend.source.poll(1, 0) == []
    assert (await backend.source.ack(ids(found))).disposed == 1


async def test_nothing_to_settle_is_no_failure(made):
    backend = await made()
    for settle in (backend.source.ack, backend.source.nack, backend.source.term):
        assert (await settle([])).disposed == 0


async def test_ids_settle_twice_without_a_fault(made):
    backend = await made()
    await backend.publish(b"1")
    found = await backend.source.poll(1, LONG_MS)
    assert (await backend.source.ack(ids(found))).errors == ()
    assert (await backend.source.ack(ids(found))).errors == ()


async def test_a_source_tells_how_patient_it_is(made):
    backend = await made()
    facts = backend.source.facts()
    assert (facts.max_deliver, facts.ack_wait_s) in {(None, LONG_S), (None, float(DEADLINE))}


async def test_a_message_has_the_fields_of_the_table_and_no_others(made):
    backend = await made()
    await backend.publish(b"1", b"\xff")
    text, raw = await polled(backend, 2)
    known = ["id", "data", "headers", "attributes", "metadata", "ordering_key", "ack_id"]
    assert sorted(text.as_json()) == sorted(known)
    assert sorted(raw.as_json()) == sorted([*known, "raw", "encoding"])
