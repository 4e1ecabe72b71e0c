"""What every store does, whatever keeps its facts; a backend is the fixture `store`.

Long because it is one contract: a class per table, in the order of `noetl.store.base`.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

import msgspec
import pytest

from noetl.engine.events import (
    CommandCompleted,
    Error,
    ExecutionPaused,
    ExecutionResumed,
    PlaybookCancelled,
    PlaybookCompleted,
    PlaybookFailed,
    PlaybookStarted,
    Recorded,
    StepEntered,
)
from noetl.errors import NoetlError
from noetl.store.base import (
    CatalogEntry,
    Change,
    CommandRow,
    ExecutionRow,
    Line,
    Listing,
    Outgoing,
    Queue,
    TimerRow,
)

RUN = "331204559102443520"


def at(second):
    """A time of the test's day, in the one form that times have."""
    return f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000000Z"


def entered(number=1):
    return StepEntered(step="load", visit=number)


@dataclass
class Run:
    """One execution as its writer sees it."""

    execution_id: str = RUN
    seq: int = 0
    pool: str = "shared"

    def change(self, *events, row=None, **parts):
        """The next append; `write` commits it."""
        recorded = tuple(self.recorded(self.seq + n, e) for n, e in enumerate(events, start=1))
        return Change(
            execution_id=self.execution_id,
            expected_seq=self.seq,
            events=recorded,
            execution=self.row(last_seq=self.seq + len(events), **(row or {})),
            **parts,
        )

    def recorded(self, seq, event, event_id=None):
        return Recorded(
            execution_id=self.execution_id,
            seq=seq,
            event_id=event_id or self.event_id(seq),
            prev_event_id=self.event_id(seq - 1) if seq > 1 else None,
            created_at=at(seq),
            event=event,
        )

    def event_id(self, seq):
        return str(int(self.execution_id) * 10 + seq)[-18:]

    def row(self, **fields):
        known = {
            "execution_id": self.execution_id,
            "status": "RUNNING",
            "catalog_id": "7",
            "path": "a/b",
            "version": 1,
            "pool": self.pool,
            "priority": 5,
            "last_seq": 0,
            "last_event_id": "1",
            "started_at": at(0),
            "updated_at": at(0),
        }
        return ExecutionRow(**(known | fields))

    def started(self):
        return PlaybookStarted(
            execution_id=self.execution_id, path="a/b", version=1, catalog_id="7", workload={}
        )

    async def write(self, store, *events, row=None, **parts):
        change = self.change(*(events or (entered(),)), row=row, **parts)
        lost = await store.log.commit([change])
        assert lost == frozenset()
        self.seq += len(change.events)
        return change

    def command(self, number, **fields):
        known = {
            "execution_id": self.execution_id,
            "command_id": str(number),
            "command_key": f"load#1/i{number}",
            "step": "load",
            "kind": "python",
            "pool": self.pool,
            "priority": 5,
            "status": "PENDING",
            "attempt": 1,
            "available_at": at(number % 3600),
        }
        return CommandRow(**(known | fields))

    def claimed(self, number, worker="w1", until=15, **fields):
        return self.command(
            number,
            **{"status": "CLAIMED", "worker_id": worker, "lease_until": at(until)} | fields,
        )

    def timer(self, key, due):
        return TimerRow(execution_id=self.execution_id, timer_key=key, kind="retry", due_at=at(due))

    def outgoing(self, number):
        return Outgoing(
            outgoing_id=str(number),
            execution_id=self.execution_id,
            kind="start_child",
            payload={"child_key": f"c{number}"},
        )


def ids(rows):
    return [row.command_id for row in rows]


async def listed(store, **asked):
    return [row.execution_id for row in await store.executions.listed(Listing(**asked))]


ERROR = Error(kind="tool", code="x", message="no such\0 thing")
FAILED = {
    "status": "FAILED",
    "completed_at": at(50),
    "error": msgspec.to_builtins(ERROR),
    "result": {"reference": {"ref": "r"}},
}
TOLD = {
    "labels": {"team": "x", "n": 1},
    "forked_from": {"execution_id": "3", "seq": 9},
    "workload": {"b": [1, 2.5, None], "a": "\0\uf8f0", "big": 2**70},
    "trace": {"traceparent": "00-1"},
    "created_by": "ann",
    "request_id": "r1",
    "client_id": "c1",
    "parent_execution_id": "5",
    "parent_key": "k",
    "root_execution_id": "5",
    "concurrency_key": "one\0",
    "dedup_key": "d",
    "rerun_of": "6",
    "tenant_id": "t",
    "organization_id": "o",
    "last_event_type": "step.enter",
}
"""What the start tells of a run for ever."""


