"""What every store does to stay small and right: schedules, the outbox for others, old rows.

A backend is the fixture `store`.
"""

import asyncio

import msgspec
import pytest

from noetl.engine.events import PlaybookCompleted
from noetl.store.base import Line, Outgoing, ScheduleListing, ScheduleRow
from noetl.store.errors import NameTaken, TooMany
from tests.conformance.store_suite import RUN, Run, at, entered

replace = msgspec.structs.replace
LATER = "2027-01-01T00:00:00.000000Z"


def schedule(number=1, name="nightly", **fields):
    known = {
        "schedule_id": str(number),
        "name": name,
        "path": "a/b",
        "cron": "0 2 * * *",
        "policy": {"overlap": "skip"},
        "origin": "api",
        "next_run_at": at(100),
        "created_by": "ann",
    }
    return ScheduleRow(**(known | fields))


class ManySchedulesSuite:
    async def test_one_is_kept_found_changed_and_forgotten(self, store):
        row = schedule()
        assert await store.schedules.get("1") is None
        await store.schedules.add(row, most=10)
        assert await store.schedules.get("1") == row
        changed = replace(row, name="daily", cron=None, interval_s=60, enabled=False)
        assert await store.schedules.change(changed)
        assert await store.schedules.get("1") == changed
        assert await store.schedules.remove("1")
        assert not await store.schedules.remove("1")
        assert not await store.schedules.change(changed)

    async def test_a_change_keeps_what_the_last_run_was(self, store):
        row = schedule()
        await store.schedules.add(row, most=10)
        fired = replace(
            row,
            next_run_at=at(200),
            last_run_at=at(100),
            last_execution_id="7",
            last_status="started",
        )
        assert await store.schedules.fired(row, fired)
        await store.schedules.change(replace(row, next_run_at=at(300)))
        assert await store.schedules.get("1") == replace(fired, next_run_at=at(300))

    async def test_a_name_is_one_of_a_tenant(self, store):
        await store.schedules.add(schedule(1), most=10)
        with pytest.raises(NameTaken):
            await store.schedules.add(schedule(2), most=10)
        await store.schedules.add(schedule(3, tenant_id="acme"), most=10)
        await store.schedules.add(schedule(4, "other"), most=10)
        with pytest.raises(NameTaken):
            await store.schedules.change(schedule(4, "nightly"))

    async def test_a_tenant_has_so_many_and_no_more(self, store):
        await store.schedules.add(schedule(1, "a"), most=2)
        await store.schedules.add(schedule(2, "b"), most=2)
        with pytest.raises(TooMany):
            await store.schedules.add(schedule(3, "c"), most=2)
        assert await store.schedules.counted("default") == 2
        assert await store.schedules.counted("acme") == 0
        made = await asyncio.gather(
            *(
                store.schedules.add(schedule(n, f"n{n}", tenant_id="acme"), most=3)
                for n in range(10, 20)
            ),
            return_exceptions=True,
        )
        assert sum(fault is None for fault in made) == 3

    async def test_lists_are_of_a_tenant_filtered_and_paged(self, store):
        rows = [
            schedule(1, "b"),
            schedule(2, "a", enabled=False),
            schedule(3, "c", path="x"),
            schedule(4, "B"),
        ]
        for row in (*rows, schedule(9, "a", tenant_id="acme")):
            await store.schedules.add(row, most=10)

        async def names(**asked):
            listing = ScheduleListing(tenant_id="default", **asked)
            return [row.name for row in await store.schedules.listed(listing)]

        assert await names() == ["B", "a", "b", "c"]
        assert await names(limit=2, after="a") == ["b", "c"]
        assert await names(enabled=False) == ["a"]
        assert await names(path="x") == ["c"]
        assert len(await store.schedules.listed()) == 5

    async def test_triggers_of_one_tenant_leave_those_of_another_alone(self, store):
        own = schedule(1, "a/b:1", origin="trigger")
        other = schedule(2, "a/b:1", origin="trigger", tenant_id="acme")
        made = schedule(3, "by hand")
        await store.schedules.replace("a/b", [own])
        await store.schedules.replace("a/b", [other], "acme")
        await store.schedules.add(made, most=10)
        await store.schedules.replace("a/b", [])
        assert await store.schedules.listed() == [other, made]

    async def test_what_was_paused_by_hand_stays_paused(self, store):
        row = schedule(1, "a/b:1", origin="trigger")
        await store.schedules.replace("a/b", [row])
        paused = replace(row, enabled=False, policy={**row.policy, "paused": True})
        await store.schedules.change(paused)
        await store.schedules.replace("a/b", [replace(row, schedule_id="2")])
        assert await store.schedules.listed() == [paused]


