"""More requests of one client than fit into a page of anything."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from noetl.api.http import Answer
from noetl.clock import SystemClock
from noetl.gateway.requests.rebuilding import MOST_RUNS, PAGE, Rebuilds
from noetl.gateway.upstream import Upstream
from tests.unit.gateway.requests.desk import ANN, CLIENT, INTERNAL, desk
from tests.unit.server.rig import virtually

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.unit.gateway.requests.desk import Desk


class Endless:
    """A server that has always one more page of runs."""

    def __init__(self) -> None:
        self.pages = 0

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        del method, path, body, headers
        self.pages += 1
        return Answer(200, {}, b'{"items": [], "next_cursor": "more"}')


async def started(d: Desk, count: int) -> list[str]:
    """Requests of the client, as fast as the server lets one account start runs."""
    made = []
    for _ in range(count):
        made.append((await d.start()).request_id)
        await asyncio.sleep(0.01)
    return made


@virtually
async def test_all_that_a_client_waits_for_is_told_and_the_newest_requests_are_listed() -> None:
    async with desk() as d:
        made = await started(d, 1_001)
        pending = await d.requests.pending(ANN, CLIENT)
        assert [each["requestId"] for each in pending] == made[::-1]
        listed = await d.requests.listed(ANN, 2)
        assert [each.request_id for each in listed] == [made[-1], made[-2]]
        while await d.step({"n": 1}):
            pass
        while await d.heard():
            pass
        assert await d.requests.pending(ANN, CLIENT) == []
        ended = [each.request_id async for each in d.requests.undelivered(ANN, CLIENT)]
        assert ended == made


@virtually
async def test_a_lost_bucket_is_rebuilt_from_all_pages_of_runs() -> None:
    async with desk() as d:
        made = await started(d, PAGE + 1)
        d.wipe()
        await d.requests.restored(ANN, CLIENT)
        pending = await d.requests.pending(ANN, CLIENT)
        assert [each["requestId"] for each in pending] == made[::-1]


@virtually
async def test_runs_whose_records_are_there_are_not_asked_for() -> None:
    async with desk() as d:
        await started(d, 3)
        d.way.asked.clear()
        await d.requests.restored(ANN, CLIENT)
        assert d.way.asked == ["GET /api/executions"]


@virtually
async def test_a_bounded_number_of_runs_is_looked_through() -> None:
    server = Endless()
    rebuilds = Rebuilds(Upstream([server], INTERNAL, SystemClock()), SystemClock())
    assert [each async for each in rebuilds.of_client(CLIENT, ANN.owner)] == []
    assert server.pages == MOST_RUNS // PAGE
