"""Exact times, on a loop where waiting is free."""

import asyncio

import pytest

from noetl.bus.base import Delivery
from noetl.bus.inbox import MOST_UNHEARD
from noetl.bus.memory import MemoryBus
from noetl.bus.subjects import commands, control
from noetl.local.virtual import VirtualLoop

SUBJECT = commands("shared", "7")


def run(scenario):
    """Run a scenario that is given a clock; what it returns."""

    async def main():
        loop = asyncio.get_running_loop()
        start = loop.time()
        return await scenario(lambda: round(loop.time() - start, 6))

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def test_a_message_comes_again_exactly_when_its_time_is_over():
    async def scenario(now):
        bus = MemoryBus()
        await bus.publish(SUBJECT, b"a", "1")
        times = []
        while messages := await bus.hints("shared").fetch(5, 60):
            times.append((now(), messages[0].deliveries))
        return times, now()

    times, end = run(scenario)
    assert times == [(30.0 * n, n + 1) for n in range(10)]
    assert end == 330.0


def test_a_refused_message_comes_again_exactly_after_its_delay():
    async def scenario(now):
        bus = MemoryBus()
        await bus.publish(SUBJECT, b"a", "1")
        (message,) = await bus.hints("shared").fetch(5, 60)
        await message.nak(1.5)
        await bus.hints("shared").fetch(5, 60)
        return now()

    assert run(scenario) == 1.5


def test_a_refusal_after_the_redelivery_changes_nothing():
    async def scenario(now):
        bus = MemoryBus()
        await bus.publish(SUBJECT, b"a", "1")
        (late,) = await bus.hints("shared").fetch(1, 60)
        (current,) = await bus.hints("shared").fetch(1, 60)
        await late.nak()
        assert await bus.hints("shared").fetch(1, 1) == []
        await current.ack()
        return await bus.hints("shared").fetch(1, 100), now()

    assert run(scenario) == ([], 131.0)


def test_a_silent_worker_makes_room_when_no_more_may_be_out():
    async def scenario(now):
        bus = MemoryBus(Delivery(max_ack_pending=1))
        await bus.publish(SUBJECT, b"a", "1")
        await bus.publish(SUBJECT, b"b", "2")
        await bus.hints("shared").fetch(1, 1)
        messages = await bus.hints("shared").fetch(2, 60)
        return [message.payload for message in messages], now()

    assert run(scenario) == ([b"b"], 30.0)


def test_a_fetch_that_ends_hands_its_watch_to_the_next_one():
    async def scenario(now):
        bus = MemoryBus()
        await bus.publish(SUBJECT, b"a", "1")
        (message,) = await bus.hints("shared").fetch(1, 1)
        short = asyncio.create_task(bus.hints("shared").fetch(1, 5))
        long = asyncio.create_task(bus.hints("shared").fetch(1, 25))
        await asyncio.sleep(0)
        await message.nak(10)
        return await short, [m.payload for m in await long], now()

    assert run(scenario) == ([], [b"a"], 10.0)


def test_a_message_is_not_kept_for_ever():
    async def scenario(_now):
        bus = MemoryBus()
        await bus.publish(SUBJECT, b"a", "1")
        await asyncio.sleep(3600)
        return await bus.hints("shared").fetch(1, 1)

    assert run(scenario) == []


@pytest.mark.parametrize(("after_s", "is_new"), [(119.0, False), (120.0, True)])
def test_an_id_is_known_for_its_window(after_s, is_new):
    async def scenario(_now):
        bus = MemoryBus()
        await bus.publish(SUBJECT, b"a", "1")
        await asyncio.sleep(after_s)
        return await bus.publish(SUBJECT, b"a", "1")

    assert run(scenario) is is_new


def test_an_acknowledged_message_leaves_nothing_behind_to_wait_for():
    async def scenario(now):
        bus = MemoryBus()
        for number in range(3):
            await bus.publish(SUBJECT, b"a", str(number))
        first, second, third = await bus.hints("shared").fetch(3, 1)
        await first.nak(5)
        await second.ack()
        await third.ack()
        (again,) = await bus.hints("shared").fetch(3, 60)
        await again.ack()
        return await bus.hints("shared").fetch(3, 60), now()

    assert run(scenario) == ([], 65.0)


def test_an_answer_that_came_before_the_redelivery_was_fetched_prevents_it():
    async def scenario(now):
        bus = MemoryBus(Delivery(max_ack_pending=1))
        await bus.publish(SUBJECT, b"a", "1")
        await bus.publish(SUBJECT, b"b", "2")
        (first,) = await bus.hints("shared").fetch(1, 1)
        (second,) = await bus.hints("shared").fetch(1, 60)
        await first.ack()
        await second.ack()
        return second.payload, await bus.hints("shared").fetch(1, 60), now()

    assert run(scenario) == (b"b", [], 90.0)


def test_a_message_that_was_acknowledged_late_is_not_waited_for():
    async def scenario(now):
        bus = MemoryBus()
        await bus.publish(SUBJECT, b"a", "1")
        (first,) = await bus.hints("shared").fetch(1, 60)
        (second,) = await bus.hints("shared").fetch(1, 60)
        await second.nak(10)
        await first.ack()
        return await bus.hints("shared").fetch(1, 60), now()

    assert run(scenario) == ([], 90.0)


def test_hints_that_nobody_fetches_do_not_pile_up():
    async def scenario(_now):
        bus = MemoryBus()
        for number in range(10):
            await bus.publish(SUBJECT, b"a", str(number))
            await asyncio.sleep(1800)
        return len(bus.hints("shared").queue)

    assert run(scenario) == 2


def test_a_slow_listener_loses_the_oldest_words():
    async def scenario(_now):
        bus = MemoryBus()
        async with bus.listen(control("shared")) as words:
            for number in range(MOST_UNHEARD + 2):
                await bus.tell(control("shared"), str(number).encode())
            return (await anext(words)).payload

    assert run(scenario) == b"2"
