"""The Kafka source against a cluster: groups, commits and what a rebalance takes away."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from noetl.clock import SystemClock
from noetl.sources.base import SourceError
from noetl.sources.kafka import KafkaSource
from noetl.sources.places import place_of

LONG_MS = 5000
LATE_S = 30
SHORT_SESSION_MS = 1500
"""The cluster waits for most of a session until it believes that a member is gone."""


class Desk:
    """A topic, those who write to it and those who read it."""

    def __init__(self, cluster, producer, partitions):
        self.cluster, self._producer = cluster, producer
        self.topic = cluster.topic(partitions)
        self._open = []

    async def publish(self, *values, partition=0, **more):
        for value in values:
            body = str(value).encode()
            await self._producer.send_and_wait(self.topic, body, partition=partition, **more)

    async def source(self, brokers="", **more):
        where = brokers or self.cluster.brokers
        fields = {"brokers": where, "topic": self.topic, "group": self.topic}
        place = place_of("kafka", fields, {})
        made = await KafkaSource.open(place, SystemClock(), session_ms=SHORT_SESSION_MS, **more)
        self._open.append(made)
        return made

    async def close(self):
        for source in self._open:
            await source.close()


@pytest.fixture
async def desk(kafka_cluster):
    producer = AIOKafkaProducer(bootstrap_servers=kafka_cluster.brokers)
    await producer.start()
    desks = []

    def make(partitions=1):
        desks.append(Desk(kafka_cluster, producer, partitions))
        return desks[-1]

    yield make
    for each in desks:
        await each.close()
    await producer.stop()


def ids(messages):
    return [message.ack_id for message in messages]


def values(messages):
    return [message.data for message in messages]


async def polled(source, count):
    found = []
    async with asyncio.timeout(LATE_S):
        while len(found) < count:
            found += await source.poll(count - len(found), LONG_MS)
    return found


async def committed(place, partition=0):
    """Where the next member of the group would begin."""
    reader = AIOKafkaConsumer(bootstrap_servers=place.cluster.brokers, group_id=place.topic)
    await reader.start()
    try:
        return await reader.committed(TopicPartition(place.topic, partition))
    finally:
        await reader.stop()


async def test_a_poll_never_returns_more_than_its_batch(desk):
    place = desk(partitions=3)
    for partition in range(3):
        await place.publish(*range(7), partition=partition)
    source = await place.source()
    sizes = []
    async with asyncio.timeout(LATE_S):
        while sum(sizes) < 21:
            sizes.append(len(await source.poll(4, LONG_MS)))
    assert max(sizes) <= 4
    assert await source.poll(4, 0) == []


async def test_messages_of_a_partition_come_in_order(desk):
    place = desk(partitions=2)
    await place.publish(*range(10), partition=0)
    await place.publish(*range(10, 20), partition=1)
    found = values(await polled(await place.source(), 20))
    assert [value for value in found if value < 10] == list(range(10))
    assert [value for value in found if value >= 10] == list(range(10, 20))


async def test_a_nacked_offset_is_not_passed_by_a_commit(desk):
    place = desk()
    await place.publish(0, 1, 2, 3, 4)
    source = await place.source()
    found = await polled(source, 5)
    assert (await source.nack([found[1].ack_id])).disposed == 1
    report = await source.ack(ids([found[0], *found[2:]]))
    assert (report.disposed, report.errors) == (4, ())
    assert await committed(place) == 1
    assert await source.backlog() == 4
    again = await polled(source, 1)
    assert values(again) == [1]
    await source.ack(ids(again))
    assert await committed(place) == 5
    assert await source.backlog() == 0


async def test_only_the_contiguous_prefix_is_committed(desk):
    place = desk()
    await place.publish(0, 1, 2)
    source = await place.source()
    first, second, third = await polled(source, 3)
    assert (await source.ack(ids([third]))).errors == ()
    assert await committed(place) is None
    await source.ack(ids([first]))
    assert await committed(place) == 1
    await source.ack(ids([second]))
    assert await committed(place) == 3


async def test_a_nack_holds_its_own_partition_alone(desk):
    place = desk(partitions=2)
    await place.publish("held", partition=0)
    await place.publish("goes", partition=1)
    source = await place.source()
    found = {message.data: message for message in await polled(source, 2)}
    await source.nack([found["held"].ack_id], 60_000)
    await place.publish("behind", partition=0)
    await place.publish("on", partition=1)
    assert values(await polled(source, 1)) == ["on"]
    assert await source.poll(5, 300) == []


async def test_what_is_held_by_somebody_does_not_come_with_what_was_nacked(desk):
    place = desk()
    await place.publish(0, 1, 2)
    source = await place.source()
    found = await polled(source, 3)
    await source.nack([found[0].ack_id])
    assert values(await polled(source, 1)) == [0]
    assert await source.poll(5, 300) == []


async def test_acks_after_a_rebalance_are_stale_and_the_messages_come_again(desk):
    place = desk()
    await place.publish(0, 1, 2)
    source = await place.source()
    found = await polled(source, 3)
    await source.ack([found[0].ack_id])
    place.cluster.divide()
    async with asyncio.timeout(LATE_S):
        while not (await source.extend(ids(found))).errors:  # noqa: ASYNC110 - a group tells nobody
            await asyncio.sleep(0.01)
    report = await source.ack(ids(found[1:]))
    assert (report.disposed, [error.code for error in report.errors]) == (0, ["stale", "stale"])
    again = await polled(source, 2)
    assert values(again) == [1, 2]
    assert (await source.ack(ids(again))).errors == ()
    assert await committed(place) == 3


async def test_what_a_member_that_left_held_comes_to_the_next_one(desk):
    place = desk()
    await place.publish(0, 1)
    first = await place.source()
    found = await polled(first, 2)
    await first.ack(ids(found[:1]))
    await first.close()
    assert values(await polled(await place.source(), 1)) == [1]


async def test_ids_settle_with_another_member_in_the_order_of_their_partition(desk):
    place = desk()
    await place.publish(0, 1, 2, 3)
    first = await place.source()
    zero, one, two, three = ids(await polled(first, 4))
    await first.close()
    second = await place.source()
    await second.take_over([one, zero, three])
    report = await second.ack([one, zero, three])
    assert [(error.ack_id, error.code) for error in report.errors] == [(three, "stale")]
    assert await committed(place) == 2
    assert ids(await polled(second, 2)) == [two, three]


async def test_headers_are_text_and_bytes_that_are_none_are_base64(desk):
    place = desk()
    headers = [("X-Kind", b"Demo"), ("x-kind", "ü".encode()), ("X-Raw", b"\xff\xfe")]
    await place.publish('{"n": 1}', key=b"meter-7", headers=headers)
    [message] = await polled(await place.source(), 1)
    assert message.id == message.ack_id == f"{place.topic}:0:0"
    assert message.headers == {"x-kind": ["Demo", "ü"], "x-raw": "//4="}
    assert message.attributes == {"X-Kind": "Demo", "x-kind": "ü", "X-Raw": "//4="}
    assert message.ordering_key == message.metadata["key"] == "meter-7"
    about = {name: message.metadata[name] for name in ("source", "topic", "partition", "offset")}
    assert about == {"source": "kafka", "topic": place.topic, "partition": 0, "offset": 0}
    assert message.metadata["timestamp"] > 0


async def test_a_record_without_a_key_is_ordered_by_its_partition(desk):
    place = desk(partitions=2)
    await place.publish(1, partition=1)
    [message] = await polled(await place.source(), 1)
    assert (message.ordering_key, message.metadata["key"]) == ("1", None)


async def test_the_backlog_is_the_sum_of_the_lags(desk):
    place = desk(partitions=2)
    await place.publish(1, 2, partition=0)
    await place.publish(3, partition=1)
    source = await place.source()
    assert await source.backlog() == 3
    found = await polled(source, 3)
    await source.ack(ids(message for message in found if message.metadata["partition"] == 0))
    assert await source.backlog() == 1


async def test_a_topic_that_is_not_there_is_told(desk):
    place = desk()
    place.topic = "nowhere"
    with pytest.raises(SourceError) as caught:
        await place.source()
    assert (caught.value.kind, caught.value.code) == ("not_found", "topic_not_found")
    assert "nowhere" in caught.value.message


async def test_brokers_that_are_away_are_told(unused_tcp_port):
    fields = {"brokers": f"127.0.0.1:{unused_tcp_port}", "topic": "t", "group": "g"}
    with pytest.raises(SourceError) as caught:
        await KafkaSource.open(place_of("kafka", fields, {}), SystemClock())
    assert (caught.value.kind, caught.value.is_retryable) == ("connection", True)
    assert str(unused_tcp_port) in caught.value.message


async def test_a_cluster_that_leads_to_a_refused_host_is_refused(desk):
    place = desk()

    async def only_the_first(_host, port):
        if port != first:
            raise SourceError("egress", "egress_denied", "not there")
        return ["127.0.0.1"]

    brokers = place.cluster.brokers.split(",")[0]
    first = int(brokers.rpartition(":")[2])
    with pytest.raises(SourceError) as caught:
        await place.source(brokers, addresses=only_the_first)
    assert caught.value.code == "egress_denied"


@pytest.mark.parametrize("ack_id", ["", "t:0", "t:0:x", "a b:0:1", "$JS.ACK.S.c.1.1.1.1.1"])
async def test_what_is_no_id_is_refused(desk, ack_id):
    source = await desk().source()
    with pytest.raises(SourceError) as caught:
        await source.ack([ack_id])
    assert caught.value.code == "invalid_config"