class PublicationsSuite:
    @staticmethod
    async def filled(store, count=3, kind="events", updated=0):
        run = Run()
        messages = tuple(
            Outgoing(
                outgoing_id=str(1000 + number),
                execution_id=RUN,
                kind=kind,
                payload={"first_seq": 1, "last_seq": 1},
            )
            for number in range(count)
        )
        await run.write(store, run.started(), row={"updated_at": at(updated)}, outgoing=messages)
        return [message.outgoing_id for message in messages]

    @staticmethod
    async def take(store, now, limit=10, before=None):
        taken = await store.outbox.take(
            limit, at(now), committed_before=at(now if before is None else before)
        )
        return [(item.outgoing.outgoing_id, item.attempts) for item in taken]

    async def test_a_message_is_taken_once_and_again_after_a_minute(self, store):
        await self.filled(store)
        assert await self.take(store, 50, limit=2) == [("1000", 1), ("1001", 1)]
        assert await self.take(store, 51) == [("1002", 1)]
        assert await self.take(store, 100) == []
        assert await self.take(store, 111) == [("1000", 2), ("1001", 2)]

    async def test_two_that_take_never_get_the_same(self, store):
        ids = await self.filled(store, count=60)
        taken = await asyncio.gather(*(self.take(store, 50, limit=25) for _ in range(6)))
        found = [name for part in taken for name, _ in part]
        # What another one holds at that moment is skipped, not waited for.
        rest = [name for name, _ in await self.take(store, 50, limit=100)]
        assert sorted([*found, *rest]) == ids

    async def test_the_committing_server_has_it_for_a_while(self, store):
        await self.filled(store, updated=40)
        assert await self.take(store, 45, before=35) == []
        backlog = await store.outbox.backlog(at(45), committed_before=at(35))
        assert backlog.due == 0
        assert len(await self.take(store, 51, before=41)) == 3

    async def test_only_publications_are_for_others(self, store):
        await self.filled(store, kind="start_child")
        assert await self.take(store, 50) == []
        assert len(await store.outbox.waiting()) == 3

    async def test_only_what_was_taken_is_published_and_once(self, store):
        ids = await self.filled(store)
        assert await store.outbox.published(ids, at(50)) == 0
        await self.take(store, 50, limit=2)
        assert await store.outbox.published(["1000", "1000", "1002"], at(51)) == 1
        assert await store.outbox.published(["1000"], at(52)) == 0
        assert [row.outgoing_id for row in await store.outbox.waiting()] == ["1001", "1002"]
        assert await self.take(store, 200) == [("1001", 2), ("1002", 1)]

    async def test_a_failed_one_waits_twice_as_long_each_time(self, store):
        await self.filled(store, count=1)
        now, delays = 50, []
        for _ in range(4):
            assert len(await self.take(store, now)) == 1
            delay = await store.outbox.failed("1000", "x" * 3000, at(now), most_delay_s=5)
            delays.append(delay)
            assert await self.take(store, now + int(delay) - 1) == []
            now += int(delay)
        assert delays == [1.0, 2.0, 4.0, 5.0]
        assert await store.outbox.failed("1000", "", at(now), most_delay_s=5) is None
        assert await store.outbox.failed("77", "", at(now), most_delay_s=5) is None

    async def test_after_fifty_tries_nobody_tries_again(self, store):
        await self.filled(store, count=1)
        for number in range(50):
            assert len(await self.take(store, 100 + 2 * number)) == 1
            await store.outbox.failed("1000", "no", at(100 + 2 * number), most_delay_s=1)
        assert await self.take(store, 4000) == []
        assert (await store.outbox.backlog(at(4000), committed_before=at(4000))).due == 0

    async def test_the_backlog_counts_what_is_due(self, store):
        now = at(50)
        empty = await store.outbox.backlog(now, committed_before=now)
        assert (empty.due, empty.oldest_at) == (0, None)
        await self.filled(store)
        backlog = await store.outbox.backlog(now, committed_before=now)
        assert (backlog.due, backlog.oldest_at is not None) == (3, True)
        await self.take(store, 50, limit=1)
        assert (await store.outbox.backlog(now, committed_before=now)).due == 2


