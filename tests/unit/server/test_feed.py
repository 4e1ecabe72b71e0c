"""Lists as they change: what a reader wants and may have, not too often; nothing for nobody."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from noetl.api.catalog import Register
from noetl.api.executions import Control
from noetl.api.runtime import WorkerEntry
from noetl.server.access.caller import Caller
from noetl.server.reading import listener as listeners
from noetl.server.reading import stream
from noetl.server.reading.told import of_run
from noetl.store.base import Listing
from noetl.store.memory.store import MemoryStore
from tests.unit.server.reading.test_stream import Listening
from tests.unit.server.rig import HEAD, ONE_STEP, TWO_STEPS, many, rig, virtually


@asynccontextmanager
async def following(r, query: str = "topics=executions", **headers: str):
    heard = Listening(
        r, f"/api/stream?{query}",
        {name.replace("_", "-"): value for name, value in headers.items()},
    )  # fmt: skip
    heard.told = []  # type: ignore[attr-defined]

    async def collect() -> None:
        async for item in heard.events():
            heard.told.append(item)  # type: ignore[attr-defined]

    collecting = asyncio.ensure_future(collect())
    await heard.started.wait()
    await asyncio.sleep(0.01)
    try:
        yield heard
    finally:
        await heard.leave()
        collecting.cancel()
        if not heard.task.done():
            heard.task.cancel()
        await asyncio.gather(heard.task, collecting, return_exceptions=True)


async def worked(r, run: str) -> None:
    while await r.status(run) == "RUNNING":
        for command in await r.claim(slots=4):
            await r.done(command)


@virtually
async def test_a_run_is_told_as_its_list_shows_it_whenever_it_changes() -> None:
    async with rig() as r:
        async with following(r) as heard:
            run = await r.start(TWO_STEPS)
            await asyncio.sleep(1)
            await worked(r, run)
            await asyncio.sleep(1)
            (item,) = (await r.client.executions()).items
            assert heard.text.startswith(b"retry: 2000\n\n")
            assert {told["event"] for told in heard.told} == {"executions"}
            assert [told["data"]["status"] for told in heard.told] == ["RUNNING", "COMPLETED"]
            last = heard.told[-1]["data"]
            assert last == {**last, "execution_id": run, "event_count": item.event_count}
            assert r.plane.streams.count == 1
        assert r.plane.streams.count == 0
        assert r.plane.signals.hearer is None


@virtually
async def test_a_row_is_told_four_times_a_second_and_the_last_word_always() -> None:
    async with rig() as r, following(r) as heard:
        run = await r.start(many(200, 1))
        began = asyncio.get_running_loop().time()
        for _ in range(200):
            (work,) = await r.claim()
            await r.done(work)
            await asyncio.sleep(0.01)
        took = asyncio.get_running_loop().time() - began
        await asyncio.sleep(1)
        assert len(heard.told) <= 4 * took + 3
        assert heard.told[-1]["data"]["status"] == "COMPLETED"
        assert heard.told[-1]["data"]["execution_id"] == run


@virtually
async def test_filters_are_those_of_the_list_and_a_run_that_leaves_is_told_once_more() -> None:
    async with rig() as r, following(r, "status=RUNNING&label=team:a") as heard:
        run = await r.start(ONE_STEP, labels={"team": "a"})
        await r.start(ONE_STEP, labels={"team": "b"})
        await asyncio.sleep(1)
        await r.client.cancel(run, Control())
        await asyncio.sleep(1)
        seen = [(told["data"]["execution_id"], told["data"]["status"]) for told in heard.told]
        assert seen == [(run, "RUNNING"), (run, "CANCELLED")]


@virtually
async def test_only_what_the_caller_may_read_is_told() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        row = await r.plane.details.row(run)
        feed = r.plane.feed
        mine = Caller("a", ("viewer",), tenant_id="default")
        allowed = listeners.Listener(feed, mine, ["executions"], Listing(tenant_id="default"))
        stranger = listeners.Listener(feed, mine, ["executions"], Listing(tenant_id="other"))
        denied = listeners.Listener(
            feed, mine, ["executions"], Listing(tenant_id="default", denied=("demo/*",))
        )
        for one in (allowed, stranger, denied):
            one.offer(of_run(row))
        assert [len(one._waiting) for one in (allowed, stranger, denied)] == [1, 0, 0]  # noqa: SLF001 - what is queued


@virtually
async def test_pools_the_system_and_the_catalog_are_told_when_they_change() -> None:
    async with rig() as r:
        await r.client.register(Register(content=HEAD + ONE_STEP))
        async with following(r, "topics=pools,system,catalog") as heard:
            await asyncio.sleep(3)
            assert [told["event"] for told in heard.told] == ["system"]
            assert heard.told[0]["data"]["status"] == "ok"
            await r.client.register_worker(
                WorkerEntry(name="w", capacity=4, runtime={"pool": "gpu"})
            )
            await r.client.register(Register(content=HEAD + TWO_STEPS))
            await asyncio.sleep(6)
            later = {told["event"]: told["data"] for told in heard.told[1:]}
            assert (later["pools"]["pool"], later["pools"]["slots"]) == ("gpu", 4)
            assert (later["catalog"]["path"], later["catalog"]["version"]) == ("demo/it", 2)
            assert len(heard.told) == 3
            await r.start(ONE_STEP)
            await asyncio.sleep(3)
            assert "executions" not in {told["event"] for told in heard.told}


@virtually
async def test_commits_of_another_server_are_found() -> None:
    store = MemoryStore()
    async with (
        rig(store, is_alone=False) as one,
        rig(store, machine=2, is_alone=False) as two,
        following(one) as heard,
    ):
        run = await two.start(ONE_STEP)
        await asyncio.sleep(3)
        await worked(two, run)
        await asyncio.sleep(3)
        assert [told["data"]["status"] for told in heard.told] == ["RUNNING", "COMPLETED"]


@virtually
async def test_the_bus_names_commits_of_another_server_sooner() -> None:
    async with rig(is_alone=False, publishes=True) as r, following(r) as heard:
        run = await r.start(ONE_STEP)
        await asyncio.sleep(0.5)
        assert len(heard.told) == 1
        feed = r.plane.feed
        feed._heard.clear()  # noqa: SLF001 - as if another server had committed it
        row = await r.plane.details.row(run)
        body = b'{"execution_id":"%b","first_seq":1,"last_seq":%d,"events":[]}' % (
            run.encode(), row.last_seq,
        )  # fmt: skip
        await r.bus.tell(f"noetl.events.default.default.{run}.0", body)
        await asyncio.sleep(0.5)
        assert [told["data"]["execution_id"] for told in heard.told] == [run, run]
        await r.bus.tell(f"noetl.events.default.default.{run}.0", body)
        await r.bus.tell("noetl.events.odd", b"{}")
        await asyncio.sleep(0.5)
        assert len(heard.told) == 2


@virtually
async def test_who_comes_back_is_told_what_has_changed_since() -> None:
    async with rig() as r:
        async with following(r) as heard:
            await r.start(ONE_STEP)
            await asyncio.sleep(1)
            mark = heard.told[-1]["id"]
        await asyncio.sleep(30)
        run = await r.start(ONE_STEP)
        async with following(r, last_event_id=mark) as heard:
            await asyncio.sleep(1)
            assert run in [told["data"]["execution_id"] for told in heard.told]
        await asyncio.sleep(600)
        async with following(r, last_event_id=mark) as heard:
            await asyncio.sleep(1)
            assert [told["event"] for told in heard.told] == ["reset"]


@virtually
async def test_silence_is_broken_by_pings_and_a_slow_reader_is_cut_off() -> None:
    async with rig() as r, following(r) as heard:
        await asyncio.sleep(40)
        assert heard.text.count(b": ping\n\n") == 2
        r.plane.streams.drain()
        await asyncio.wait_for(heard.task, 5)
    old = listeners.MOST_WAITING
    listeners.MOST_WAITING = 3  # type: ignore[misc]
    try:
        async with rig() as r, following(r) as heard:
            heard.gate.clear()
            for _ in range(6):
                await r.start(ONE_STEP)
            await asyncio.sleep(1)
            for _ in range(6):
                await r.start(ONE_STEP)
            await asyncio.wait_for(heard.task, 5)
            assert r.plane.streams.count == 0
    finally:
        listeners.MOST_WAITING = old  # type: ignore[misc]


@virtually
async def test_streams_of_lists_count_with_the_others() -> None:
    old = stream.MOST_OF_ACCOUNT
    stream.MOST_OF_ACCOUNT = 1  # type: ignore[misc]
    try:
        async with rig() as r, following(r):
            second = Listening(r, "/api/stream", {})
            await second.started.wait()
            assert second.status == 429
            await second.leave()
    finally:
        stream.MOST_OF_ACCOUNT = old  # type: ignore[misc]


@pytest.mark.parametrize("query", ["topics=tea", "topics=", "colour=red", "status=green"])
def test_what_is_no_topic_and_no_filter_is_refused(query: str) -> None:
    @virtually
    async def ask() -> None:
        async with rig() as r:
            asked = Listening(r, f"/api/stream?{query}", {})
            await asked.started.wait()
            assert asked.status == 422
            await asked.leave()
            assert r.plane.signals.hearer is None

    ask()
