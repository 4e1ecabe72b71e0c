"""Loops: timers, leases and hints."""

from __future__ import annotations

import asyncio

import msgspec

from noetl.api.commands import Heartbeat, Held, Release
from noetl.api.events import LogBatch, LogLine
from noetl.api.executions import Control
from noetl.api.runtime import WorkerEntry
from noetl.bus.base import BusGone
from noetl.engine import events as ev
from noetl.server.ingest.posts import Post, Stamped
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import ONE_STEP, many, rig, virtually

WAIT = "workflow:\n  - {step: start, tool: {kind: wait, seconds: 60}}\n"
LIMITED = ONE_STEP.rstrip() + "\n    spec: {timeout: 300}\n"


@virtually
async def test_a_timer_fires_on_time_and_not_before() -> None:
    async with rig() as r:
        run = await r.start(WAIT)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await r.server.finished(run)
        assert 60 <= loop.time() - began < 60.1


@virtually
async def test_a_timer_that_is_set_later_and_due_earlier_is_not_missed() -> None:
    async with rig() as r:
        await r.start(WAIT)
        short = await r.start(WAIT.replace("60", "2"))
        loop = asyncio.get_running_loop()
        began = loop.time()
        await r.server.finished(short)
        assert 2 <= loop.time() - began < 2.1


@virtually
async def test_a_pause_neither_loses_a_due_timer_nor_uses_up_a_limit() -> None:
    async with rig() as r:
        waiting = await r.start(WAIT)
        limited = await r.start(LIMITED)
        for run in (waiting, limited):
            await r.client.pause(run, Control())
        await asyncio.sleep(600)
        assert [await r.status(run) for run in (waiting, limited)] == ["PAUSED", "PAUSED"]
        loop = asyncio.get_running_loop()
        began = loop.time()
        for run in (waiting, limited):
            await r.client.resume(run, Control())
        await r.server.finished(waiting)
        assert loop.time() - began < 1
        await r.server.finished(limited)
        assert 299 <= loop.time() - began <= 301
        told = await r.client.execution(limited)
        assert (told.status, told.error["code"]) == ("FAILED", "step_timeout")


@virtually
async def test_an_execution_that_takes_too_long_has_failed() -> None:
    async with rig() as r:
        run = await r.start("executor: {spec: {timeout: 90}}\n" + ONE_STEP.lstrip())
        (work,) = await r.claim()
        held = Held(command_id=work.command_id, attempt=1)
        while await r.status(run) == "RUNNING":
            beat = await r.client.heartbeat(Heartbeat(worker_id="w", commands=(held,)))
            assert beat.lost == ()
            await asyncio.sleep(5)
        told = await r.client.execution(run)
        assert (told.status, told.error["code"]) == ("FAILED", "execution_timeout")
        beat = await r.client.heartbeat(Heartbeat(worker_id="w", commands=(held,)))
        assert beat.cancel == (work.command_id,)


@virtually
async def test_workers_are_told_on_the_bus_what_to_stop() -> None:
    async with rig() as r:
        run = await r.start(many(3, 3))
        work = await r.claim(slots=2)
        async with r.bus.listen("noetl.control.shared") as words:
            await r.client.cancel(run, Control())
            word = msgspec.json.decode((await anext(words)).payload)
        assert word["op"] == "cancel"
        assert sorted(word["command_ids"]) == sorted(item.command_id for item in work)


@virtually
async def test_a_bus_that_is_gone_stops_nothing() -> None:
    async with rig() as r:
        await r.bus.close()
        run = await r.start(ONE_STEP)
        await asyncio.sleep(100)
        (work,) = await r.claim()
        await r.done(work)
        assert await r.status(run) == "COMPLETED"
        assert BusGone.code == "broker_unreachable"


@virtually
async def test_without_a_bus_a_parked_claim_gets_its_work_at_once() -> None:
    async with rig() as r:
        await r.bus.close()
        waiting = asyncio.create_task(r.claim(wait_seconds=20))
        await asyncio.sleep(5)
        run = await r.start(ONE_STEP)
        began = asyncio.get_running_loop().time()
        assert [work.execution_id for work in await waiting] == [run]
        assert asyncio.get_running_loop().time() - began <= 0.1


@virtually
async def test_a_hint_names_the_command() -> None:
    async with rig(server_url="http://me") as r:
        run = await r.start(ONE_STEP)
        (hint,) = await r.bus.hints("shared").fetch(1, 5)
        (work,) = await r.claim()
        assert msgspec.json.decode(hint.payload) == {
            "execution_id": run, "event_id": work.command_id, "command_id": work.command_id,
            "step": "start", "attempt": 1, "server_url": "http://me", "execution_pool": "shared",
        }  # fmt: skip
        assert hint.subject == f"noetl.commands.shared.{run}"


