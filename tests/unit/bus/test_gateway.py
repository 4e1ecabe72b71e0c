"""Keys, clients and requests inside one process, at exact times."""

import asyncio
from datetime import UTC, datetime

import pytest

from noetl.bus.base import BusGone, Letter
from noetl.bus.clients import History, Logged
from noetl.bus.gateway import MemoryGatewayBus
from noetl.bus.keys import Entry
from noetl.bus.memory import MemoryBus
from noetl.bus.memory_clients import MemoryClients
from noetl.bus.memory_feed import MemoryFeed
from noetl.bus.memory_keys import MemoryKeys
from noetl.bus.subjects import REQUEST_HEADER, control, events
from noetl.local.virtual import VirtualLoop


class Hands:
    """A clock that is set by hand."""

    def __init__(self):
        self.at = 0.0

    def now(self):
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self):
        return self.at


@pytest.fixture
def clock():
    return Hands()


async def test_a_key_lives_exactly_as_long_as_it_was_told(clock):
    keys = MemoryKeys(clock)
    await keys.put("a.b", b"1", ttl_s=30)
    clock.at = 29.9
    assert await keys.get("a.b") == Entry("a.b", b"1", 1)
    assert await keys.names("a") == ["a.b"]
    clock.at = 30.0
    assert await keys.names("a") == []
    assert await keys.get("a.b") is None
    assert await keys.create("a.b", b"2") == 2


async def test_messages_and_ids_of_clients_are_forgotten_after_half_an_hour(clock):
    log = MemoryClients(clock)
    assert await log.append("c", b"1", "id") == 1
    clock.at = 100.0
    assert await log.append("c", b"2", "") == 2
    assert await log.append("c", b"2", "") == 3
    clock.at = 1799.9
    assert await log.append("c", b"1", "id") == 0
    assert (await log.after("c", 0)).is_whole
    clock.at = 1800.0
    history = await log.after("c", 0)
    assert history == History((Logged(2, b"2", 1), Logged(3, b"2", 2)), is_whole=False)
    assert (await log.after("c", 1)).is_whole
    assert await log.append("c", b"1", "id") == 4


async def test_logs_made_at_other_times_have_other_epochs(clock):
    class Later(Hands):
        def now(self):
            return datetime(2026, 1, 2, tzinfo=UTC)

    assert await MemoryClients(clock).epoch() != await MemoryClients(Later()).epoch()


def test_what_nobody_acknowledges_is_fed_again_ten_times_in_all():
    async def scenario():
        feed = MemoryFeed()
        feed.put("r", b"1")
        count = 0
        while await feed.fetch(8, 60):
            count += 1
        return count

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(scenario()) == 10


async def test_a_server_of_the_same_process_may_share_its_bus():
    shared = MemoryBus()
    gateway = MemoryGatewayBus(shared)
    letters = [
        Letter(events("t", "o", "7", 0), b"{}", "1", ((REQUEST_HEADER, "r"),)),
        Letter(events("t", "o", "7", 0), b"again", "1", ((REQUEST_HEADER, "r"),)),
        Letter(events("t", "o", "8", 0), b"none", "2"),
    ]
    assert await shared.publish_many(letters) == 2
    (fed,) = await gateway.feed.fetch(8, 1)
    assert (fed.request_id, fed.payload) == ("r", b"{}")
    async with gateway.bus.listen(control("shared")) as words:
        await shared.tell(control("shared"), b"x")
        assert (await anext(words)).payload == b"x"
    await gateway.ready(0)
    await gateway.close()
    with pytest.raises(BusGone):
        await gateway.feed.fetch(1, 0)
    assert await shared.publish_many([Letter(events("t", "o", "9", 0), b"", "3")]) == 1
