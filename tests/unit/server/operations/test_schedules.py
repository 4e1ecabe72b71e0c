"""Schedules: triggers of playbooks, one run per tick, overlap, and two servers."""

from __future__ import annotations

import asyncio

import msgspec

from noetl.api.catalog import Register
from noetl.api.executions import Control
from noetl.clock import LoopClock, rfc3339
from noetl.server.loops import schedules
from noetl.store.base import Listing
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import HEAD, ONE_STEP, START, rig, virtually


def timed(trigger: str, body: str = ONE_STEP) -> Register:
    return Register(content=f"{HEAD}triggers:\n  - {{{trigger}}}\n{body.lstrip()}")


async def runs(r) -> list:
    """All runs, oldest first."""
    return await r.store.executions.listed(Listing(limit=1000, is_ascending=True))


async def dues(r) -> list[str]:
    """When the ticks of all runs were due, in order."""
    return sorted(row.workload["schedule"]["due_at"] for row in await runs(r))


@virtually
async def test_a_trigger_starts_its_playbook_and_says_why() -> None:
    async with rig() as r:
        await r.client.register(
            timed("name: often, interval: 10s, overlap: allow, input: {city: ZRH}, pool: night")
        )
        await asyncio.sleep(25)
        first, second = await runs(r)
        assert first.workload == {
            "city": "ZRH",
            "schedule": {
                "name": "often",
                "due_at": "2026-01-01T00:00:10.000000Z",
                "fired_at": first.started_at,
            },
        }
        assert first.pool == "night"
        assert second.workload["schedule"]["due_at"] == "2026-01-01T00:00:20.000000Z"
        (row,) = await r.store.schedules.listed()
        assert (row.name, row.last_status) == ("demo/it:often", "started")
        assert row.last_execution_id == second.execution_id
        assert row.next_run_at == "2026-01-01T00:00:30.000000Z"
        events = await r.store.log.read(first.execution_id, 0, 1)
        assert events[0].event.trigger == {
            "kind": "schedule", "name": "often", "schedule_id": row.schedule_id,
            "due_at": "2026-01-01T00:00:10.000000Z",
        }  # fmt: skip


@virtually
async def test_registering_again_replaces_the_schedules() -> None:
    async with rig() as r:
        await r.client.register(timed("name: a, cron: '* * * * *'"))
        await r.client.register(timed("name: b, cron: '0 * * * *', enabled: false"))
        assert [row.name for row in await r.store.schedules.listed()] == ["demo/it:b"]
        await asyncio.sleep(7200)
        assert await runs(r) == []
        await r.client.register(Register(content=HEAD + ONE_STEP.lstrip()))
        assert await r.store.schedules.listed() == []


@virtually
async def test_the_same_document_again_moves_no_schedule() -> None:
    async with rig() as r:
        await r.client.register(timed("interval: 100s"))
        before = await r.store.schedules.listed()
        await asyncio.sleep(50)
        await r.client.register(timed("interval: 100s"))
        assert await r.store.schedules.listed() == before
        await asyncio.sleep(60)
        assert await dues(r) == ["2026-01-01T00:01:40.000000Z"]


@virtually
async def test_a_run_that_still_runs_is_not_overlapped() -> None:
    async with rig() as r:
        await r.client.register(timed("interval: 10s"))
        await asyncio.sleep(35)
        (run,) = await runs(r)
        (row,) = await r.store.schedules.listed()
        assert (row.last_status, row.last_execution_id) == ("skipped", run.execution_id)
        await r.client.cancel(run.execution_id, Control())
        await asyncio.sleep(10)
        assert len(await runs(r)) == 2


@virtually
async def test_a_newer_run_may_cancel_the_one_before() -> None:
    async with rig() as r:
        await r.client.register(timed("interval: 10s, overlap: cancel_previous"))
        await asyncio.sleep(35)
        assert [row.status for row in await runs(r)] == ["CANCELLED", "CANCELLED", "RUNNING"]


@virtually
async def test_runs_may_queue_up() -> None:
    async with rig() as r:
        await r.client.register(timed("interval: 10s, overlap: queue"))
        await asyncio.sleep(35)
        assert [row.status for row in await runs(r)] == ["RUNNING", "PENDING", "PENDING"]
        (work,) = await r.claim()
        await r.done(work)
        await asyncio.sleep(1)
        assert [row.status for row in await runs(r)] == ["COMPLETED", "RUNNING", "PENDING"]