class LogSuite:
    async def test_events_are_read_in_order_and_by_page(self, store):
        run = Run()
        first = await run.write(store, run.started(), *(entered(n) for n in range(4)))
        second = await run.write(store, *(entered(n) for n in range(4, 7)))
        every = [*first.events, *second.events]
        assert await store.log.read(RUN) == every
        assert await store.log.read(RUN, after=3, limit=2) == every[3:5]
        assert await store.log.read(RUN, after=8) == []
        assert await store.log.read(RUN, limit=0) == []
        assert await store.log.read("9") == []

    async def test_a_long_log_is_read_from_anywhere(self, store):
        run = Run()
        written = []
        for turn in range(30):
            change = await run.write(store, *(entered(turn * 100 + n) for n in range(100)))
            written += change.events
        for after, limit in [(0, 1000), (511, 2), (512, 1), (1000, 1000), (2990, 1000), (2047, 3)]:
            assert await store.log.read(RUN, after, limit) == written[after : after + limit]
        for seq in (1, 512, 513, 1024, 2999, 3000):
            assert await store.log.find(RUN, run.event_id(seq)) == written[seq - 1]
        assert await store.log.find(RUN, "1") is None
        assert await store.log.find(RUN, "9" * 18) is None

    async def test_an_event_that_came_back_is_equal_to_the_one_that_was_written(self, store):
        run = Run()
        event = PlaybookCompleted(
            result={
                "text": "é\u2028\0\uf8f00",
                "big": 2**80,
                "deep": [[{"x": None}]],
                "f": [0.1, 1e300, 1.0],
                "a": {"zz\0": 1, "b": 2, "a": 3},
            }
        )
        change = await run.write(store, run.started(), event, row={"completed_at": at(2)})
        read = await store.log.read(RUN)
        assert read == list(change.events)
        # The order of a map and the kind of a number are part of what was decided on.
        assert msgspec.json.encode(read) == msgspec.json.encode(change.events)

    async def test_an_event_is_found_by_its_id_and_its_run(self, store):
        run = Run()
        change = await run.write(store, run.started())
        assert await store.log.find(RUN, run.event_id(1)) == change.events[0]
        assert await store.log.find(RUN, "404") is None
        assert await store.log.find("404", run.event_id(1)) is None

    async def test_whoever_expects_an_older_seq_loses_and_writes_nothing(self, store):
        run = Run()
        await run.write(store, run.started())
        rival = Run()
        change = rival.change(
            entered(),
            commands=(rival.command(1),),
            timers=(rival.timer("t", 1),),
            outgoing=(rival.outgoing(1),),
            callbacks={"digest": "1"},
            snapshot=b"s",
            row={"status": "PAUSED"},
        )
        assert await store.log.commit([change]) == {RUN}
        assert len(await store.log.read(RUN)) == 1
        assert (await store.executions.get(RUN)).status == "RUNNING"
        assert await store.commands.get("1") is None
        assert await store.commands.pending("shared", 10) == []
        assert await store.timers.next_due() is None
        assert await store.outbox.waiting() == []
        assert await store.callbacks.command_of("digest") is None
        assert await store.log.snapshot(RUN) is None

    async def test_whoever_expects_a_later_seq_loses(self, store):
        run = Run(seq=3)
        assert await store.log.commit([run.change(entered())]) == {RUN}
        assert await store.executions.get(RUN) is None

    async def test_of_two_writers_at_once_one_wins(self, store):
        run = Run()
        await run.write(store, run.started())
        rivals = [
            Change(
                execution_id=RUN,
                expected_seq=1,
                events=(run.recorded(2, entered(n), event_id=str(900 + n)),),
                execution=run.row(last_seq=2),
            )
            for n in range(8)
        ]
        verdicts = await asyncio.gather(*(store.log.commit([rival]) for rival in rivals))
        assert sorted(map(len, verdicts)) == [0] + [1] * 7
        winner = rivals[verdicts.index(frozenset())]
        assert (await store.log.read(RUN))[1:] == list(winner.events)

    async def test_a_loser_does_not_take_its_neighbours_with_it(self, store):
        run, other = Run(), Run("331204559102443521")
        await run.write(store, run.started())
        stale = Run().change(entered())
        fine = other.change(other.started())
        assert await store.log.commit([stale, fine]) == {RUN}
        assert await store.log.read(other.execution_id) == list(fine.events)

    async def test_a_second_change_of_one_run_in_one_commit_loses(self, store):
        run = Run()
        rival = Change(
            execution_id=RUN,
            expected_seq=0,
            events=(run.recorded(1, entered(), event_id="901"),),
            execution=run.row(),
        )
        assert await store.log.commit([run.change(run.started()), rival]) == {RUN}
        assert [event.event_id for event in await store.log.read(RUN)] == [run.event_id(1)]

    async def test_a_run_that_exists_cannot_begin_again(self, store):
        run = Run()
        await run.write(store, run.started())
        assert await store.log.commit([Run().change(run.started())]) == {RUN}

    async def test_an_event_id_is_stored_once_per_run(self, store):
        run, other = Run(), Run("331204559102443521")
        first = await run.write(store, run.started())
        event_id = first.events[0].event_id
        for writer, lost in ((run, {RUN}), (other, set())):
            repeat = Change(
                execution_id=writer.execution_id,
                expected_seq=writer.seq,
                events=(writer.recorded(writer.seq + 1, entered(), event_id=event_id),),
                execution=writer.row(),
            )
            assert await store.log.commit([repeat]) == lost

    async def test_an_event_id_from_long_ago_is_still_refused(self, store):
        run = Run()
        for _ in range(15):
            await run.write(store, *(entered() for _ in range(100)))
        for seq in (1, 600, 1500):
            repeat = Change(
                execution_id=RUN,
                expected_seq=1500,
                events=(run.recorded(1501, entered(), event_id=run.event_id(seq)),),
                execution=run.row(),
            )
            assert await store.log.commit([repeat]) == {RUN}

    async def test_a_run_ends_once(self, store):
        run = Run()
        done = {"completed_at": at(2), "status": "COMPLETED"}
        await run.write(store, run.started(), PlaybookCompleted(), row=done)
        assert await store.log.commit([run.change(PlaybookCancelled(), row=done)]) == {RUN}
        await run.write(store, entered(), row=done)
        assert len(await store.log.read(RUN)) == 3

    @pytest.mark.parametrize("fault", ["gap", "repeat", "two ends", "other run", "other row"])
    async def test_a_malformed_change_writes_nothing_of_its_whole_commit(self, store, fault):
        run, other = Run(), Run("331204559102443521")
        good = run.recorded(1, entered())
        events, row = {
            "gap": ((good, run.recorded(3, entered())), run.row()),
            "repeat": ((good, run.recorded(2, entered(), good.event_id)), run.row()),
            "two ends": (
                (run.recorded(1, PlaybookCompleted()), run.recorded(2, PlaybookCancelled())),
                run.row(),
            ),
            "other run": ((other.recorded(1, entered()),), run.row()),
            "other row": ((good,), other.row()),
        }[fault]
        bad = Change(execution_id=RUN, expected_seq=0, events=events, execution=row)
        with pytest.raises(NoetlError) as caught:
            await store.log.commit([other.change(other.started()), bad])
        assert caught.value.code == "malformed_change"
        assert await store.log.read(other.execution_id) == []
        assert await store.log.read(RUN) == []

    async def test_an_empty_commit_writes_nothing(self, store):
        assert await store.log.commit([]) == frozenset()

    async def test_the_newest_snapshot_is_kept_with_its_seq(self, store):
        run = Run()
        assert await store.log.snapshot(RUN) is None
        await run.write(store, run.started(), entered(), snapshot=b"old")
        assert await store.log.snapshot(RUN) == (2, b"old")
        await run.write(store, entered(), snapshot=b"new")
        await run.write(store, entered())
        assert await store.log.snapshot(RUN) == (3, b"new")


