"""Streams: each event once, in order, whoever wrote it and however often the reader is cut."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from noetl.api.events import LogBatch, LogLine
from noetl.api.executions import Control
from noetl.api.http import AsgiTransport
from noetl.api.sse import parsed
from noetl.server.reading import stream
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import ONE_STEP, TWO_STEPS, many, rig, virtually


class Listening:
    """One stream over the app itself; the reader takes parts only while its gate is open."""

    def __init__(self, r, path: str, headers: dict[str, str]) -> None:
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.gate = asyncio.Event()
        self.gate.set()
        self.status = 0
        self.started = asyncio.Event()
        self.text = b""
        self._gone = asyncio.Event()
        path, _, query = path.partition("?")
        scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "method": "GET",
            "http_version": "1.1", "scheme": "http", "path": path, "raw_path": path.encode(),
            "query_string": query.encode(), "root_path": "", "client": ("127.0.0.1", 1),
            "server": ("noetl", 80),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }  # fmt: skip
        self.task = asyncio.ensure_future(r.server.asgi(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.started.set()
            return
        await self.gate.wait()
        self.text += message.get("body", b"")
        self._parts.put_nowait(message.get("body", b""))
        if not message.get("more_body", False):
            self._parts.put_nowait(None)

    async def events(self):
        """What was told, as it comes."""

        async def parts():
            while (part := await self._parts.get()) is not None:
                yield part

        async for told in parsed(parts()):
            yield told

    async def leave(self) -> None:
        """Go away, as a client does."""
        self._gone.set()
        await asyncio.wait([self.task], timeout=5)


@asynccontextmanager
async def listening(r, run: str, query: str = "", at: str = "events/stream", **headers: str):
    heard = Listening(
        r, f"/api/executions/{run}/{at}{query}",
        {name.replace("_", "-"): value for name, value in headers.items()},
    )  # fmt: skip
    try:
        yield heard
    finally:
        await heard.leave()
        if not heard.task.done():
            heard.task.cancel()
        await asyncio.gather(heard.task, return_exceptions=True)


async def played(r, commands: int) -> None:
    """Do the work of the only run."""
    for _ in range(commands):
        (work,) = await r.claim(wait_seconds=5)
        await asyncio.sleep(0.5)
        await r.done(work)


@virtually
async def test_events_are_told_as_they_are_committed_and_then_the_end() -> None:
    async with rig() as r:
        run = await r.start(TWO_STEPS)
        async with listening(r, run) as heard:
            work = asyncio.ensure_future(played(r, 2))
            told = [item async for item in heard.events()]
            await work
        log = (await r.client.events(run, limit=1000)).items
        assert [item["id"] for item in told[:-1]] == [row["event_id"] for row in log]
        assert [item["event"] for item in told[:-1]] == [row["event_type"] for row in log]
        assert all("context" not in item["data"] for item in told)
        assert told[-1] == {
            "event": "end", "id": None, "data": {"execution_id": run, "status": "COMPLETED"},
        }  # fmt: skip
        assert heard.text.startswith(b"retry: 2000\n\n")
        assert r.plane.streams.count == 0


@virtually
async def test_a_late_reader_gets_all_and_a_full_one_the_payloads() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        await r.done(work, result={"rows": 3})
        async with listening(r, run, "?fields=full") as heard:
            told = [item async for item in heard.events()]
        done = next(item for item in told if item["event"] == "call.done")
        assert done["data"]["result"]["context"] == {"data": {"rows": 3}}
        assert done["data"]["command_id"] == work.command_id
        last_id = told[-2]["id"]
        async with listening(r, run, last_event_id=last_id) as heard:
            assert [item["event"] async for item in heard.events()] == ["end"]


@virtually
async def test_a_large_event_is_told_by_its_reference() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        more = {"result": "x" * 40_000, "ctx": {"more": "y" * 40_000}}
        await r.report(r.event(work, "command.started"), r.event(work, "call.done", **more))
        async with listening(r, run, "?fields=full") as heard:
            told = [item["data"] async for item in heard.events() if item["event"] == "call.done"]
        (done,) = told
        assert (done["is_cut"], "result" in done) == (True, False)
        answer = await AsgiTransport(r.server.asgi).request("GET", done["reference"])
        assert answer.status == 200
        assert msgspec.json.decode(answer.body)["result"]["context"] == {"data": "x" * 40_000}


@virtually
async def test_a_reader_that_is_cut_again_and_again_misses_and_repeats_nothing() -> None:
    """Over two servers on one store, each of which writes a part of the log."""
    chance = random.Random(7)
    store = MemoryStore()
    async with rig(store, is_alone=False) as a, rig(store, machine=2, is_alone=False) as b:
        run = await a.start(many(60, 4))

        async def work(r, name: str) -> None:
            while await r.status(run) == "RUNNING":
                for command in await r.claim(name, wait_seconds=1):
                    await asyncio.sleep(chance.random())
                    await r.done(command, worker_id=name)

        working = [asyncio.ensure_future(work(r, name)) for r, name in ((a, "x"), (b, "y"))]
        seen: list[tuple[str, int]] = []
        cuts = 0
        while not seen or seen[-1][0] != "end":
            since = {"last_event_id": seen[-1][0]} if seen else {}
            async with listening(chance.choice((a, b)), run, **since) as heard:
                left = chance.randrange(1, 12)
                async for item in heard.events():
                    seen.append((item["id"] or "end", item["data"].get("seq", 0)))
                    left -= 1
                    if left == 0:
                        cuts += 1
                        break
        await asyncio.gather(*working)
        last_seq = (await a.client.status(run)).last_seq
        assert [seq for _, seq in seen[:-1]] == list(range(1, last_seq + 1))
        assert cuts > 20


@virtually
async def test_a_quiet_stream_is_kept_alive() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        async with listening(r, run) as heard:
            await asyncio.sleep(50)
            assert heard.text.count(b": ping\n\n") == 3
            await r.client.cancel(run, Control())
            assert [item["data"] async for item in heard.events()][-1]["status"] == "CANCELLED"


@virtually
async def test_a_reader_that_takes_nothing_is_cut_off_and_others_are_not() -> None:
    async with rig() as r:
        run = await r.start(many(600, 50))
        async with listening(r, run) as slow, listening(r, run) as quick:
            await asyncio.sleep(1)
            slow.gate.clear()
            while await r.status(run) == "RUNNING":
                for command in await r.claim(slots=50):
                    await r.done(command)
            await asyncio.sleep(1)
            told = [item["event"] async for item in quick.events()]
            assert told[-1] == "end"
            assert len(quick.text) > stream.MOST_BEHIND
            await asyncio.wait([slow.task], timeout=5)
            assert slow.task.done()
            assert b"event: end" not in slow.text


@virtually
async def test_an_unknown_place_or_run_is_refused() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        call = AsgiTransport(r.server.asgi).request
        path = f"/api/executions/{run}/events/stream"
        for asked, headers, status, code in (
            ("/api/executions/12/events/stream", {}, 404, "unknown_execution"),
            (f"{path}?since_event_id=77", {}, 422, "validation_failed"),
            (path, {"Last-Event-ID": "77"}, 422, "validation_failed"),
            (path, {"Last-Event-ID": "x"}, 422, "invalid_id"),
            (f"{path}?fields=all", {}, 422, "validation_failed"),
            (f"{path}?colour=red", {}, 422, "unknown_parameter"),
        ):
            answer = await call("GET", asked, b"", headers)
            assert (answer.status, msgspec.json.decode(answer.body)["code"]) == (status, code)


@virtually
async def test_an_account_has_only_so_many_streams() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        streams = r.plane.streams
        readers = [
            streams.open(run, 0, "local", is_lean=True) for _ in range(stream.MOST_OF_ACCOUNT)
        ]
        call = AsgiTransport(r.server.asgi).request
        answer = await call("GET", f"/api/executions/{run}/events/stream")
        assert (answer.status, msgspec.json.decode(answer.body)["code"]) == (429, "rate_limited")
        assert int(answer.headers["retry-after"]) > 0
        assert streams.open(run, 0, "other", is_lean=True) is not None
        for reader in readers:
            streams.close(reader)
            streams.close(reader)
        assert streams.count == 1


@virtually
async def test_streams_end_when_the_server_does() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        async with listening(r, run) as heard:
            await heard.started.wait()
            r.plane.streams.drain()
            told = [item["event"] async for item in heard.events()]
            assert "end" not in told
            await asyncio.wait([heard.task], timeout=5)
            assert heard.task.done()
        async with listening(r, run) as late:
            await late.started.wait()
            assert late.status == 503


@virtually
async def test_lines_are_followed_until_the_run_and_its_last_lines_are_through() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)

        def line(n: int, kind: str = "stdout") -> LogBatch:
            return LogBatch(
                entries=(
                    LogLine(
                        execution_id=run, command_id="5", attempt=1, n=n, step="start",
                        ts=f"2026-01-01T00:00:0{n}Z", text=f"line {n}", stream=kind,
                    ),
                )
            )  # fmt: skip

        async def write() -> None:
            for n in range(3):
                await r.client.log(line(n))
                await asyncio.sleep(20)
            (work,) = await r.claim()
            await r.done(work)
            await r.client.log(line(3, "stderr"))
            await asyncio.sleep(1)
            await r.client.log(line(4))

        writing = asyncio.ensure_future(write())
        async with listening(r, run, "?follow=true&stream=stdout", at="logs") as heard:
            told = [item async for item in heard.events()]
        await writing
        assert [item["data"].get("text") for item in told[:-1]] == [
            f"line {n}" for n in (0, 1, 2, 4)
        ]
        assert told[-1]["data"]["status"] == "COMPLETED"
        assert b": ping" in heard.text
        place = told[1]["id"]
        async with listening(r, run, "?follow=true", at="logs", last_event_id=place) as heard:
            rest = [item["data"].get("n") async for item in heard.events()]
        assert rest == [2, 3, 4, None]
        async with listening(r, run, "?follow=true", at="logs", last_event_id="x") as heard:
            await heard.started.wait()
            assert heard.status == 422
        assert r.plane.streams.count == 0


@virtually
async def test_a_line_wakes_its_reader_at_once() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        async with listening(r, run, "?follow=true", at="logs") as heard:
            await asyncio.sleep(1.1)  # between two looks
            line = LogLine(
                execution_id=run, command_id="5", attempt=1, n=0, step="start",
                ts="2026-01-01T00:00:00Z", text="now",
            )  # fmt: skip
            await r.client.log(LogBatch(entries=(line,)))
            await asyncio.sleep(0.05)
            assert b'"text":"now"' in heard.text
