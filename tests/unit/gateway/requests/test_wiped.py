"""A bus whose store is lost with all that it had, and nobody who asks for what he waits for."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.unit.gateway.requests.desk import ANN, CLIENT, desk
from tests.unit.server.rig import virtually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.gateway.requests.desk import Desk, Replica


@asynccontextmanager
async def sweeping(replica: Replica) -> AsyncIterator[None]:
    """A gateway that looks after requests all the time."""
    task = asyncio.create_task(replica.requests.sweep())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def wiped(d: Desk) -> None:
    """Lose the buckets, the log and the events; the client comes back."""
    for message in await d.bus.feed.fetch(100, 0.0):
        await message.ack()
    d.wipe()
    d.bus.clients._clients.clear()  # noqa: SLF001 - what a lost disk does
    d.bus.clients._seen.clear()  # noqa: SLF001 - as above
    await d.hub.close(d.stream)
    d.stream = await d.client()


def listings(d: Desk) -> int:
    """How often the server was asked for runs."""
    return d.way.asked.count("GET /api/executions")


@virtually
async def test_ends_around_a_loss_are_told_and_deadlines_after_it_hold() -> None:
    async with desk() as d:
        ended = await d.start(client_id=None)
        await d.step("around")
        overdue = await d.start(client_id=None, timeout_secs=60)
        unheard = await d.start(
            client_id=None, delivery="none", timeout_secs=60, on_timeout="cancel"
        )
        await wiped(d)
        async with sweeping(d.replica()):
            await asyncio.sleep(30)
            assert await d.results() == [
                {
                    "requestId": ended.request_id,
                    "executionId": ended.execution_id,
                    "status": "COMPLETED",
                    "data": "around",
                }
            ]
            await asyncio.sleep(60)
        told = [(each["requestId"], each["status"]) for each in await d.results()]
        assert told == [(ended.request_id, "COMPLETED"), (overdue.request_id, "FAILED")]
        assert (await d.system.status(unheard.execution_id)).status == "CANCELLED"
        assert await d.requests.parts.records.opened() == []
        again = d.requests.undelivered(ANN, CLIENT, is_known=True)
        assert [each.request_id async for each in again] == [ended.request_id, overdue.request_id]


@virtually
async def test_a_loss_is_made_good_when_the_server_is_back_and_once() -> None:
    async with desk() as d:
        ended = await d.start(client_id=None)
        await d.step(1)
        await wiped(d)
        d.way.is_barred = True
        async with sweeping(d.replica()):
            await asyncio.sleep(12)
            assert listings(d) == 3
            d.way.is_barred = False
            await asyncio.sleep(60)
            assert listings(d) == 4
            assert [each["requestId"] for each in await d.results()] == [ended.request_id]


@virtually
async def test_a_bucket_that_is_there_is_not_told_again() -> None:
    async with desk() as d:
        await d.start(client_id=None)
        await d.step(1)
        await d.heard()
        assert len(await d.results()) == 1
        d.bus.clients._seen.clear()  # noqa: SLF001 - what is told again is seen
        async with sweeping(d):
            await asyncio.sleep(60)
        assert len(await d.results()) == 1


@virtually
async def test_a_loss_is_made_good_by_whoever_may_sweep() -> None:
    async with desk() as d:
        other = d.replica()
        started = await d.start(client_id=None)
        await wiped(d)
        assert await other.requests.sweeping._lease.held()  # noqa: SLF001 - it is its turn
        await d.requests.sweeping.restore()
        assert not await d.requests.parts.records.is_whole()
        await other.requests.sweeping.restore()
        assert await d.requests.parts.records.is_whole()
        opened = await d.requests.parts.records.opened()
        assert [request_id for _, request_id in opened] == [started.request_id]
