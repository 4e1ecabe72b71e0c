"""Schedules by hand: made, changed, paused, fired, and caught up."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest

from noetl.api.catalog import Register
from noetl.api.executions import Control
from noetl.api.http import AsgiTransport
from noetl.api.problems import Refused
from noetl.api.schedules import Backfill, ScheduleBody
from noetl.clock import LoopClock
from noetl.edge.errors import NotFound
from noetl.server.access.caller import Caller
from noetl.store.base import Listing, ScheduleListing
from noetl.store.memory.store import MemoryStore
from tests.unit.server.rig import HEAD, ONE_STEP, START, rig, virtually

DEMO = Register(content=HEAD + ONE_STEP)
MINUTE = "2026-01-01T00:{:02}:00.000000Z"


def body(**more) -> ScheduleBody:
    known = {"name": "often", "path": "demo/it", "interval_seconds": 60, "overlap": "allow"}
    return ScheduleBody(**(known | more))


async def runs(r) -> list:
    return await r.store.executions.listed(Listing(limit=1000, is_ascending=True))


async def dues(r) -> list[str]:
    return sorted(row.workload["schedule"]["due_at"] for row in await runs(r))


async def refused(work) -> tuple[int, str]:
    with pytest.raises(Refused) as refusal:
        await work
    return refusal.value.problem.status, refusal.value.code


@virtually
async def test_a_schedule_is_made_fires_and_is_forgotten() -> None:
    async with rig() as r:
        await r.client.register(DEMO)
        made = await r.client.add_schedule(
            body(input={"city": "ZRH"}, pool="night", priority=7, version=1, jitter_s=0)
        )
        assert (made.origin, made.created_by, made.payload) == ("api", "local", {"city": "ZRH"})
        assert (made.next_run_at, made.priority, made.version) == (MINUTE.format(1), 7, 1)
        await asyncio.sleep(61)
        (run,) = await runs(r)
        assert (run.pool, run.priority, run.created_by) == ("night", 7, "local")
        assert run.workload["city"] == "ZRH"
        shown = await r.client.schedule(made.schedule_id)
        assert (shown.last_execution_id, shown.last_status) == (run.execution_id, "started")
        removed = await r.client.remove_schedule(made.schedule_id)
        assert removed.status == "deleted"
        assert await refused(r.client.schedule(made.schedule_id)) == (404, "not_found")
        await asyncio.sleep(120)
        assert len(await runs(r)) == 1


@virtually
async def test_what_cannot_be_meant_is_refused_with_its_place() -> None:
    async with rig() as r:
        await r.client.register(DEMO)
        call = AsgiTransport(r.server.asgi).request
        for more, pointer, code in (
            ({"interval_seconds": 9}, "/interval_seconds", "validation_failed"),
            ({"interval_seconds": None, "cron": "61 * * * *"}, "/cron", "validation_failed"),
            ({"timezone": "Mars/Base"}, "/timezone", "validation_failed"),
            ({"jitter_s": -1}, "/jitter_s", "validation_failed"),
            ({"jitter_s": 100_000}, "/jitter_s", "validation_failed"),
            ({"catchup": "some"}, "/catchup", "validation_failed"),
            ({"overlap": "maybe"}, "/overlap", "validation_failed"),
            ({"max_catchup": 0}, "/max_catchup", "validation_failed"),
            ({"start_at": "soon"}, "/start_at", "bad_time"),
            ({"start_at": "2026-02-01T00:00:00Z", "end_at": "2026-01-01T00:00:00Z"}, "/end_at",
             "validation_failed"),
            ({"name": ""}, "/name", "validation_failed"),
            ({"name": "a:b"}, "/name", "validation_failed"),
            ({"path": "demo/it@1"}, "/path", "validation_failed"),
            ({"payload": {}, "input": {}}, "/input", "validation_failed"),
            ({"extra": 1}, "/extra", "unknown_field"),
        ):  # fmt: skip
            known = {"name": "n", "path": "demo/it", "interval_seconds": 60}
            given = {key: value for key, value in (known | more).items() if value is not None}
            answer = await call("POST", "/api/schedules", msgspec.json.encode(given))
            problem = msgspec.json.decode(answer.body)
            assert (answer.status, problem["errors"][0]["pointer"]) == (422, pointer), problem
            assert problem["errors"][0]["code"] == code
        for wrong, code in (
            (body(interval_seconds=None), "validation_failed"),
            (body(cron="* * * * *"), "validation_failed"),
            (body(pool="a.b"), "pool_invalid"),
            (body(priority=10), "validation_failed"),
            (body(version=0), "validation_failed"),
        ):
            assert await refused(r.client.add_schedule(wrong)) == (422, code)
        assert await refused(r.client.add_schedule(body(path="no/such"))) == (404, "unknown_path")
        assert (await r.client.schedules()).items == ()


@virtually
async def test_a_change_keeps_the_place_of_equal_times_and_moves_others() -> None:
    async with rig() as r:
        await r.client.register(DEMO)
        made = await r.client.add_schedule(body())
        await asyncio.sleep(30)
        same = await r.client.change_schedule(made.schedule_id, body(input={"a": 1}, name="x"))
        assert (same.next_run_at, same.name, same.payload) == (MINUTE.format(1), "x", {"a": 1})
        other = await r.client.change_schedule(
            made.schedule_id, body(interval_seconds=None, cron="30 * * * *")
        )
        assert other.next_run_at == MINUTE.format(30)
        await r.client.add_schedule(body(name="y"))
        clash = r.client.change_schedule(made.schedule_id, body(name="y"))
        assert await refused(clash) == (409, "in_use")
        assert await refused(r.client.change_schedule("77", body())) == (404, "not_found")
        assert await refused(r.client.schedule("no id")) == (422, "invalid_id")


@virtually
async def test_a_paused_schedule_rests_and_goes_on_from_then() -> None:
    async with rig() as r:
        await r.client.register(DEMO)
        made = await r.client.add_schedule(body())
        paused = await r.client.pause_schedule(made.schedule_id)
        assert (paused.enabled, paused.next_run_at) == (False, None)
        assert await r.client.pause_schedule(made.schedule_id) == paused
        await asyncio.sleep(600)
        assert await runs(r) == []
        resumed = await r.client.resume_schedule(made.schedule_id)
        assert (resumed.enabled, resumed.next_run_at) == (True, MINUTE.format(11))
        await asyncio.sleep(61)
        assert await dues(r) == [MINUTE.format(11)]


@virtually
async def test_a_trigger_of_a_playbook_is_changed_there_and_fired_here() -> None:
    triggers = f"{HEAD}triggers:\n  - {{name: t, interval: 1h, overlap: allow}}\n"
    async with rig() as r:
        await r.client.register(Register(content=triggers + ONE_STEP.lstrip()))
        (shown,) = (await r.client.schedules()).items
        assert (shown.name, shown.origin, shown.interval_seconds) == ("demo/it:t", "trigger", 3600)
        one = shown.schedule_id
        assert await refused(r.client.change_schedule(one, body())) == (409, "in_use")
        assert await refused(r.client.remove_schedule(one)) == (409, "in_use")
        fired = await r.client.trigger_schedule(one)
        assert fired.status == "started"
        (run,) = await runs(r)
        assert run.execution_id == fired.execution_id
        await r.client.pause_schedule(one)
        # The same document again does not undo what a person has done.
        await r.client.register(Register(content=triggers + ONE_STEP.lstrip()))
        assert not (await r.client.schedule(one)).enabled
        assert (await r.client.resume_schedule(one)).enabled


@virtually
async def test_a_run_by_hand_counts_as_the_one_before() -> None:
    async with rig() as r:
        await r.client.register(DEMO)
        made = await r.client.add_schedule(body(overlap="skip"))
        fired = await r.client.trigger_schedule(made.schedule_id)
        await asyncio.sleep(61)
        assert [row.execution_id for row in await runs(r)] == [fired.execution_id]
        assert (await r.client.schedule(made.schedule_id)).last_status == "skipped"
        await r.client.cancel(str(fired.execution_id), Control())
        await asyncio.sleep(60)
        assert len(await runs(r)) == 2


@virtually
async def test_a_run_by_hand_follows_the_rule_for_the_one_before() -> None:
    async with rig() as r:
        await r.client.register(DEMO)
        made = await r.client.add_schedule(body(overlap="cancel_previous"))
        await r.client.trigger_schedule(made.schedule_id)
        await asyncio.sleep(1)
        await r.client.trigger_schedule(made.schedule_id)
        assert [row.status for row in await runs(r)] == ["CANCELLED", "RUNNING"]
        queue = await r.client.add_schedule(body(name="q", overlap="queue"))
        await r.client.trigger_schedule(queue.schedule_id)
        await asyncio.sleep(1)
        await r.client.trigger_schedule(queue.schedule_id)
        assert [row.status for row in (await runs(r))[2:]] == ["RUNNING", "PENDING"]


@virtually
async def test_times_that_have_passed_are_run_after_all_and_once() -> None:
    async with rig() as r:
        await r.client.register(DEMO)
        made = await r.client.add_schedule(body(enabled=False))
        await asyncio.sleep(600)
        asked = Backfill(from_=MINUTE.format(2), to=MINUTE.format(6), limit=3)
        done = await r.client.backfill_schedule(made.schedule_id, asked)
        assert [item.due_at for item in done.items] == [MINUTE.format(n) for n in (2, 3, 4)]
        assert ({item.status for item in done.items}, done.has_more) == ({"started"}, True)
        again = await r.client.backfill_schedule(
            made.schedule_id, Backfill(from_=MINUTE.format(4), to=MINUTE.format(5))
        )
        assert [item.status for item in again.items] == ["duplicate", "started"]
        assert again.items[0].execution_id == done.items[2].execution_id
        assert await dues(r) == [MINUTE.format(n) for n in (2, 3, 4, 5)]
        for wrong in (
            Backfill(from_=MINUTE.format(5), to=MINUTE.format(4)),
            Backfill(from_=MINUTE.format(5), to="2026-02-01T00:00:00Z"),
            Backfill(from_="x", to=MINUTE.format(4)),
        ):
            work = r.client.backfill_schedule(made.schedule_id, wrong)
            assert await refused(work) == (422, "bad_time")
        most = Backfill(from_=MINUTE.format(1), to=MINUTE.format(2), limit=1001)
        assert (await refused(r.client.backfill_schedule(made.schedule_id, most)))[0] == 422


@virtually
async def test_what_is_caught_up_by_hand_runs_in_turn_unless_it_may_overlap() -> None:
    async with rig() as r:
        await r.client.register(DEMO)
        made = await r.client.add_schedule(body(overlap="skip", enabled=False))
        await asyncio.sleep(600)
        await r.client.backfill_schedule(
            made.schedule_id, Backfill(from_=MINUTE.format(1), to=MINUTE.format(3))
        )
        assert [row.status for row in await runs(r)] == ["RUNNING", "PENDING", "PENDING"]


@virtually
async def test_a_time_that_cannot_be_run_is_told_and_fails_no_other() -> None:
    strict = "inputs: {city: {type: string, required: true}}\n"
    async with rig() as r:
        await r.client.register(Register(content=HEAD + strict + ONE_STEP.lstrip()))
        made = await r.client.add_schedule(body(enabled=False))
        await asyncio.sleep(600)
        done = await r.client.backfill_schedule(
            made.schedule_id, Backfill(from_=MINUTE.format(1), to=MINUTE.format(2))
        )
        assert [(item.status, item.code) for item in done.items] == [("error", "invalid_input")] * 2


@virtually
async def test_the_next_times_are_told() -> None:
    async with rig() as r:
        await r.client.register(DEMO)
        made = await r.client.add_schedule(
            body(interval_seconds=None, cron="*/5 * * * *", end_at=MINUTE.format(12))
        )
        fires = await r.client.schedule_fires(made.schedule_id, 100)
        assert fires.items == (MINUTE.format(5), MINUTE.format(10))
        assert len((await r.client.schedule_fires(made.schedule_id, 1)).items) == 1
        for count in (0, 101):
            assert (await refused(r.client.schedule_fires(made.schedule_id, count)))[0] == 422


@virtually
async def test_lists_are_paged_and_filtered() -> None:
    async with rig() as r:
        await r.client.register(DEMO)
        for number in range(5):
            await r.client.add_schedule(body(name=f"n{number}", enabled=number != 2))
        page = await r.client.schedules(limit=2)
        assert [item.name for item in page.items] == ["n0", "n1"]
        rest = await r.client.schedules(limit=3, cursor=str(page.next_cursor))
        assert ([item.name for item in rest.items], rest.next_cursor) == (["n2", "n3", "n4"], None)
        assert [i.name for i in (await r.client.schedules(enabled="false")).items] == ["n2"]
        assert (await r.client.schedules(path="other")).items == ()
        assert await refused(r.client.schedules(nope=1)) == (422, "unknown_parameter")
        bad = r.client.schedules(path="demo/it", cursor=str(page.next_cursor))
        assert await refused(bad) == (422, "bad_cursor")


@virtually
async def test_another_tenant_sees_and_touches_nothing() -> None:
    async with rig() as r:
        await r.client.register(DEMO)
        made = await r.client.add_schedule(body())
        eve = Caller("eve", ("admin",), tenant_id="acme")
        for work in (
            r.plane.scheduled.get(eve, made.schedule_id),
            r.plane.scheduled.trigger(eve, made.schedule_id),
            r.plane.scheduled.remove(eve, made.schedule_id),
        ):
            with pytest.raises(NotFound):
                await work
        seen = await r.plane.scheduled.page(eve, ScheduleListing(limit=50))
        assert seen.items == ()


@virtually
async def test_catchup_decides_what_a_long_gap_brings() -> None:
    for catchup, wanted in (("none", 0), ("latest", 1), ("all", 5)):
        store = MemoryStore()
        clock = LoopClock(asyncio.get_running_loop(), START)
        async with rig(store, clock=clock) as r:
            await r.client.register(DEMO)
            await r.client.add_schedule(body(interval_seconds=300, catchup=catchup, max_catchup=5))
        await asyncio.sleep(2000)
        async with rig(store, clock=clock, machine=2) as r:
            await asyncio.sleep(5)
            assert len(await runs(r)) == wanted, catchup


@virtually
async def test_half_past_two_fires_once_on_both_days_of_the_change() -> None:
    for month, day in ((3, 29), (10, 25)):
        store = MemoryStore()
        night = datetime(2026, month, day, 0, 20, tzinfo=UTC)
        clock = LoopClock(asyncio.get_running_loop(), night)
        async with (
            rig(store, clock=clock, is_alone=False) as one,
            rig(store, clock=clock, machine=2, is_alone=False) as two,
        ):
            await one.client.register(DEMO)
            await two.client.add_schedule(
                body(interval_seconds=None, cron="30 2 * * *", timezone="Europe/Berlin")
            )
            await asyncio.sleep(4500)
            # In March the clock goes from 02:00 to 03:00; in October 02:30 comes twice.
            due = "2026-03-29T01:00:00.000000Z" if month == 3 else "2026-10-25T00:30:00.000000Z"
            assert await dues(one) == [due]


@virtually
async def test_a_tenant_has_ten_thousand_schedules_and_no_more() -> None:
    triggers = f"{HEAD}triggers:\n  - {{name: t, interval: 1h}}\n{ONE_STEP.lstrip()}"
    async with rig() as r:
        await r.client.register(Register(content=triggers))
        (row,) = await r.store.schedules.listed()
        rows = [
            msgspec.structs.replace(row, schedule_id=str(n), name=f"n{n}", path="other")
            for n in range(9_998)
        ]
        await r.store.schedules.replace("other", rows)
        await r.client.add_schedule(body())
        more = body(name="one too many")
        assert await refused(r.client.add_schedule(more)) == (429, "quota_exceeded")
        # Its own triggers make room for the new ones.
        await r.client.register(Register(content=triggers.replace("1h", "2h")))
        two = triggers.replace("  - {name: t", "  - {name: u, interval: 3h}\n  - {name: t")
        assert await refused(r.client.register(Register(content=two))) == (429, "quota_exceeded")
