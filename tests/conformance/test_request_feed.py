"""What every feed of requests does."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from noetl.bus.base import BusGone, Letter
from noetl.bus.gateway import GatewayBus, MemoryGatewayBus
from noetl.bus.subjects import REQUEST_HEADER, events

LONG_S = 10.0


async def on_memory(stack, _url):
    bus = MemoryGatewayBus()
    stack.push_async_callback(bus.close)
    return bus, bus


async def on_nats(stack, url):
    buses = []
    for _ in range(2):
        bus = await GatewayBus.open(url)
        stack.push_async_callback(bus.close)
        await bus.ready(LONG_S)
        assert await bus.feed.fetch(1, 0) == []
        buses.append(bus)
    return buses


@pytest.fixture(params=[on_memory, on_nats])
async def replicas(request, clean_nats_url):
    async with AsyncExitStack() as stack:
        yield await request.param(stack, clean_nats_url)


@pytest.fixture
def bus(replicas):
    return replicas[0]


async def commit(bus, number, request_id=""):
    headers = ((REQUEST_HEADER, request_id),) if request_id else ()
    subject = events("default", "default", f"{number}", 0)
    await bus.bus.publish_many([Letter(subject, b"%d" % number, f"id-{number}", headers)])


def contents(messages):
    return [(message.request_id, message.payload) for message in messages]


async def test_only_commits_of_requests_are_fed_in_order(bus):
    for number in range(1, 31):
        await commit(bus, number, "" if number % 10 else f"r{number}")
    found = []
    while len(found) < 3:
        found += await bus.feed.fetch(8, LONG_S)
    assert contents(found) == [("r10", b"10"), ("r20", b"20"), ("r30", b"30")]
    assert await bus.feed.fetch(8, 0.01) == []


async def test_a_fetch_that_waits_is_woken_by_a_commit_of_a_request(bus):
    waiting = asyncio.create_task(bus.feed.fetch(8, LONG_S))
    await asyncio.sleep(0)
    await commit(bus, 1)
    await commit(bus, 2, "r2")
    assert contents(await waiting) == [("r2", b"2")]


async def test_a_fetch_without_requests_ends_with_its_time(bus):
    await commit(bus, 1)
    assert await bus.feed.fetch(8, 0.05) == []


async def test_each_commit_comes_to_one_gateway(replicas):
    async def fetch(replica, found):
        while messages := await replica.feed.fetch(4, 0.3):
            found += contents(messages)
            for message in messages:
                await message.ack()

    for number in range(40):
        await commit(replicas[0], number, f"r{number}")
    found = []
    await asyncio.gather(*(fetch(replica, found) for replica in replicas))
    assert sorted(found) == sorted((f"r{n}", b"%d" % n) for n in range(40))


async def test_what_is_refused_comes_again_and_what_is_acknowledged_does_not(bus):
    await commit(bus, 1, "r1")
    await commit(bus, 2, "r2")
    first, second = await bus.feed.fetch(8, LONG_S)
    await second.ack()
    await first.nak(0.05)
    (again,) = await bus.feed.fetch(8, LONG_S)
    assert contents([again]) == [("r1", b"1")]
    await again.nak()
    (last,) = await bus.feed.fetch(8, LONG_S)
    await last.ack()
    assert await bus.feed.fetch(8, 0.05) == []


async def test_a_closed_bus_feeds_nobody(bus):
    waiting = asyncio.create_task(bus.feed.fetch(8, LONG_S))
    await asyncio.sleep(0.01)
    await bus.close()
    with pytest.raises(BusGone):
        await waiting
    with pytest.raises(BusGone):
        await bus.feed.fetch(8, LONG_S)
