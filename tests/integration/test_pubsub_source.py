"""The Pub/Sub source against an emulator: deadlines, orders and refusals."""

import itertools

import pytest
from google.pubsub_v1.types import DeadLetterPolicy, PubsubMessage

from noetl.clock import SystemClock
from noetl.sources.base import SourceError
from noetl.sources.places import place_of
from noetl.sources.pubsub import PubsubSource
from tests.fakes.pubsub import Desk

NUMBERS = itertools.count()
LONG_MS = 5000


class Shop:
    """A subscription, and the source that reads it."""

    def __init__(self, desk, name, source):
        self._desk, self.name, self.source = desk, name, source

    async def publish(self, *messages):
        await self._desk.publish(self.name, *messages)


def place_at(host, path):
    return place_of("pubsub", {"subscription": path, "endpoint": f"http://{host}"}, {})


@pytest.fixture
async def shop(pubsub_emulator):
    desk, sources = Desk(pubsub_emulator.host), []

    async def make(**more):
        name = f"shop-{next(NUMBERS)}"
        path = await desk.subscription(name, **more)
        source = await PubsubSource.open(place_at(pubsub_emulator.host, path), SystemClock())
        sources.append(source)
        return Shop(desk, name, source)

    yield make
    for source in sources:
        await source.close()
    await desk.close()


def ids(messages):
    return [message.ack_id for message in messages]


async def test_a_message_has_what_pubsub_knows_of_it(shop):
    made = await shop()
    await made.publish(PubsubMessage(data=b"{}", attributes={"X-A": "1"}, ordering_key="k"))
    [message] = await made.source.poll(5, LONG_MS)
    assert message.id == message.metadata["messageId"]
    assert message.headers == {"x-a": "1"}
    assert message.attributes == {"X-A": "1"}
    assert message.ordering_key == "k"
    assert message.metadata["publishTime"].endswith("Z")
    assert message.metadata["deliveryAttempt"] is None
    assert message.metadata["subscription"] == f"projects/demo/subscriptions/{made.name}"
    assert message.ack_id != message.id


async def test_a_deadline_without_a_message_is_an_empty_poll(shop):
    assert await (await shop()).source.poll(5, 300) == []


async def test_messages_of_one_key_come_in_order_and_again_in_order(shop):
    made = await shop(enable_message_ordering=True)
    await made.publish(*(PubsubMessage(data=b"%d" % n, ordering_key="k") for n in range(3)))
    found = await made.source.poll(3, LONG_MS)
    assert [message.data for message in found] == [0, 1, 2]
    await made.source.ack(ids(found[:1]))
    await made.source.nack(ids(found[1:2]))
    again = await made.source.poll(3, LONG_MS)
    assert [message.data for message in again] == [1, 2]


async def test_deliveries_are_counted_where_letters_die(shop):
    policy = DeadLetterPolicy(max_delivery_attempts=5)
    made = await shop(dead_letter_policy=policy)
    await made.publish(PubsubMessage(data=b"1"))
    attempts = []
    for _ in range(5):
        [message] = await made.source.poll(1, LONG_MS)
        attempts.append(message.metadata["deliveryAttempt"])
        await made.source.nack(ids([message]))
    assert attempts == [1, 2, 3, 4, 5]
    assert await made.source.poll(1, 0) == []
    assert made.source.facts().max_deliver == 5


async def test_a_delay_is_rounded_up_to_whole_seconds(shop):
    made = await shop(second="0.05")
    await made.publish(PubsubMessage(data=b"1"))
    found = await made.source.poll(1, LONG_MS)
    await made.source.nack(ids(found), 1)
    assert len(await made.source.poll(1, LONG_MS)) == 1


async def test_many_ids_are_settled_in_parts(shop):
    made = await shop()
    await made.publish(PubsubMessage(data=b"1"))
    found = await made.source.poll(1, LONG_MS)
    report = await made.source.ack([*(f"gone-{n}" for n in range(2500)), *ids(found)])
    assert (report.requested, report.disposed) == (2501, 2501)


async def test_a_subscription_that_is_not_there_is_told(pubsub_emulator):
    path = "projects/demo/subscriptions/nowhere"
    with pytest.raises(SourceError) as caught:
        await PubsubSource.open(place_at(pubsub_emulator.host, path), SystemClock())
    assert (caught.value.kind, caught.value.code) == ("not_found", "subscription_not_found")
    assert path in caught.value.message


async def test_an_emulator_that_is_away_is_told(unused_tcp_port):
    path = "projects/demo/subscriptions/s"
    with pytest.raises(SourceError) as caught:
        await PubsubSource.open(place_at(f"127.0.0.1:{unused_tcp_port}", path), SystemClock())
    assert (caught.value.kind, caught.value.is_retryable) == ("connection", True)