class UpkeepSuite:
    @staticmethod
    async def ended(store, execution_id=RUN, **row):
        run = Run(execution_id=execution_id)
        fields = {"status": "COMPLETED", "completed_at": at(10), "updated_at": at(10)} | row
        command = run.command(int(execution_id) % 1000 + 1)
        whose = {"parent_execution_id": row.get("parent_execution_id")}
        await run.write(store, run.started(), row=whose, commands=(command,))
        closed = replace(command, status="COMPLETED")
        await run.write(store, PlaybookCompleted(result=1), row=fields, commands=(closed,))
        await store.output.add(
            [Line(execution_id=execution_id, command_id="1", attempt=1, n=1, ts=at(3), text="x")]
        )
        return run

    async def test_old_rows_go_and_a_dry_run_only_counts(self, store):
        run = await self.ended(store)
        live = Run(execution_id=str(int(RUN) + 1))
        await live.write(store, live.started(), commands=(live.command(5000),))
        assert await store.upkeep.purge("command", LATER, is_dry=True) == 1
        assert await store.upkeep.purge("log", LATER, is_dry=True) == 1
        assert await store.output.read(RUN) != []
        assert await store.upkeep.purge("command", at(5)) == 0
        assert await store.upkeep.purge("command", LATER) == 1
        assert await store.upkeep.purge("command", LATER) == 0
        assert await store.upkeep.purge("log", LATER) == 1
        assert await store.output.read(RUN) == []
        assert len(await store.commands.pending("shared", 10)) == 1
        assert run.seq == 2

    async def test_keys_go_when_their_window_is_over(self, store):
        run = Run()
        await run.write(store, run.started(), dedup=("api", "k", at(60)))
        assert await store.upkeep.purge("dedup", at(50)) == 0
        assert await store.upkeep.purge("dedup", at(70), is_dry=True) == 1
        assert await store.upkeep.purge("dedup", at(70)) == 1
        assert await store.executions.started_as("api", "k", at(50)) is None

    async def test_a_run_goes_with_everything_of_its_own(self, store):
        await self.ended(store)
        assert await store.upkeep.old_runs(LATER, 10) == [RUN]
        assert await store.upkeep.forget_runs([RUN]) >= 4
        assert await store.executions.get(RUN) is None
        assert await store.log.read(RUN) == []
        assert await store.output.read(RUN) == []
        assert await store.upkeep.old_runs(LATER, 10) == []
        assert await store.upkeep.forget_runs([RUN]) == 0

    async def test_what_lives_or_has_a_living_parent_stays(self, store):
        parent, child = Run(), str(int(RUN) + 1)
        await parent.write(store, parent.started())
        await self.ended(store, child, parent_execution_id=RUN)
        assert await store.upkeep.old_runs(LATER, 10) == []
        done = {"status": "COMPLETED", "completed_at": at(20)}
        await parent.write(store, PlaybookCompleted(result=1), row=done)
        assert await store.upkeep.old_runs(LATER, 10) == [RUN, child]
        assert await store.upkeep.old_runs(LATER, 1) == [RUN]
        assert await store.upkeep.old_runs(at(5), 10) == []

    async def test_every_table_can_be_asked(self, store):
        for table in (
            "command", "dedup", "outbox", "log", "result", "variable", "session", "keychain",
            "callback", "request", "delivery",
        ):  # fmt: skip
            assert await store.upkeep.purge(table, LATER, is_dry=True) == 0
            assert await store.upkeep.purge(table, LATER) == 0
        assert (await store.upkeep.condition()).default_rows == 0
        assert await store.upkeep.drop_partition("event_1999_01") == ()


class ProjectionsSuite:
    async def test_known_events_are_found(self, store):
        run = Run()
        await run.write(store, run.started(), entered())
        found = await store.projections.known([run.event_id(1), run.event_id(2), "12345"])
        assert found == {run.event_id(1), run.event_id(2)}

    async def test_a_read_model_is_written_anew_unless_the_run_went_on(self, store):
        run = Run()
        await run.write(store, run.started())
        row = await store.executions.get(RUN)
        changed = replace(
            row, status="PAUSED", current_steps=("é",), progress={"total_steps": 3},
            error={"message": "no\0", "code": "x"}, pending_commands=4, result=[1],
        )  # fmt: skip
        assert await store.projections.refresh(changed)
        assert await store.executions.get(RUN) == changed
        assert not await store.projections.refresh(replace(changed, last_seq=9))
        assert not await store.projections.refresh(replace(changed, execution_id="77"))

    async def test_figures_are_those_of_a_tenant(self, store):
        for number, fields in enumerate((
            {}, {"status": "PAUSED"}, {"tenant_id": "acme"}, {"kind": "imported"},
            {"status": "FAILED", "completed_at": at(9)},
            {"status": "COMPLETED", "completed_at": at(9)},
        )):  # fmt: skip
            run = Run(execution_id=str(int(RUN) + number))
            await run.write(store, run.started(), row={"started_at": at(1), **fields})
        figures = await store.projections.figures("default", "2026-01-01T00:00:00Z")
        assert figures.live == {"RUNNING": 1, "PAUSED": 1}
        assert figures.ended == {"FAILED": 1, "COMPLETED": 1}
        assert (figures.runs_estimated >= 0, figures.playbooks) == (True, 0)
        none = await store.projections.figures("nobody", "2026-01-01T00:00:00Z")
        assert (none.live, none.ended) == ({}, {})
