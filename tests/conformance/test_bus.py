"""What every bus does; a backend is an async factory from `Delivery` to a bus that is there."""

import asyncio
import contextlib

import pytest

from noetl.bus.base import BusGone, Delivery, Letter, Told
from noetl.bus.memory import MemoryBus
from noetl.bus.nats import NatsBus
from noetl.bus.subjects import commands, control, events

SOON = Delivery(ack_wait_s=0.1, max_deliver=3, duplicate_window_s=0.1)
LONG_S = 5.0


async def on_memory(rules, _url):
    return MemoryBus(rules)


async def on_nats(rules, url):
    bus = await NatsBus.open(url, rules=rules)
    await bus.ready(LONG_S)
    return bus


@pytest.fixture(params=[on_memory, on_nats])
async def bus_with(request, clean_nats_url):
    async with contextlib.AsyncExitStack() as stack:

        async def make(rules=None):
            bus = await request.param(rules or Delivery(), clean_nats_url)
            stack.push_async_callback(bus.close)
            return bus

        yield make


@pytest.fixture
async def bus(bus_with):
    return await bus_with()


async def publish(bus, *numbers, pool="shared"):
    for number in numbers:
        await bus.publish(commands(pool, "7"), f"h{number}".encode(), f"{pool}-{number}")


async def fetched(bus, limit=10, timeout_s=LONG_S, pool="shared"):
    return await bus.hints(pool).fetch(limit, timeout_s)


async def nothing_is_left(bus):
    return await fetched(bus, timeout_s=0.3) == []


def payloads(messages):
    return [message.payload.decode() for message in messages]


async def test_hints_come_in_the_order_of_their_publication(bus):
    await publish(bus, 1, 2, 3)
    messages = await fetched(bus, limit=2)
    assert payloads(messages) == ["h1", "h2"]
    assert [(m.subject, m.deliveries) for m in messages] == [("noetl.commands.shared.7", 1)] * 2
    assert payloads(await fetched(bus)) == ["h3"]


async def test_a_fetch_that_waits_is_woken_by_the_next_hint(bus):
    waiting = asyncio.create_task(fetched(bus))
    await asyncio.sleep(0)
    await publish(bus, 1)
    assert payloads(await waiting) == ["h1"]


async def test_a_fetch_without_hints_ends_with_its_time(bus):
    assert await fetched(bus, timeout_s=0.01) == []
    assert await fetched(bus, timeout_s=0) == []


async def test_pools_have_their_own_hints(bus):
    await publish(bus, 1, pool="a")
    await publish(bus, 2, pool="b")
    assert payloads(await fetched(bus, pool="b")) == ["h2"]
    assert payloads(await fetched(bus, pool="a")) == ["h1"]


async def test_the_lag_of_a_pool_is_what_nobody_has_fetched(bus):
    assert await bus.lag("shared") == 0
    await fetched(bus, timeout_s=0.01)
    await publish(bus, 1, 2, 3)
    assert await bus.lag("shared") == 3
    await fetched(bus, limit=2)
    assert await bus.lag("shared") == 1
    assert await bus.lag("other") == 0


async def test_workers_of_a_pool_share_its_hints(bus):
    fetches = [asyncio.create_task(fetched(bus, limit=1)) for _ in range(3)]
    await asyncio.sleep(0)
    await publish(bus, 1, 2, 3)
    got = [payloads(messages) for messages in await asyncio.gather(*fetches)]
    assert sorted(got) == [["h1"], ["h2"], ["h3"]]


async def test_what_is_acknowledged_does_not_come_again(bus_with):
    bus = await bus_with(SOON)
    await publish(bus, 1)
    (message,) = await fetched(bus)
    await message.ack()
    await message.ack()
    assert await nothing_is_left(bus)


async def test_what_is_not_acknowledged_comes_again_until_it_was_delivered_often_enough(bus_with):
    bus = await bus_with(SOON)
    await publish(bus, 1)
    seen = [message.deliveries for _ in range(3) for message in await fetched(bus)]
    assert seen == [1, 2, 3]
    assert await nothing_is_left(bus)


async def test_what_is_refused_comes_again_at_once(bus):
    await publish(bus, 1)
    (message,) = await fetched(bus)
    await message.nak()
    (again,) = await fetched(bus)
    assert (again.payload, again.deliveries) == (b"h1", 2)


async def test_what_is_refused_for_a_while_lets_others_pass(bus):
    await publish(bus, 1, 2)
    (first,) = await fetched(bus, limit=1)
    await first.nak(0.05)
    second = await fetched(bus)
    assert payloads(second) == ["h2"]
    (again,) = await fetched(bus)
    assert (again.payload, again.deliveries) == (b"h1", 2)


async def test_what_is_refused_too_often_ends(bus_with):
    bus = await bus_with(SOON)
    await publish(bus, 1)
    for _ in range(3):
        (message,) = await fetched(bus)
        await message.nak()
    assert await nothing_is_left(bus)


async def test_what_makes_no_sense_is_never_delivered_again(bus_with):
    bus = await bus_with(SOON)
    await publish(bus, 1)
    (message,) = await fetched(bus)
    await message.term()
    await message.nak()
    assert await nothing_is_left(bus)