class HoldingSuite:
    async def test_a_run_that_is_held_is_written_by_its_holder(self, store):
        run = Run()
        await run.write(store, run.started())
        async with store.log.holding(RUN) as commit:
            change = run.change(entered())
            assert await commit([change]) == frozenset()
        assert (await store.log.read(RUN))[-1] == change.events[-1]

    async def test_a_holder_that_came_too_late_loses_as_well(self, store):
        run, other = Run(), Run()
        await run.write(store, run.started())
        late = other.change(other.started())
        async with store.log.holding(RUN) as commit:
            assert await commit([late]) == frozenset({RUN})
        assert len(await store.log.read(RUN)) == 1

    async def test_a_run_that_nobody_knows_can_be_held(self, store):
        async with store.log.holding("404") as commit:
            assert await commit([]) == frozenset()


class ExecutionsSuite:
    async def test_the_row_is_that_of_the_last_append(self, store):
        run = Run()
        first = await run.write(store, run.started(), row=TOLD)
        assert await store.executions.get(RUN) == first.execution
        second = await run.write(
            store,
            entered(),
            row=TOLD | {"current_steps": ("load", "save"), "progress": {"total_steps": 1}},
        )
        assert await store.executions.get(RUN) == second.execution
        third = await run.write(store, PlaybookFailed(error=ERROR), row=TOLD | FAILED)
        assert await store.executions.get(RUN) == third.execution
        assert await store.executions.get("404") is None
        assert await store.executions.get("no id") is None

    async def test_the_runs_of_a_tenant_that_have_not_ended_are_counted(self, store):
        for number, row in (
            ("1", {}),
            ("2", {"tenant_id": "acme"}),
            ("3", {"tenant_id": "acme", "status": "PAUSED"}),
            ("4", {"tenant_id": "acme", "status": "COMPLETED", "completed_at": at(9)}),
        ):
            run = Run(number)
            await run.write(store, run.started(), row=row)
        found = [await store.executions.running(name) for name in ("default", "acme", "none")]
        assert found == [1, 2, 0]

    async def test_runs_are_listed_by_number_and_by_page(self, store):
        for number in (9, 1000, 20, 100):
            run = Run(str(number))
            await run.write(store, run.started())
        page = partial(listed, store)
        assert await page() == ["1000", "100", "20", "9"]
        assert await page(limit=2) == ["1000", "100"]
        assert await page(limit=2, after="100") == ["20", "9"]
        assert await page(after="21") == ["20", "9"]
        assert await page(after="9") == []
        assert await page(limit=2, offset=1) == ["100", "20"]
        assert await page(limit=0) == []
        assert await page(is_ascending=True, limit=2) == ["9", "20"]
        assert await page(is_ascending=True, after="20") == ["100", "1000"]
        assert await page(is_ascending=True, after="20", offset=1) == ["1000"]

    @pytest.mark.parametrize(
        ("asked", "found"),
        [
            ({"status": ("FAILED", "PAUSED")}, ["4", "2"]),
            ({"status": ("PENDING",)}, []),
            ({"path": "a/b"}, ["2", "1"]),
            ({"path": "a/*"}, ["3", "2", "1"]),
            ({"path": "a_%*"}, ["4"]),
            ({"allowed": ("a/*",)}, ["3", "2", "1"]),
            ({"allowed": ()}, []),
            ({"denied": ("a/*",)}, ["4"]),
            ({"denied": ("a/b", "a_%")}, ["4", "3"]),
            ({"allowed": ("a_%*", "a/b"), "denied": ("a/b",)}, ["4"]),
            ({"path": "a"}, []),
            ({"catalog_id": "8"}, ["3"]),
            ({"version": 2}, ["3"]),
            ({"parent_execution_id": "1"}, ["3", "2"]),
            ({"parent_execution_id": "none"}, ["4", "1"]),
            ({"labels": {"team": "x"}}, ["4", "1"]),
            ({"labels": {"team": "x", "env": "prod"}}, ["4"]),
            ({"labels": {"team": "y"}}, []),
            ({"pool": "gpu"}, ["2"]),
            ({"created_by": "ann"}, ["1"]),
            ({"tenant_id": "other"}, ["4"]),
            ({"tenant_id": "default", "path": "a/*", "limit": 2}, ["3", "2"]),
            ({"since": at(20)}, ["4", "3", "2"]),
            ({"since": at(20), "until": at(30)}, ["2"]),
            ({"has_error": True}, ["4"]),
            ({"has_error": False}, ["3", "2", "1"]),
            ({"request_id": "r1"}, ["3"]),
            ({"request_id": "*"}, ["3"]),
            ({"client_id": "c1"}, ["3"]),
            ({"q": "a/"}, ["3", "2", "1"]),
            ({"q": "no such"}, ["4"]),
            ({"q": "such"}, []),
            ({"status": ("RUNNING",), "path": "a/b"}, ["1"]),
            ({"idle_since": at(70)}, ["1"]),
            ({"idle_since": at(80)}, ["3", "1"]),
            ({"idle_since": at(60)}, []),
        ],
    )
    async def test_runs_are_listed_by_what_is_asked_for(self, store, asked, found):
        rows = {
            "1": {
                "labels": {"team": "x"},
                "created_by": "ann",
                "started_at": at(10),
                "updated_at": at(70),
            },
            "2": {
                "status": "PAUSED",
                "pool": "gpu",
                "parent_execution_id": "1",
                "started_at": at(20),
            },
            "3": {
                "path": "a/c",
                "catalog_id": "8",
                "version": 2,
                "parent_execution_id": "1",
                "request_id": "r1",
                "client_id": "c1",
                "started_at": at(30),
                "updated_at": at(80),
            },
            "4": FAILED
            | {
                "path": "a_%x",
                "tenant_id": "other",
                "labels": {"team": "x", "env": "prod", "n": 1},
                "started_at": at(40),
            },
        }
        for number, row in rows.items():
            run = Run(number)
            await run.write(store, run.started(), row=row)
        assert await listed(store, **asked) == found

    async def test_runs_that_have_not_ended_are_counted_by_status(self, store):
        assert await store.executions.counted() == {}
        for number, row in enumerate([{}, {}, {"status": "PAUSED"}, FAILED], start=1):
            run = Run(str(number))
            await run.write(store, run.started(), row=row)
        assert await store.executions.counted() == {"RUNNING": 2, "PAUSED": 1}

    async def test_children_are_known_by_their_parent(self, store):
        parent = Run()
        await parent.write(store, parent.started())
        for number in ("41", "42"):
            child = Run(number)
            asked = {"parent_execution_id": RUN, "parent_key": f"k{number}"}
            await child.write(store, child.started(), row=asked)
            await child.write(store, entered(), row=asked)
        children = await store.executions.children(RUN)
        assert [(row.execution_id, row.parent_key) for row in children] == [
            ("41", "k41"),
            ("42", "k42"),
        ]
        assert await store.executions.children("41") == []

    async def test_a_dedup_key_names_its_run_until_its_window_ends(self, store):
        run = Run()
        await run.write(
            store, run.started(), dedup=("api:me", "k", at(60)), dedup_digest="of the wish"
        )
        held = (RUN, "of the wish")
        assert await store.executions.started_as("api:me", "k", at(59)) == held
        assert await store.executions.started_as("api:me", "k", at(60)) is None
        assert await store.executions.started_as("api:me", "other", at(1)) is None
        assert await store.executions.started_as("api:you", "k", at(1)) is None

    async def test_of_two_starts_under_one_key_one_wins(self, store):
        first, second = Run("1"), Run("2")
        changes = [run.change(run.started(), dedup=("s", "k", at(60))) for run in (first, second)]
        assert await store.log.commit(changes) == {"2"}
        assert await store.log.commit(changes[1:]) == {"2"}
        assert await store.executions.get("2") is None
        assert await store.executions.started_as("s", "k", at(1)) == ("1", "")

    async def test_a_key_is_free_again_when_its_window_has_ended(self, store):
        first, second = Run("1"), Run("2")
        await first.write(store, first.started(), dedup=("s", "k", at(60)))
        later = {"updated_at": at(60)}
        await second.write(store, second.started(), row=later, dedup=("s", "k", at(120)))
        assert await store.executions.started_as("s", "k", at(61)) == ("2", "")

    async def test_a_start_that_lost_leaves_no_key_behind(self, store):
        run = Run("1")
        await run.write(store, run.started())
        rival = Run("1").change(run.started(), dedup=("s", "k", at(60)))
        assert await store.log.commit([rival]) == {"1"}
        assert await store.executions.started_as("s", "k", at(1)) is None

    async def test_holders_of_a_concurrency_key_are_those_that_have_not_ended(self, store):
        runs = [Run(number) for number in ("100", "20", "3")]
        for run in runs:
            await run.write(store, run.started(), row={"concurrency_key": "k"})
        ended = {"concurrency_key": "k", "completed_at": at(5), "status": "COMPLETED"}
        await runs[1].write(store, PlaybookCompleted(), row=ended)

        async def holders():
            return [row.execution_id for row in await store.executions.holders("k")]

        assert await holders() == ["3", "100"]
        for run in (runs[0], runs[2]):
            await run.write(store, PlaybookCompleted(), row=ended)
        assert await holders() == []
        assert await store.executions.holders("other") == []


