"""The feed of a gateway while one of its requests takes long."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from noetl.gateway.requests.feeding import AGAIN_S, LONGEST_S, MOST_HELD, Feeding
from tests.unit.gateway.requests.desk import desk
from tests.unit.server.rig import virtually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.gateway.requests.desk import Desk


class Fed:
    """A message of a request that takes long."""

    request_id = "slow"
    payload = (
        b'{"execution_id": "1", "first_seq": 1, "last_seq": 1, "events": [{"event_type":'
        b' "step.exit"}]}'
    )

    def __init__(self, feed: Flood) -> None:
        self._feed = feed

    async def ack(self) -> None:
        self._feed.acknowledged += 1

    async def nak(self, delay_s: float = 0.0) -> None:
        assert delay_s == AGAIN_S
        self._feed.given_back += 1


class Flood:
    """A feed that always has more."""

    def __init__(self) -> None:
        self.fetched = self.acknowledged = self.given_back = 0

    async def fetch(self, limit: int, timeout_s: float) -> list[Fed]:
        assert timeout_s > 0
        self.fetched += limit
        return [Fed(self) for _ in range(limit)]


@asynccontextmanager
async def running(feeding: Feeding) -> AsyncIterator[None]:
    """A feed that is taken all the time."""
    task = asyncio.create_task(feeding.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def told(d: Desk, request_id: str) -> list[str]:
    """What the client was told of a request."""
    return [
        each["params"].get("eventType", "result")
        for each in await d.messages()
        if each["params"]["requestId"] == request_id
    ]


@virtually
async def test_a_request_that_hangs_holds_up_no_other_and_is_told_in_order() -> None:
    async with desk() as d:
        other = d.replica()
        slow = await d.start()
        answered = other.keys.slow[f"r.{slow.request_id}"] = asyncio.Event()
        async with running(other.requests.feeding):
            await d.step("slow")
            quick = []
            for _ in range(3):
                quick.append((await d.start()).request_id)
                await d.step("quick")
            assert [each["requestId"] for each in await d.results()] == quick
            assert await told(d, slow.request_id) == []
            answered.set()
            await d.published()
        page = await d.system.events(slow.execution_id)
        states = ["playbook.started", "step.exit", "playbook.completed"]
        assert [row["event_type"] for row in page.items if row["event_type"] in states] == states
        assert await told(d, slow.request_id) == [*states, "result"]


@virtually
async def test_a_request_that_hangs_for_too_long_is_left_and_told_later() -> None:
    async with desk() as d:
        other = d.replica()
        slow = await d.start()
        other.keys.slow[f"r.{slow.request_id}"] = asyncio.Event()
        async with running(other.requests.feeding):
            await d.step("slow")
            await asyncio.sleep(LONGEST_S)
            assert await d.results() == []
            other.keys.slow.clear()
            await asyncio.sleep(2 * AGAIN_S)
            assert [each["data"] for each in await d.results()] == ["slow"]


@virtually
async def test_a_bounded_number_of_messages_is_held() -> None:
    async with desk() as d:
        feed = Flood()
        d.keys.slow["r.slow"] = asyncio.Event()
        feeding = Feeding(d.requests.parts, feed, d.requests.pace)
        async with running(feeding):
            await asyncio.sleep(LONGEST_S / 2)
            assert (feed.fetched, feed.acknowledged, feed.given_back) == (MOST_HELD, 0, 0)
            await asyncio.sleep(LONGEST_S)
            assert (feed.fetched, feed.acknowledged, feed.given_back) == (
                2 * MOST_HELD, 0, MOST_HELD,
            )  # fmt: skip
