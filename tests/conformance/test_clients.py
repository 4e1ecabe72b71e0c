"""What every log of clients does."""

import asyncio

import pytest

from noetl.bus.base import BusGone
from noetl.bus.clients import History, Logged
from noetl.bus.gateway import GatewayBus, MemoryGatewayBus

LONG_S = 10.0


async def on_memory(_url):
    return MemoryGatewayBus()


async def on_nats(url):
    bus = await GatewayBus.open(url)
    await bus.ready(LONG_S)
    return bus


@pytest.fixture(params=[on_memory, on_nats])
async def bus(request, clean_nats_url):
    bus = await request.param(clean_nats_url)
    yield bus
    await bus.close()


@pytest.fixture
def log(bus):
    return bus.clients


async def test_what_came_after_a_sequence_is_told_in_order(log):
    first = await log.append("client-a", b"1", "1")
    await log.append("client-b", b"other", "2")
    second = await log.append("client-a", b"2", "3")
    third = await log.append("client-a", b"3", "4")
    assert first < second < third
    messages = (Logged(second, b"2", first), Logged(third, b"3", second))
    assert await log.after("client-a", first) == History(messages, is_whole=True)
    assert await log.after("client-a", first, limit=1) == History(messages[:1], is_whole=True)
    assert await log.after("client-a", third) == History((), is_whole=True)


async def test_a_client_that_was_told_nothing_has_an_empty_history(log):
    assert await log.after("nobody", 0) == History((), is_whole=True)
    seq = await log.append("client-a", b"1", "1")
    assert await log.after("nobody", seq) == History((), is_whole=True)
    assert await log.after("client-a", 0) == History((Logged(seq, b"1", 0),), is_whole=True)


async def test_a_sequence_that_never_was_is_not_trusted(log):
    seq = await log.append("client-a", b"1", "1")
    assert await log.after("client-a", seq + 1000) == History((), is_whole=False)


async def test_a_client_is_told_the_same_id_once(log):
    assert await log.append("client-a", b"1", "r1/result") > 0
    assert await log.append("client-a", b"again", "r1/result") == 0
    assert await log.append("client-b", b"1", "r1/result") > 0
    assert [m.payload for m in (await log.after("client-a", 0)).messages] == [b"1"]


async def test_of_many_who_append_the_same_id_one_succeeds(log):
    seqs = await asyncio.gather(*(log.append("client-a", b"%d" % n, "id") for n in range(20)))
    assert sum(seq > 0 for seq in seqs) == 1
    assert len((await log.after("client-a", 0)).messages) == 1


async def test_a_thousand_messages_are_kept_and_what_is_older_is_known_to_be_lost(log):
    seqs = [await log.append("client-a", b"first", "first"), await log.append("other", b"", "o")]
    for start in range(0, 1001, 91):
        seqs += await asyncio.gather(
            *(log.append("client-a", b"%d" % n, f"{n}") for n in range(start, start + 91))
        )
    history = await log.after("client-a", seqs[0], limit=2000)
    assert (len(history.messages), history.is_whole) == (1000, False)
    assert [message.seq for message in history.messages] == seqs[-1000:]
    assert history.messages[-1].before == seqs[-2]
    kept = await log.after("client-a", seqs[-1000], limit=10)
    assert (kept.is_whole, [each.seq for each in kept.messages]) == (True, seqs[-999:-989])
    assert (await log.after("other", seqs[1])).is_whole


async def test_what_comes_is_heard_with_what_was_before_it(log):
    first = await log.append("client-a", b"1", "1")
    heard, others = asyncio.Queue(), asyncio.Queue()
    async with log.hear("client-a", heard.put_nowait), log.hear("client-b", others.put_nowait):
        second = await log.append("client-a", b"2", "2")
        await log.append("client-a", b"2", "2")
        third = await log.append("client-a", b"3", "3")
        other = await log.append("client-b", b"4", "4")
        async with asyncio.timeout(LONG_S):
            assert await heard.get() == Logged(second, b"2", first)
            assert await heard.get() == Logged(third, b"3", second)
            assert await others.get() == Logged(other, b"4", 0)
    await log.append("client-a", b"5", "5")
    assert heard.empty()


async def test_many_may_hear_the_same_client(log):
    first, second = asyncio.Queue(), asyncio.Queue()
    async with log.hear("client-a", first.put_nowait):
        async with log.hear("client-a", second.put_nowait):
            one = Logged(await log.append("client-a", b"1", "1"), b"1", 0)
            async with asyncio.timeout(LONG_S):
                assert (await first.get(), await second.get()) == (one, one)
        two = Logged(await log.append("client-a", b"2", "2"), b"2", one.seq)
        async with asyncio.timeout(LONG_S):
            assert await first.get() == two
    assert second.empty()


async def test_what_is_forgotten_is_known_to_be_lost(log):
    await log.append("client-b", b"1", "1")
    seq = await log.append("client-a", b"2", "2")
    await log.append("client-a", b"3", "3")
    await log.append("client-b", b"4", "4")
    await log.forget("client-a")
    await log.forget("nobody")
    assert await log.after("client-a", seq) == History((), is_whole=False)
    assert [m.payload for m in (await log.after("client-b", 0)).messages] == [b"1", b"4"]


async def test_large_messages_are_read_in_several_questions(log):
    for number in range(12):
        await log.append("client-a", bytes([number]) * 500_000, f"{number}")
    found = (await log.after("client-a", 0)).messages
    assert [(m.payload[0], len(m.payload)) for m in found] == [(n, 500_000) for n in range(12)]
    assert [m.before for m in found[1:]] == [m.seq for m in found[:-1]]


async def test_the_epoch_is_a_word_that_stays(log):
    epoch = await log.epoch()
    assert epoch.isascii()
    assert epoch.isalnum()
    await log.append("client-a", b"1", "1")
    assert await log.epoch() == epoch


async def test_a_closed_bus_has_no_log(bus, log):
    async with log.hear("client-a", print):
        await bus.close()
    for call in (log.append("a", b"", "1"), log.after("a", 0), log.forget("a"), log.epoch()):
        with pytest.raises(BusGone):
            await call
    with pytest.raises(BusGone):
        await log.hear("a", print).__aenter__()