class ClaimsSuite:
    async def test_pending_is_higher_priority_first_then_oldest_then_lowest_id(self, store):
        run = Run()
        await run.write(
            store,
            commands=(
                run.command(9, available_at=at(1)),
                run.command(10, available_at=at(1)),
                run.command(2, available_at=at(9)),
                run.command(3, priority=9, available_at=at(9)),
                run.command(4, priority=0, available_at=at(0)),
                run.command(5, kind="http", available_at=at(2)),
            ),
        )
        assert ids(await store.commands.pending("shared", 10)) == ["3", "9", "10", "5", "2", "4"]
        assert ids(await store.commands.pending("shared", 2)) == ["3", "9"]
        assert ids(await store.commands.pending("shared", 2)) == ["3", "9"]
        assert ids(await store.commands.pending("shared", 10, ["python"])) == ["5"]
        assert ids(await store.commands.pending("shared", 2, ["http"])) == ["3", "9"]
        assert await store.commands.pending("shared", 9, ["http", "python"]) == []
        assert await store.commands.pending("shared", 0) == []

    async def test_pools_are_apart_and_a_command_without_a_pool_is_for_nobody(self, store):
        run = Run()
        commands = (run.command(1, pool="a"), run.command(2, pool="b"), run.command(3, pool=None))
        await run.write(store, commands=commands)
        assert ids(await store.commands.pending("a", 10)) == ["1"]
        assert ids(await store.commands.pending("b", 10)) == ["2"]
        assert await store.commands.pending("c", 10) == []
        assert await store.commands.get("3") == commands[2]

    async def test_a_command_is_pending_again_after_a_loss_with_its_new_rank(self, store):
        run = Run()
        await run.write(store, commands=(run.command(1), run.command(2)))
        await run.write(store, commands=(run.claimed(1),))
        assert ids(await store.commands.pending("shared", 10)) == ["2"]
        again = run.command(1, attempt=2, losses=1, available_at=at(30))
        await run.write(store, commands=(again,))
        assert ids(await store.commands.pending("shared", 10)) == ["2", "1"]
        assert await store.commands.get("1") == again

    async def test_since_when_a_command_is_claimable_is_not_forgotten(self, store):
        run = Run()
        await run.write(store, commands=(run.command(1, available_at=at(3)),))
        await run.write(store, commands=(run.claimed(1, available_at=""),))
        await run.write(store, commands=(run.command(1, available_at=""),))
        assert (await store.commands.get("1")).available_at == at(3)

    async def test_a_closed_command_is_remembered_by_its_status(self, store):
        run = Run()
        await run.write(store, commands=(run.command(1), run.claimed(2), run.command(3)))
        await run.write(
            store,
            CommandCompleted(step="load", command_key="load#1/i2"),
            commands=(
                run.command(1, status="CANCELLED"),
                run.command(2, status="COMPLETED", attempt=2),
                run.command(4, status="FAILED"),
            ),
        )
        found = [await store.commands.get(number) for number in ("1", "2", "4")]
        assert [(row.execution_id, row.step, row.status, row.attempt) for row in found] == [
            (RUN, "load", "CANCELLED", 1),
            (RUN, "load", "COMPLETED", 2),
            (RUN, "load", "FAILED", 1),
        ]
        assert ids(await store.commands.pending("shared", 10)) == ["3"]
        assert await store.commands.of_worker("w1") == []
        assert await store.commands.expired(at(3000)) == []
        assert await store.commands.get("404") is None
        those = await store.commands.those(["2", "404", "1"])
        assert those == {"1": found[0], "2": found[1]}
        assert await store.commands.those([]) == {}

    async def test_the_end_of_a_run_closes_its_open_commands_in_bulk(self, store):
        run, other = Run(), Run("331204559102443521")
        await run.write(
            store,
            commands=(run.command(1), run.claimed(2), run.command(3, status="PARKED")),
            timers=(run.timer("t", 1),),
        )
        await other.write(store, commands=(other.command(9),), timers=(other.timer("t", 2),))
        await run.write(
            store,
            PlaybookCancelled(),
            row={"status": "CANCELLED", "completed_at": at(5)},
            commands=(run.command(4), run.command(5, status="COMPLETED")),
            timers=(run.timer("late", 3),),
        )
        found = [(await store.commands.get(str(n))).status for n in range(1, 6)]
        assert found == ["CANCELLED"] * 4 + ["COMPLETED"]
        assert ids(await store.commands.pending("shared", 10)) == ["9"]
        assert await store.commands.of_worker("w1") == []
        assert await store.commands.expired(at(3000)) == []
        assert await store.timers.due(at(3000)) == [other.timer("t", 2)]

    async def test_a_paused_run_gives_no_work_and_a_resumed_one_does(self, store):
        run = Run()
        await run.write(store, commands=(run.command(1), run.claimed(2)))
        paused = {"status": "PAUSED"}
        await run.write(store, ExecutionPaused(), row=paused, commands=(run.command(3),))
        await run.write(store, row=paused, commands=(run.command(2, available_at=at(4)),))
        assert await store.commands.pending("shared", 10) == []
        assert await store.commands.unhinted(at(3000)) == []
        assert (await store.commands.get("1")).status == "PENDING"
        await run.write(store, ExecutionResumed())
        assert ids(await store.commands.pending("shared", 10)) == ["1", "3", "2"]

    async def test_many_commands_come_out_in_order_while_they_are_claimed(self, store):
        run = Run()
        await run.write(
            store, commands=tuple(run.command(n, available_at=at(n)) for n in range(200))
        )
        seen = []
        while rows := await store.commands.pending("shared", 7):
            seen += ids(rows)
            await run.write(store, commands=tuple(run.claimed(int(r.command_id)) for r in rows))
        assert seen == [str(n) for n in range(200)]
        assert len(await store.commands.of_worker("w1")) == 200


