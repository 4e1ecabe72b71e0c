"""Results that are told again to a client whose history is lost, more than a queue or a log has."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from noetl.gateway.hub.greeting import greeting, tell_again
from noetl.gateway.hub.stream import MOST_BYTES, PAGE
from noetl.gateway.requests.record import owed_key
from noetl.local.virtual import run_virtually
from tests.unit.gateway.requests.desk import ANN, CLIENT, desk
from tests.unit.gateway.requests.test_many import started
from tests.unit.server.rig import virtually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from noetl.gateway.hub.stream import Stream
    from tests.unit.gateway.requests.desk import Desk


class Reader:
    """A client that reads its stream."""

    def __init__(self, stream: Stream, init: dict[str, Any]) -> None:
        self.stream = stream
        self.init = init
        self.last_id = ""
        self.results: list[str] = []

    async def read(self, most: int) -> None:
        """Read until so many results are there."""
        while len(self.results) < most:
            chunks = await self.stream.next()
            assert chunks, self.stream.ending
            for chunk in chunks:
                self.last_id, _, frame = chunk.decode().partition(" ")
                told = msgspec.json.decode(frame)
                if told["method"] == "playbook/result":
                    self.results.append(told["params"]["requestId"])


@asynccontextmanager
async def connected(d: Desk, last_event_id: str) -> AsyncIterator[Reader]:
    stream = await d.hub.open(
        ANN, CLIENT, last_event_id, "sse", lambda frame, name: b"%b %b" % (name.encode(), frame)
    )
    try:
        init = await greeting(d.requests, stream)
        tell_again(d.requests, d.hub, stream)
        yield Reader(stream, init)
    finally:
        await d.hub.close(stream)


async def ended(d: Desk, count: int, data: object) -> list[str]:
    """Requests whose results are known, of a client that is gone and whose log is lost."""
    made = await started(d, count)
    for request_id in made:
        await d.call_back(request_id, data=data)
    await d.hub.close(d.stream)
    await d.bus.clients.forget(CLIENT)
    return made


@pytest.mark.parametrize(("count", "size"), [(1_001, 1), (30, 200_000)])
def test_all_results_are_told_again_on_one_connection(count: int, size: int) -> None:
    assert count > 1_000 or count * size > MOST_BYTES
    run_virtually(_told_again(count, "x" * size))


async def _told_again(count: int, data: str) -> None:
    async with desk() as d:
        made = await ended(d, count, data)
        async with connected(d, "lost-1") as client:
            assert client.init["recovery"]["recovered"] is False
            await client.read(count)
            assert client.results == made
            reading = asyncio.create_task(client.stream.next())
            await asyncio.sleep(1)
            assert not await d.requests.owes(CLIENT)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


@virtually
async def test_a_client_that_leaves_while_it_is_told_again_is_told_the_rest_when_it_returns() -> (
    None
):
    async with desk() as d:
        made = await ended(d, 3 * PAGE, 1)
        async with connected(d, "lost-1") as client:
            await client.read(PAGE)
        async with connected(d, client.last_id) as back:
            assert back.init["recovery"]["recovered"] is True
            await back.read(3 * PAGE)
            assert set(back.results) == set(made)


@virtually
async def test_results_that_cannot_be_told_now_are_told_later_on_the_same_stream() -> None:
    async with desk() as d:
        made = await ended(d, 3, 1)
        async with connected(d, "lost-1") as client:
            d.keys.barred.add("names")
            reading = asyncio.create_task(client.read(3))
            await asyncio.sleep(10)
            assert client.results == []
            d.keys.barred.clear()
            await reading
            assert client.results == made
            assert client.stream.ending is None


@virtually
async def test_what_is_owed_to_nobody_any_more_stays_so_when_the_broker_brings_keys_back() -> None:
    async with desk() as d:
        await d.requests.owe(CLIENT)
        assert await d.requests.owes(CLIENT)
        await d.requests.owe_nothing(CLIENT)
        found = await d.bus.requests.get(owed_key(CLIENT))
        assert found is not None, "deleted, the older word would come back"
        assert not await d.requests.owes(CLIENT)