@virtually
async def test_what_was_missed_is_caught_up_once_per_tick() -> None:
    store = MemoryStore()
    clock = LoopClock(asyncio.get_running_loop(), START)
    async with rig(store, clock=clock) as r:
        await r.client.register(timed("interval: 10s, overlap: allow, catchup: all"))
    await asyncio.sleep(35)
    async with rig(store, clock=clock, machine=2) as r:
        await asyncio.sleep(1)
        wanted = [f"2026-01-01T00:00:{second}.000000Z" for second in (10, 20, 30)]
        assert await dues(r) == wanted


@virtually
async def test_a_server_that_dies_between_the_start_and_the_note_starts_nothing_twice() -> None:
    async with rig() as r:
        await r.client.register(timed("interval: 10s, overlap: allow"))
        (row,) = await r.store.schedules.listed()
        await asyncio.sleep(15)
        # The same row again, as if it had not been moved on.
        await schedules.fire(r.plane, row)
        assert await dues(r) == ["2026-01-01T00:00:10.000000Z"]


@virtually
async def test_two_servers_fire_a_tick_once() -> None:
    store = MemoryStore()
    async with rig(store, is_alone=False) as one, rig(store, machine=2, is_alone=False) as two:
        await one.client.register(timed("interval: 10s, overlap: allow"))
        await asyncio.sleep(10)
        rows = await store.schedules.due(rfc3339(START.replace(minute=1)))
        # Whatever the leader did, both fire what they believe to be due.
        await asyncio.gather(*(schedules.fire_all(r.plane, rows) for r in (one, two, one, two)))
        await asyncio.sleep(15)
        found = await dues(one)
        assert found == ["2026-01-01T00:00:10.000000Z", "2026-01-01T00:00:20.000000Z"]


@virtually
async def test_a_schedule_that_another_server_wrote_fires_within_a_second() -> None:
    store = MemoryStore()
    async with rig(store, is_alone=False) as leader, rig(store, machine=2, is_alone=False) as other:
        await asyncio.sleep(5)
        await other.client.register(timed("interval: 10s"))
        await asyncio.sleep(6.5)
        (run,) = await runs(leader)
        assert "2026-01-01T00:00:10" <= run.started_at <= "2026-01-01T00:00:11.1"


@virtually
async def test_a_refusal_is_noted_and_the_next_tick_comes() -> None:
    strict = (
        "inputs: {city: {type: string, required: true}}\nexecutor: {spec: {strict_inputs: true}}\n"
    )
    async with rig() as r:
        await r.client.register(timed("interval: 10s", strict + ONE_STEP.lstrip()))
        await asyncio.sleep(15)
        (row,) = await r.store.schedules.listed()
        assert (row.last_status, await runs(r)) == ("invalid_input", [])
        assert row.next_run_at == "2026-01-01T00:00:20.000000Z"
        # With its inputs given, a strict playbook takes the schedule's own word, too.
        await r.client.register(
            timed("interval: 10s, input: {city: BSL}", strict + ONE_STEP.lstrip())
        )
        await asyncio.sleep(10)
        assert len(await runs(r)) == 1


@virtually
async def test_a_row_that_cannot_be_read_is_put_aside() -> None:
    async with rig() as r:
        await r.client.register(timed("name: good, interval: 10s"))
        (good,) = await r.store.schedules.listed()
        bad = msgspec.structs.replace(
            good, schedule_id="1", name="bad", timezone="Mars/Base", cron="* * * * *"
        )
        await r.store.schedules.replace("demo/it", [good, bad])
        await asyncio.sleep(15)
        found = {row.name: row for row in await r.store.schedules.listed()}
        assert (found["bad"].next_run_at, found["bad"].last_status) == (None, "invalid")
        assert found["demo/it:good"].last_status == "started"


@virtually
async def test_a_schedule_that_ended_goes_on_when_its_end_is_moved() -> None:
    async with rig() as r:
        await r.client.register(
            timed("name: a, interval: 10s, overlap: allow, end_at: '2026-01-01T00:00:10Z'")
        )
        await asyncio.sleep(25)
        (row,) = await r.store.schedules.listed()
        assert (row.next_run_at, len(await runs(r))) == (None, 1)
        await r.client.register(
            timed("name: a, interval: 10s, overlap: allow, end_at: '2026-01-01T00:00:40Z'")
        )
        await asyncio.sleep(35)
        wanted = [f"2026-01-01T00:00:{second}.000000Z" for second in (10, 30, 40)]
        assert await dues(r) == wanted