class LeasesSuite:
    async def test_a_lease_ends_after_its_time(self, store):
        run = Run()
        await run.write(store, commands=(run.claimed(1, until=20), run.claimed(2, until=10)))
        assert await store.commands.expired(at(10)) == []
        assert ids(await store.commands.expired(at(11))) == ["2"]
        assert ids(await store.commands.expired(at(3000))) == ["2", "1"]
        assert ids(await store.commands.expired(at(3000), limit=1)) == ["2"]

    async def test_a_beat_extends_what_its_worker_holds_under_that_attempt(self, store):
        run = Run()
        await run.write(
            store,
            commands=(
                run.claimed(1),
                run.claimed(2, attempt=2),
                run.claimed(3, worker="w2"),
                run.command(4),
            ),
        )
        held = [("1", 1), ("2", 1), ("3", 1), ("4", 1), ("404", 1)]
        assert await store.commands.extend("w1", held, at(90), pool="gpu") == []
        assert await store.commands.extend("w1", held, at(40), pool="shared") == ["1"]
        assert await store.commands.extend("w1", held, at(40)) == ["1"]
        assert (await store.commands.get("1")).lease_until == at(40)
        assert ids(await store.commands.expired(at(39))) == ["2", "3"]

    async def test_an_extended_lease_is_not_shortened_by_its_attempts_own_events(self, store):
        run = Run()
        await run.write(store, commands=(run.claimed(1, until=15),))
        await store.commands.extend("w1", [("1", 1)], at(60))
        assert await store.commands.extend("w1", [("1", 1)], at(50)) == ["1"]
        await run.write(store, commands=(run.claimed(1, until=15, started_at=at(3)),))
        row = await store.commands.get("1")
        assert (row.lease_until, row.started_at) == (at(60), at(3))
        assert await store.commands.expired(at(59)) == []

    async def test_the_lease_of_another_attempt_is_its_own(self, store):
        run = Run()
        await run.write(store, commands=(run.claimed(1, until=15),))
        await store.commands.extend("w1", [("1", 1)], at(60))
        await run.write(store, commands=(run.claimed(1, until=20, attempt=2),))
        assert (await store.commands.get("1")).lease_until == at(20)
        assert ids(await store.commands.expired(at(21))) == ["1"]

    async def test_a_checkpoint_of_a_beat_outlives_the_loss_of_its_attempt(self, store):
        run = Run()
        await run.write(store, commands=(run.claimed(1),))
        await store.commands.keep("1", 2, {"task": "wrong attempt"})
        await store.commands.keep("404", 1, {"task": "no command"})
        await store.commands.keep("1", 1, {"task": "b"})
        await run.write(store, commands=(run.claimed(1, started_at=at(2)),))
        await run.write(store, commands=(run.command(1, attempt=2, checkpoint={"task": "a"}),))
        await store.commands.keep("1", 2, {"task": "not claimed"})
        assert (await store.commands.get("1")).checkpoint == {"task": "b"}

    async def test_a_park_brings_a_newer_checkpoint(self, store):
        run = Run()
        await run.write(store, commands=(run.claimed(1),))
        await store.commands.keep("1", 1, {"task": "b"})
        parked = run.command(1, status="PARKED", checkpoint={"task": "c"})
        await run.write(store, commands=(parked,))
        await run.write(store, commands=(run.command(1, attempt=2, checkpoint={"task": "c"}),))
        assert (await store.commands.get("1")).checkpoint == {"task": "c"}

    async def test_a_parked_command_is_neither_claimable_nor_leased(self, store):
        run = Run()
        await run.write(store, commands=(run.claimed(1),))
        await run.write(store, commands=(run.command(1, status="PARKED"),))
        assert await store.commands.pending("shared", 10) == []
        assert await store.commands.expired(at(3000)) == []
        assert await store.commands.of_worker("w1") == []

    async def test_a_worker_is_known_by_what_it_holds(self, store):
        run = Run()
        await run.write(
            store, commands=(run.claimed(1), run.claimed(2, worker="w2"), run.command(3))
        )
        assert ids(await store.commands.of_worker("w1")) == ["1"]
        await run.write(store, commands=(run.claimed(1, worker="w2", attempt=2),))
        assert await store.commands.of_worker("w1") == []
        assert sorted(ids(await store.commands.of_worker("w2"))) == ["1", "2"]

    async def test_what_nobody_claimed_is_told_again_after_a_while(self, store):
        run = Run()
        await run.write(
            store,
            commands=(
                run.command(1, available_at=at(2)),
                run.command(2, available_at=at(1)),
                run.command(3, available_at=at(50)),
                run.claimed(4),
            ),
        )
        assert ids(await store.commands.unhinted(at(10), limit=1, told=at(40))) == ["2"]
        assert ids(await store.commands.unhinted(at(10), told=at(40))) == ["1"]
        assert await store.commands.unhinted(at(40), told=at(70)) == []
        assert sorted(ids(await store.commands.unhinted(at(41), told=at(70)))) == ["1", "2"]
        await run.write(store, commands=(run.claimed(1),))
        assert ids(await store.commands.unhinted(at(3000), told=at(3001))) == ["3", "2"]

    async def test_told_without_a_time_counts_from_the_time_asked_for(self, store):
        run = Run()
        await run.write(store, commands=(run.command(1, available_at=at(2)),))
        assert ids(await store.commands.unhinted(at(10))) == ["1"]
        assert await store.commands.unhinted(at(10)) == []
        assert ids(await store.commands.unhinted(at(11))) == ["1"]

    async def test_queues_tell_what_waits_for_each_pool_and_what_is_held(self, store):
        assert await store.commands.queues() == []
        run = Run()
        await run.write(
            store,
            commands=(
                run.command(1, available_at=at(5)),
                run.command(2, available_at=at(3)),
                run.claimed(3),
                run.command(4, status="PARKED"),
                run.command(5, status="COMPLETED"),
                run.claimed(6, pool="a"),
                run.command(7, pool=None),
            ),
        )
        assert await store.commands.queues() == [
            Queue(pool="a", pending=0, claimed=1),
            Queue(pool="shared", pending=2, claimed=1, oldest_at=at(3)),
        ]