@virtually
async def test_a_beat_among_reports_extends_a_lease() -> None:
    async with rig() as r:
        await r.start(ONE_STEP)
        (work,) = await r.claim()
        for _ in range(4):
            await asyncio.sleep(10)
            reported = await r.report(r.event(work, "command.heartbeat"))
            assert [item.outcome for item in reported.results] == ["stored"]
        foreign = await r.report(r.event(work, "command.heartbeat"), worker_id="other")
        assert [item.outcome for item in foreign.results] == ["late"]


@virtually
async def test_what_no_tool_has_touched_is_given_back_as_the_same_attempt() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        (work,) = await r.claim("first")
        held = Held(command_id=work.command_id, attempt=1, is_started=False)
        await r.client.release(Release(worker_id="first", commands=(held,)))
        (again,) = await r.claim("second")
        assert (again.command_id, again.attempt) == (work.command_id, 1)
        # The first one holds nothing any more: not for a beat, a report or a second release.
        beat = await r.client.heartbeat(Heartbeat(worker_id="first", commands=(held,)))
        assert beat.lost == (work.command_id,)
        late = await r.report(r.event(work, "call.done", result=0), worker_id="first")
        assert [item.outcome for item in late.results] == ["late"]
        await r.client.release(Release(worker_id="first", commands=(held,)))
        await r.done(again, 7, worker_id="second")
        assert (await r.client.execution(run)).result == 7


@virtually
async def test_what_has_begun_is_given_back_as_the_next_attempt() -> None:
    async with rig() as r:
        await r.start(many(2, 2))
        told, untold = await r.claim("w", slots=2)
        await r.report(r.event(told, "command.started"))
        held = (
            Held(command_id=told.command_id, attempt=1, is_started=False),
            Held(command_id=untold.command_id, attempt=1),
        )
        await r.client.release(Release(worker_id="w", commands=held))
        assert [work.attempt for work in await r.claim("v", slots=2)] == [2, 2]


@virtually
async def test_processes_that_were_silent_for_an_hour_are_forgotten() -> None:
    async with rig() as r:
        await r.client.register_worker(WorkerEntry(name="w1", labels={"pool": "gpu"}))
        await asyncio.sleep(3500)
        assert [row.name for row in await r.store.runtimes.listed()] == ["w1"]
        await asyncio.sleep(200)
        assert await r.store.runtimes.listed() == []


@virtually
async def test_lines_are_kept_once_and_read_back() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        line = LogLine(
            execution_id=run,
            command_id="1",
            attempt=1,
            n=1,
            ts="2026-01-01T00:00:00Z",
            text="hello",
            step="start",
        )
        await r.client.log(LogBatch(entries=(line,)))
        await r.client.log(LogBatch(entries=(line,)))
        (kept,) = await r.client.logs(run)
        assert (kept["text"], kept["step"], kept["stream"]) == ("hello", "start", "log")


@virtually
async def test_a_timer_that_nobody_set_does_not_fire() -> None:
    def setting(_state):
        yield Stamped(ev.TimerSet(timer_key="x", kind="wait", due_at="2026-01-01T00:00:05.000000Z"))
        yield Stamped(ev.TimerCancelled(timer_key="x"))

    async with rig() as r:
        run = await r.start(ONE_STEP)
        await r.plane.ingest.post(Post(run, setting))
        await asyncio.sleep(20)
        assert "timer.fired" not in await r.types(run)


class Hanging:
    """A log whose commits can be held up."""

    def __init__(self, log) -> None:
        self._log = log
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    def __getattr__(self, name):
        return getattr(self._log, name)

    async def commit(self, changes, delivered=()):
        await self.goes_on.wait()
        return await self._log.commit(changes, delivered)


@virtually
async def test_no_lease_ends_while_reports_cannot_be_stored() -> None:
    store = MemoryStore()
    log = store.log = Hanging(store.log)
    async with rig(store, lease_s=5) as r:
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        await asyncio.sleep(1)
        log.goes_on.clear()
        starting = asyncio.create_task(r.start(many(1, 1)))
        await asyncio.sleep(30)
        reporting = asyncio.create_task(r.done(work))
        await asyncio.sleep(30)
        log.goes_on.set()
        await asyncio.gather(starting, reporting)
        assert await r.status(run) == "COMPLETED"
        assert "command.lost" not in await r.types(run)
