"""A stream that is cut again and again, over two servers: each event once, in order."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from noetl.api.sse import parsed
from tests.integration.test_two_servers import leading, server
from tests.unit.server.reading.test_stream import Listening
from tests.unit.server.rig import many

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.server.rig import Rig

CUTS = 100
ITEMS = 200
MOST_HEARD = 8
"""Events that a reader hears at most before it is cut."""


async def work_off(rigs: tuple[Rig, Rig]) -> None:
    """Let two workers finish a run, each report at the other server than the claim."""
    for turn in range(ITEMS):
        claimed = await rigs[turn % 2].claim(slots=4)
        await asyncio.gather(*(rigs[(turn + 1) % 2].done(item) for item in claimed))
        if not claimed:
            return


async def heard_of(text: bytes) -> list[dict[str, Any]]:
    """What whole events a text has."""

    async def parts() -> AsyncIterator[bytes]:
        yield text

    return [told async for told in parsed(parts())]


async def listened(r: Rig, run: str, last: str | None, chance: random.Random) -> list[dict]:
    """Follow a run for a moment, and lose the connection in the middle of some byte."""
    headers = {} if last is None else {"last-event-id": last}
    stream = Listening(r, f"/api/executions/{run}/events/stream", headers)
    wanted = chance.randint(0, MOST_HEARD)
    with suppress(TimeoutError):
        async with asyncio.timeout(chance.uniform(0.01, 0.1)):
            while stream.text.count(b"\n\n") <= wanted:  # noqa: ASYNC110 - nobody is told of it
                await asyncio.sleep(0.001)
    text = stream.text
    await stream.leave()
    ends = [place for place in range(len(text)) if text.startswith(b"\n\n", place)]
    most = ends[wanted] + 2 if len(ends) > wanted else len(text)
    return await heard_of(text[: chance.randint(most // 2, most)])


async def test_each_event_is_told_once_however_often_the_stream_is_cut(postgres_url: str) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - a failure is told with it
    chance = random.Random(seed)
    async with server(postgres_url, 1) as one:
        await leading(1)
        async with server(postgres_url, 2) as two:
            run = await one.start(many(ITEMS, 40))
            working = asyncio.ensure_future(work_off((one, two)))
            told: list[dict[str, Any]] = []
            for _ in range(CUTS):
                last = told[-1]["id"] if told else None
                told += await listened(chance.choice((one, two)), run, last, chance)
            await working
            stream = Listening(
                chance.choice((one, two)), f"/api/executions/{run}/events/stream",
                {"last-event-id": told[-1]["id"]},
            )  # fmt: skip
            async with asyncio.timeout(20):
                told += [item async for item in stream.events()]
            await stream.task
            log = [item async for item in whole(one, run)]
    assert told[-1]["event"] == "end"
    assert [item["id"] for item in told[:-1]] == [item.event_id for item in log]
    assert [item["data"]["seq"] for item in told[:-1]] == list(range(1, len(log) + 1))


async def whole(r: Rig, run: str) -> AsyncIterator[Any]:
    """The log of a run."""
    after = 0
    while page := await r.store.log.read(run, after):
        for item in page:
            yield item
        after = page[-1].seq