class TimersSuite:
    async def test_timers_fall_due_in_order_and_never_early(self, store):
        run = Run()
        await run.write(store, timers=(run.timer("b", 20), run.timer("a", 10), run.timer("c", 30)))
        assert await store.timers.next_due() == at(10)
        assert await store.timers.due(at(9)) == []
        assert await store.timers.due(at(20)) == [run.timer("a", 10), run.timer("b", 20)]
        assert await store.timers.due(at(30), limit=1) == [run.timer("a", 10)]
        assert await store.timers.due(at(20)) == [run.timer("a", 10), run.timer("b", 20)]

    async def test_a_timer_that_moved_is_due_at_its_new_time_only(self, store):
        run = Run()
        await run.write(store, timers=(run.timer("a", 10), run.timer("b", 15)))
        await run.write(store, timers=(run.timer("a", 20),))
        assert await store.timers.next_due() == at(15)
        assert await store.timers.due(at(15)) == [run.timer("b", 15)]
        await run.write(store, timers=(run.timer("a", 5),))
        assert await store.timers.due(at(99)) == [run.timer("a", 5), run.timer("b", 15)]

    async def test_a_timer_that_is_gone_does_not_fall_due(self, store):
        run, other = Run(), Run("331204559102443521")
        for owner in (run, other):
            await owner.write(store, timers=(owner.timer("a", 10),))
        await run.write(store, timers_gone=("a", "never there"))
        assert await store.timers.due(at(99)) == [other.timer("a", 10)]
        await other.write(store, timers=(other.timer("a", 12),), timers_gone=("a",))
        assert await store.timers.due(at(99)) == [other.timer("a", 12)]
        await other.write(store, timers_gone=("a",))
        assert await store.timers.next_due() is None

    async def test_timers_of_a_paused_run_wait(self, store):
        run = Run()
        await run.write(store, timers=(run.timer("a", 10),))
        await run.write(
            store, ExecutionPaused(), row={"status": "PAUSED"}, timers=(run.timer("b", 20),)
        )
        assert await store.timers.due(at(99)) == []
        assert await store.timers.next_due() is None
        await run.write(store, ExecutionResumed(), timers=(run.timer("a", 40),))
        assert await store.timers.due(at(99)) == [run.timer("b", 20), run.timer("a", 40)]