async def test_an_answer_that_comes_after_the_redelivery_still_ends_the_message(bus_with):
    bus = await bus_with(SOON)
    await publish(bus, 1)
    (first,) = await fetched(bus)
    (second,) = await fetched(bus)
    await first.ack()
    assert second.deliveries == 2
    assert await nothing_is_left(bus)


async def test_an_id_seen_within_the_window_is_not_kept_again(bus):
    subject = commands("shared", "7")
    assert await bus.publish(subject, b"a", "id") is True
    assert await bus.publish(subject, b"b", "id") is False
    assert payloads(await fetched(bus)) == ["a"]
    assert await fetched(bus, timeout_s=0.01) == []


async def test_an_id_is_new_again_after_the_window(bus_with):
    bus = await bus_with(SOON)
    subject = commands("shared", "7")
    await bus.publish(subject, b"a", "id")
    (message,) = await fetched(bus)
    await message.ack()
    assert await nothing_is_left(bus)
    assert await bus.publish(subject, b"b", "id") is True
    assert payloads(await fetched(bus)) == ["b"]


async def test_no_more_is_out_than_may_be(bus_with):
    bus = await bus_with(Delivery(max_ack_pending=2))
    await publish(bus, 1, 2, 3)
    first, _ = await fetched(bus)
    assert await fetched(bus, timeout_s=0.01) == []
    waiting = asyncio.create_task(fetched(bus))
    await asyncio.sleep(0)
    await first.ack()
    assert payloads(await waiting) == ["h3"]


async def test_listeners_hear_what_is_told_while_they_listen(bus):
    await bus.tell(control("shared"), b"before")
    async with bus.listen(control("shared")) as words, bus.listen("noetl.control.*") as others:
        await bus.tell(control("shared"), b"cancel")
        await bus.tell(control("system"), b"drain")
        assert await anext(words) == Told("noetl.control.shared", b"cancel")
        assert await anext(others) == Told("noetl.control.shared", b"cancel")
        assert await anext(others) == Told("noetl.control.system", b"drain")


async def test_a_listener_waits_for_the_next_word(bus):
    async with bus.listen(control("shared")) as words:
        heard = asyncio.create_task(anext(words))
        await asyncio.sleep(0)
        await bus.tell(control("shared"), b"cancel")
        assert (await heard).payload == b"cancel"


async def test_what_is_published_is_heard_too(bus):
    async with bus.listen("noetl.events.>") as words:
        subject = events("default", "default", "7", 0)
        assert await bus.publish(subject, b"{}", "9") is True
        assert await anext(words) == Told(subject, b"{}")


async def test_a_closed_bus_lets_everyone_go(bus):
    waiting = asyncio.create_task(fetched(bus))
    second = asyncio.create_task(fetched(bus))
    async with bus.listen(control("shared")) as words:
        await asyncio.sleep(0)
        await bus.close()
        assert [word async for word in words] == []
    for fetch in (waiting, second):
        with pytest.raises(BusGone):
            await fetch
    with pytest.raises(BusGone) as caught:
        await publish(bus, 1)
    assert (caught.value.code, caught.value.retryable) == ("broker_unreachable", True)
    with pytest.raises(BusGone):
        await bus.tell(control("shared"), b"x")
    with pytest.raises(BusGone):
        await fetched(bus, pool="fresh")
    with pytest.raises(BusGone):
        await bus.listen("x").__aenter__()
    await bus.close()


async def test_a_fetch_that_is_given_up_takes_nothing_with_it(bus_with):
    bus = await bus_with(Delivery(ack_wait_s=1.0))
    gone = asyncio.create_task(fetched(bus))
    other = asyncio.create_task(fetched(bus))
    await asyncio.sleep(0)
    gone.cancel()
    await publish(bus, 1)
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert payloads(await other) == ["h1"]


async def test_many_messages_are_published_in_order_and_counted_when_new(bus):
    await publish(bus, 2)
    letters = [
        Letter(commands("shared", "7"), f"h{n}".encode(), f"shared-{n}") for n in range(1, 6)
    ]
    assert await bus.publish_many(letters) == 4
    assert payloads(await fetched(bus)) == ["h2", "h1", "h3", "h4", "h5"]
    assert await bus.publish_many(letters) == 0
    assert await bus.publish_many(()) == 0


async def test_answers_to_a_message_do_not_fail_when_the_bus_was_closed(bus):
    await publish(bus, 1, 2, 3)
    first, second, third = await fetched(bus)
    await bus.close()
    await first.ack()
    await second.nak(1.0)
    await third.term()


async def test_what_comes_at_the_moment_a_fetch_is_given_up_is_not_lost(bus_with):
    # A broker may have sent it just then; it sends it again when nobody answers.
    bus = await bus_with(Delivery(ack_wait_s=0.5))
    for number in range(20):
        gone = asyncio.create_task(fetched(bus))
        await asyncio.sleep(0.002)
        publishing = asyncio.create_task(publish(bus, number))
        await asyncio.sleep(0)
        gone.cancel()
        (found,) = await asyncio.gather(gone, return_exceptions=True)
        await publishing
        messages = [] if isinstance(found, asyncio.CancelledError) else found
        messages = messages or await fetched(bus)
        assert payloads(messages) == [f"h{number}"]
        await messages[0].ack()
