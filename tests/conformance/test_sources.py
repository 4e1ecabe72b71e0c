"""What every source does; a backend is an async factory from a wait for acks to a source."""

import asyncio
import contextlib
import itertools

import pytest
from nats.js.api import ConsumerConfig

from noetl.bus.address import Address
from noetl.clock import SystemClock
from noetl.sources.connecting import connect
from noetl.sources.memory import MemorySource
from noetl.sources.nats import NatsSource

NUMBERS = itertools.count()
LONG_MS = 5000
LONG_S = 30.0


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


async def on_memory(ack_wait_s, _url):
    return Memory(ack_wait_s)


async def on_nats(ack_wait_s, url):
    async def as_it_is(host, _port):
        return [host]

    client = await connect(Address.of(url), as_it_is)
    name = f"S{next(NUMBERS)}"
    js = client.jetstream()
    await js.add_stream(name=name, subjects=[f"{name}.>"])
    about = ConsumerConfig(durable_name="c", ack_policy="explicit", ack_wait=ack_wait_s)
    await js.add_consumer(name, about)
    return Nats(client, await NatsSource.open(client, name, "c", SystemClock()), name)


@pytest.fixture(params=[on_memory, on_nats])
async def made(request, nats_url):
    async with contextlib.AsyncExitStack() as stack:

        async def make(ack_wait_s=LONG_S):
            backend = await request.param(ack_wait_s, nats_url)
            stack.push_async_callback(backend.close)
            return backend

        yield make


def ids(messages):
    return [message.ack_id for message in messages]


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
    assert message.ordering_key


async def test_what_was_acknowledged_does_not_come_again(made):
    backend = await made(ack_wait_s=0.2)
    await backend.publish(b"1", b"2")
    found = await backend.source.poll(2, LONG_MS)
    report = await backend.source.ack(ids(found))
    assert (report.requested, report.disposed, report.errors) == (2, 2, ())
    assert await backend.source.poll(2, 400) == []
    assert await backend.source.backlog() == 0


async def test_what_was_not_settled_comes_again_under_the_same_id(made):
    backend = await made(ack_wait_s=0.2)
    await backend.publish(b"1")
    [first] = await backend.source.poll(1, LONG_MS)
    assert await backend.source.backlog() == 1
    [second] = await backend.source.poll(1, LONG_MS)
    assert second.id == first.id
    assert (first.metadata["delivered"], second.metadata["delivered"]) == (1, 2)
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
    assert (await backend.source.ack([])).disposed == 0