class OutboxSuite:
    async def test_messages_wait_in_order_until_they_are_delivered(self, store):
        run = Run()
        await run.write(store, outgoing=(run.outgoing(1), run.outgoing(2)))
        await run.write(store, outgoing=(run.outgoing(30),))
        assert await store.outbox.waiting() == [run.outgoing(n) for n in (1, 2, 30)]
        assert await store.outbox.waiting(limit=1) == [run.outgoing(1)]
        await store.outbox.delivered(["1", "30", "404"])
        await store.outbox.delivered(["1"])
        assert await store.outbox.waiting() == [run.outgoing(2)]

    async def test_the_next_commit_forgets_what_was_delivered(self, store):
        run = Run()
        await run.write(store, outgoing=tuple(run.outgoing(n) for n in (1, 2, 3, 4)))
        change = run.change(entered(), outgoing=(run.outgoing(5),))
        assert await store.log.commit([change], ["1", "404"]) == frozenset()
        assert await store.outbox.waiting() == [run.outgoing(n) for n in (2, 3, 4, 5)]
        assert await store.log.commit([], ["2"]) == frozenset()
        assert await store.outbox.waiting() == [run.outgoing(n) for n in (3, 4, 5)]

    async def test_what_was_delivered_is_forgotten_also_when_the_commit_is_lost(self, store):
        run = Run()
        await run.write(store, outgoing=(run.outgoing(1),))
        assert await store.log.commit([Run().change(entered())], ["1"]) == {RUN}
        assert await store.outbox.waiting() == []

    async def test_messages_are_known_by_when_they_were_committed(self, store):
        run = Run()
        for number in (1, 2, 3):
            row = {"updated_at": at(10 * number)}
            await run.write(store, row=row, outgoing=(run.outgoing(number),))
        assert await store.outbox.waiting(before=at(10)) == []
        assert await store.outbox.waiting(before=at(30)) == [run.outgoing(1), run.outgoing(2)]
        assert await store.outbox.waiting(1, before=at(99)) == [run.outgoing(1)]


