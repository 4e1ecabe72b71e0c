"""Messages of a store of objects in memory: what the store of waiting messages needs of them."""

from __future__ import annotations

from noetl.blobs.spool.jetstream import JetStreamStore
from noetl.bus.gateway import MemoryGatewayBus
from noetl.bus.memory_objects import MemoryObjects

EXPECTED = "Nats-Expected-Last-Subject-Sequence"


async def test_messages_by_subject():
    kept = MemoryObjects("b")
    assert await kept.last("a.b") is None
    first = await kept.publish("a.b", b"1")
    second = await kept.publish("a.b", b"2")
    assert await kept.last("a.b") == (second, b"2")
    assert await kept.next("a.b", first) == (first, b"1")
    assert await kept.next("a.b", first + 1) == (second, b"2")
    assert await kept.publish("a.b", b"3", {EXPECTED: str(first)}) is None
    assert await kept.publish("a.c", b"3", {EXPECTED: "0"}) == second + 1
    assert sorted(await kept.subjects("a.>")) == ["a.b", "a.c"]
    third = await kept.publish("a.b", b"4", {"Nats-Rollup": "sub"})
    assert await kept.next("a.b", 0) == (third, b"4")
    await kept.purge("a.b")
    assert await kept.subjects("a.*") == ["a.c"]


async def test_objects_of_one_bus_are_shared():
    bus = MemoryGatewayBus()
    one, two = (JetStreamStore(bus.messages("spool"), "") for _ in range(2))
    await one.put_new("default/s/spool/1.json", b"x" * 300_000)
    [listed] = await two.list("default/s/spool/")
    assert listed.size == 300_000
    assert await two.get(listed.key) == b"x" * 300_000
    await two.delete(listed.key)
    assert await one.get(listed.key) is None
    await bus.close()