TENANT = "default"


async def numbers(store, path):
    return [row.version for row in await store.versions.page(TENANT, path)]


class CatalogSuite:
    @staticmethod
    def entry(number, path="a/b", digest=None):
        return CatalogEntry(
            catalog_id=str(number),
            path=path,
            version=0,
            kind="playbook",
            content=f"text {digest or number}",
            digest=sha256((digest or str(number)).encode()).hexdigest(),
            created_at=at(number),
        )

    async def test_each_new_text_is_the_next_version(self, store):
        first = await store.catalog.add(self.entry(1))
        second = await store.catalog.add(self.entry(2))
        other = await store.catalog.add(self.entry(3, path="c"))
        assert [row.version for row in (first, second, other)] == [1, 2, 1]
        assert await store.catalog.get("1") == first
        assert await store.catalog.resolve(TENANT, "a/b") == second
        assert await store.catalog.resolve(TENANT, "a/b", 1) == first
        assert await numbers(store, "a/b") == [2, 1]

    async def test_the_newest_text_again_is_the_same_version(self, store):
        first = await store.catalog.add(self.entry(1, digest="x"))
        assert await store.catalog.add(self.entry(2, digest="x")) == first
        assert await store.catalog.get("2") is None
        await store.catalog.add(self.entry(3, digest="y"))
        older = await store.catalog.add(self.entry(4, digest="x"))
        assert (older.version, older.catalog_id) == (3, "4")

    @pytest.mark.parametrize("version", [0, -1, 2])
    async def test_what_is_not_there_is_not_found(self, store, version):
        await store.catalog.add(self.entry(1))
        assert await store.catalog.resolve(TENANT, "a/b", version) is None
        assert await store.catalog.resolve(TENANT, "nowhere") is None
        assert await numbers(store, "nowhere") == []
        assert await store.catalog.get("404") is None

    async def test_equal_texts_at_once_are_one_version(self, store):
        added = await asyncio.gather(
            *(store.catalog.add(self.entry(n, digest="x")) for n in range(1, 9))
        )
        assert len({row.catalog_id for row in added}) == 1
        assert await numbers(store, "a/b") == [1]


class CallbacksSuite:
    async def test_a_key_names_its_command_also_after_the_run(self, store):
        run = Run()
        await run.write(store, callbacks={"d1": "1", "d2": "2"})
        await run.write(
            store, PlaybookCancelled(), row={"status": "CANCELLED", "completed_at": at(3)}
        )
        assert await store.callbacks.command_of("d1") == (RUN, "1")
        assert await store.callbacks.command_of("d2") == (RUN, "2")
        assert await store.callbacks.command_of("d3") is None


class OutputSuite:
    @staticmethod
    def line(n, ts=0, **fields):
        known = {
            "execution_id": RUN,
            "command_id": "5",
            "attempt": 1,
            "n": n,
            "ts": at(ts),
            "text": f"line {n}",
            "step": "load",
        }
        return Line(**(known | fields))

    async def test_lines_are_read_in_order_of_time_then_number(self, store):
        lines = [
            self.line(0, 1),
            self.line(1, 1),
            self.line(0, 2, command_id="40", step="save"),
            self.line(2, 3),
            self.line(10, 3),
        ]
        await store.output.add([lines[4], lines[2], lines[3]])
        await store.output.add([lines[1], lines[0]])
        assert await store.output.read(RUN) == lines
        assert await store.output.read(RUN, step="save") == [lines[2]]
        assert await store.output.read("404") == []

    async def test_a_line_is_kept_once_and_as_it_first_was(self, store):
        first = self.line(0)
        await store.output.add([first, first])
        await store.output.add([msgspec.structs.replace(first, text="other")])
        assert await store.output.read(RUN) == [first]
        second = self.line(0, 1, attempt=2)
        await store.output.add([second])
        assert await store.output.read(RUN) == [first, second]
