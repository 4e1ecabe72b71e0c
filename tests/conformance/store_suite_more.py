"""What every store does beside the log: documents, lines, processes, time tables, roles.

The second half of one contract; a backend is the fixture `store`.
"""

import asyncio
from hashlib import sha256

import msgspec
import pytest

from noetl.errors import NoetlError
from noetl.ids import MACHINES
from noetl.store.base import (
    CatalogEntry,
    CatalogListing,
    Line,
    RuntimeRow,
    ScheduleListing,
    ScheduleRow,
)
from noetl.store.errors import OtherPool
from tests.conformance.store_suite import RUN, at

replace = msgspec.structs.replace


def digest(text):
    return sha256(text.encode()).hexdigest()


TENANT = "default"


class CatalogListSuite:
    @staticmethod
    async def filled(store):
        texts = [
            ("b/two", "playbook", "1"),
            ("a/one", "playbook", "2"),
            ("a/one", "playbook", "3"),
            ("a/ten", "subscription", "4"),
            ("a", "playbook", "5"),
            ("Z", "playbook", "6"),
            ("a/one", "agent", "7"),
        ]
        return [
            await store.catalog.add(
                CatalogEntry(
                    catalog_id=number,
                    path=path,
                    version=0,
                    kind=kind,
                    content=f"text {number}: é",
                    digest=digest(number),
                    created_at=at(int(number)),
                    message="why",
                    created_by="anna",
                    meta={"labels": {"a": [1, None, "é"]}},
                )
            )
            for path, kind, number in texts
        ]

    async def ids(self, store, **wanted):
        return [
            row.catalog_id for row in await store.catalog.listed(TENANT, CatalogListing(**wanted))
        ]

    async def test_nothing_is_listed_of_an_empty_catalog(self, store):
        assert await store.catalog.listed(TENANT, CatalogListing()) == []

    async def test_the_newest_of_each_path_is_listed_by_path(self, store):
        rows = await self.filled(store)
        assert await store.catalog.listed(TENANT, CatalogListing()) == [
            rows[n] for n in (5, 4, 6, 3, 0)
        ]
        assert await store.catalog.get("7") == rows[6]

    async def test_all_versions_are_listed_newest_first(self, store):
        await self.filled(store)
        assert await self.ids(store, all_versions=True) == ["6", "5", "7", "3", "2", "4", "1"]

    @pytest.mark.parametrize(
        ("wanted", "found"),
        [
            ({"kind": "subscription"}, ["4"]),
            ({"kind": "playbook"}, ["6", "5", "1"]),
            ({"kind": "nothing"}, []),
            ({"path_prefix": "a/"}, ["7", "4"]),
            ({"path_prefix": "%"}, []),
            ({"q": "o"}, ["7", "1"]),
            ({"q": "_"}, []),
            ({"q": "a", "path_prefix": "a/t"}, ["4"]),
            ({"kind": "playbook", "all_versions": True, "path_prefix": "a/o"}, ["3", "2"]),
            ({"q": "\0"}, []),
        ],
    )
    async def test_a_filter_leaves_what_fits(self, store, wanted, found):
        await self.filled(store)
        assert await self.ids(store, **wanted) == found

    @pytest.mark.parametrize("all_versions", [False, True])
    async def test_pages_follow_each_other_without_gap_or_repeat(self, store, all_versions):
        await self.filled(store)
        whole = await store.catalog.listed(TENANT, CatalogListing(all_versions=all_versions))
        pages, after = [], None
        while page := await store.catalog.listed(
            TENANT, CatalogListing(all_versions=all_versions, limit=2, after=after)
        ):
            assert len(page) <= 2
            pages += page
            after = (page[-1].path, page[-1].version)
        assert pages == whole

    async def test_different_texts_at_once_get_different_versions(self, store):
        async def add(number):
            return await store.catalog.add(
                CatalogEntry(
                    catalog_id=str(number),
                    path="a",
                    version=0,
                    kind="playbook",
                    content=str(number),
                    digest=digest(str(number)),
                    created_at=at(1),
                )
            )

        added = await asyncio.gather(*(add(number) for number in range(1, 13)))
        assert sorted(row.version for row in added) == list(range(1, 13))
        newest = max(added, key=lambda row: row.version)
        assert await store.catalog.resolve(TENANT, "a") == newest

    @pytest.mark.parametrize("path", ["a\0", "é", "a' or true --"])
    async def test_a_strange_path_is_simply_not_there(self, store, path):
        await self.filled(store)
        assert await store.catalog.resolve(TENANT, path) is None
        assert await store.catalog.resolve(TENANT, path, 1) is None
        assert await store.versions.page(TENANT, path) == []
        assert await store.catalog.resolve(TENANT, "a", 1 << 70) is None
        assert await store.catalog.get("not an id") is None


class OutputPagesSuite:
    @staticmethod
    def line(n, ts=0, command_id="5", attempt=1, **fields):
        known = {"execution_id": RUN, "command_id": command_id, "attempt": attempt, "n": n}
        return Line(**(known | {"ts": at(ts), "text": f"line {n}"} | fields))

    async def test_pages_follow_each_other_also_within_one_moment(self, store):
        lines = [
            *(self.line(n, 1, command_id="9") for n in (0, 1, 2, 9, 10)),
            *(self.line(n, 1, command_id="10") for n in (0, 1)),
            *(self.line(n, 1, command_id="10", attempt=2) for n in (0, 1)),
            self.line(11, 2, command_id="9"),
        ]
        await store.output.add(lines[::-1])
        for size in (1, 3, 100):
            found, after = [], None
            while page := await store.output.read(RUN, after=after, limit=size):
                found += page
                last = page[-1]
                after = (last.ts, last.command_id, last.attempt, last.n)
            assert found == lines

    async def test_pages_of_one_step(self, store):
        lines = [self.line(n, n, step="even" if n % 2 == 0 else "odd") for n in range(6)]
        await store.output.add(lines)
        after = (at(2), "5", 1, 2)
        assert await store.output.read(RUN, step="even", limit=2) == lines[0:4:2]
        assert await store.output.read(RUN, step="even", after=after) == [lines[4]]
        assert await store.output.read(RUN, step="even\0") == []

    async def test_all_fields_come_back(self, store):
        line = self.line(
            0, text="é\t\0\U0001f600", step="s\0", task="t", stream="stderr", level="warn"
        )
        await store.output.add([])
        await store.output.add([line])
        assert await store.output.read(RUN) == [line]


class RuntimesSuite:
    @staticmethod
    def row(name="w1", *, number=1, seen=100, **fields):
        known = {
            "runtime_id": str(number),
            "name": name,
            "kind": "worker_pool",
            "pool": "shared",
            "heartbeat": at(seen),
            "created_at": at(seen),
        }
        return RuntimeRow(**(known | fields))

    async def test_a_process_is_known_with_all_that_it_told(self, store):
        row = self.row(
            status="ready",
            uri="http://a:1",
            hostname="a",
            capacity=8,
            free_slots=7,
            labels={"zone": "é"},
            capabilities={"kinds": ["python"]},
            runtime={"version": "1", "slots": 8},
        )
        kept = await store.runtimes.join(row, silent_since=at(10))
        assert kept == replace(row, machine_id=0)
        assert await store.runtimes.listed() == [kept]

    async def test_living_processes_of_all_kinds_have_different_numbers(self, store):
        kept = await asyncio.gather(
            *(
                store.runtimes.join(
                    self.row(f"w{n}", number=n, kind=("server_api", "worker_pool")[n % 2]),
                    silent_since=at(10),
                )
                for n in range(1, 21)
            )
        )
        assert len({row.machine_id for row in kept}) == 20
        assert all(row.machine_id in range(MACHINES) for row in kept)

    async def test_one_that_comes_back_keeps_its_number_and_id(self, store):
        first = await store.runtimes.join(self.row("w1", number=1), silent_since=at(10))
        await store.runtimes.join(self.row("w2", number=2), silent_since=at(10))
        back = self.row("w1", number=3, seen=200, pool="other", capacity=4)
        kept = await store.runtimes.join(back, silent_since=at(150))
        assert kept == replace(
            back, runtime_id="1", created_at=first.created_at, machine_id=first.machine_id
        )
        assert len(await store.runtimes.listed()) == 2

    async def test_a_number_of_a_silent_process_can_be_given_again(self, store):
        for number in range(MACHINES):
            await store.runtimes.join(
                self.row(f"w{number}", number=number + 1, seen=50 if number == 77 else 100),
                silent_since=at(10),
            )
        new = self.row("new", number=5000, seen=110)
        with pytest.raises(NoetlError) as caught:
            await store.runtimes.join(new, silent_since=at(50))
        assert (caught.value.code, caught.value.retryable) == ("pool_saturated", True)
        kept = await store.runtimes.join(new, silent_since=at(51))
        assert kept.machine_id == 77
        with pytest.raises(NoetlError):
            await store.runtimes.join(self.row("w77", seen=120), silent_since=at(51))

    async def test_a_beat_tells_that_a_process_is_alive(self, store):
        row = await store.runtimes.join(self.row(free_slots=3), silent_since=at(10))
        assert await store.runtimes.beat("worker_pool", "w1", at(120))
        assert await store.runtimes.listed() == [replace(row, heartbeat=at(120))]
        assert await store.runtimes.beat("worker_pool", "w1", at(130), free_slots=0)
        assert await store.runtimes.listed() == [replace(row, heartbeat=at(130), free_slots=0)]
        assert not await store.runtimes.beat("server_api", "w1", at(130))
        assert not await store.runtimes.beat("worker_pool", "nobody\0", at(130))

    async def test_a_mark_changes_the_status(self, store):
        row = await store.runtimes.join(self.row(), silent_since=at(10))
        assert await store.runtimes.mark("worker_pool", "w1", "draining")
        assert not await store.runtimes.mark("worker_pool", "w2", "draining")
        assert await store.runtimes.listed() == [replace(row, status="draining")]

    async def test_one_that_left_is_not_known(self, store):
        await store.runtimes.join(self.row(), silent_since=at(10))
        assert await store.runtimes.leave("worker_pool", "w1")
        assert not await store.runtimes.leave("worker_pool", "w1")
        assert await store.runtimes.listed() == []

    async def test_a_process_of_another_pool_neither_beats_nor_leaves(self, store):
        row = await store.runtimes.join(self.row(), silent_since=at(10))
        assert not await store.runtimes.beat("worker_pool", "w1", at(120), pool="gpu")
        assert not await store.runtimes.leave("worker_pool", "w1", pool="gpu")
        assert await store.runtimes.listed() == [row]
        assert await store.runtimes.beat("worker_pool", "w1", at(120), pool="shared")
        assert await store.runtimes.leave("worker_pool", "w1", pool="shared")
        assert await store.runtimes.listed() == []

    async def test_one_that_is_bound_takes_no_name_that_lives_in_another_pool(self, store):
        row = await store.runtimes.join(self.row(), silent_since=at(10))
        other = self.row(pool="gpu", seen=120)
        with pytest.raises(OtherPool):
            await store.runtimes.join(other, silent_since=at(100), is_bound=True)
        assert await store.runtimes.listed() == [row]
        again = self.row(seen=110)
        assert await store.runtimes.join(again, silent_since=at(100), is_bound=True) == replace(
            row, heartbeat=at(110)
        )
        moved = await store.runtimes.join(other, silent_since=at(111), is_bound=True)
        assert (moved.pool, await store.runtimes.listed()) == ("gpu", [moved])
        back = await store.runtimes.join(self.row(seen=121), silent_since=at(100))
        assert back.pool == "shared"

    async def test_processes_are_listed_by_name_of_a_kind_and_pool(self, store):
        for number, (kind, name, pool) in enumerate(
            [
                ("worker_pool", "w2", "shared"),
                ("worker_pool", "W3", "gpu"),
                ("server_api", "s1", ""),
                ("worker_pool", "w1", "shared"),
            ],
            start=1,
        ):
            row = self.row(name, number=number, kind=kind, pool=pool)
            await store.runtimes.join(row, silent_since=at(10))

        async def names(*wanted):
            return [row.name for row in await store.runtimes.listed(*wanted)]

        assert await names() == ["s1", "W3", "w1", "w2"]
        assert await names("worker_pool") == ["W3", "w1", "w2"]
        assert await names("worker_pool", "shared") == ["w1", "w2"]
        assert await names(None, "gpu") == ["W3"]
        assert await names("gateway") == []

    async def test_silent_ones_are_forgotten(self, store):
        for number, seen in enumerate((10, 20, 30), start=1):
            row = self.row(f"w{number}", number=number, seen=seen)
            await store.runtimes.join(row, silent_since=at(0))
        assert await store.runtimes.forget(at(10)) == 0
        assert await store.runtimes.forget(at(30)) == 2
        assert [row.name for row in await store.runtimes.listed()] == ["w3"]


class SchedulesSuite:
    @staticmethod
    def row(number=1, name="nightly", path="a/b", due=100, **fields):
        known = {
            "schedule_id": str(number),
            "name": name,
            "path": path,
            "cron": "0 2 * * *",
            "timezone": "Europe/Berlin",
            "payload": {"day": "é", "n": [1, None]},
            "policy": {"overlap": "skip", "jitter_s": 3},
            "next_run_at": None if due is None else at(due),
        }
        return ScheduleRow(**(known | fields))

    async def test_the_triggers_of_a_path_are_kept(self, store):
        rows = [
            self.row(1, "b"),
            self.row(2, "a", cron=None, interval_s=30, due=None, enabled=False),
        ]
        other = self.row(3, "c", path="a/c")
        await store.schedules.replace("a/b", rows)
        await store.schedules.replace("a/c", [other])
        assert await store.schedules.listed() == [rows[1], rows[0], other]
        assert await store.schedules.listed(ScheduleListing(path="a/c")) == [other]
        assert await store.schedules.listed(ScheduleListing(path="a")) == []

    async def test_what_a_path_triggers_no_more_is_gone(self, store):
        await store.schedules.replace("a/b", [self.row(1, "a"), self.row(2, "b")])
        await store.schedules.replace("a/b", [self.row(3, "b", cron="1 1 * * *", due=7)])
        moved = self.row(2, "b", cron="1 1 * * *", due=7)
        assert await store.schedules.listed() == [moved]
        await store.schedules.replace("a/b", [])
        assert await store.schedules.listed() == []

    async def test_equal_times_keep_their_place(self, store):
        await store.schedules.replace("a/b", [self.row(1)])
        fired = self.row(
            1, due=200, last_run_at=at(100), last_execution_id="77", last_status="started"
        )
        assert await store.schedules.fired(self.row(1), fired)
        await store.schedules.replace("a/b", [self.row(9, due=500, payload={"day": "other"})])
        assert await store.schedules.listed() == [replace(fired, payload={"day": "other"})]

    @pytest.mark.parametrize(
        "other", [{"timezone": "UTC"}, {"cron": None, "interval_s": 60}, {"enabled": False}]
    )
    async def test_other_times_begin_anew(self, store, other):
        await store.schedules.replace("a/b", [self.row(1)])
        await store.schedules.replace("a/b", [self.row(9, due=500, **other)])
        assert await store.schedules.listed() == [self.row(1, due=500, **other)]

    async def test_those_whose_time_has_come_are_due_oldest_first(self, store):
        rows = [
            self.row(1, "a", due=30),
            self.row(2, "b", due=10),
            self.row(10, "c", due=10),
            self.row(4, "d", due=5, enabled=False),
            self.row(5, "e", due=None),
            self.row(6, "f", due=31),
        ]
        assert await store.schedules.next_due() is None
        await store.schedules.replace("a/b", rows)
        assert await store.schedules.next_due() == at(10)
        assert await store.schedules.due(at(9)) == []
        found = await store.schedules.due(at(30))
        assert (found[2], sorted(row.name for row in found[:2])) == (rows[0], ["b", "c"])
        assert len(await store.schedules.due(at(30), limit=1)) == 1

    async def test_one_is_moved_on_once(self, store):
        before = self.row(1, due=10)
        await store.schedules.replace("a/b", [before])
        after = replace(
            before, next_run_at=at(20), last_run_at=at(10), last_execution_id="5", last_status="ok"
        )
        moved = await asyncio.gather(*(store.schedules.fired(before, after) for _ in range(4)))
        assert sorted(moved) == [False, False, False, True]
        assert await store.schedules.listed() == [after]
        last = replace(after, next_run_at=None)
        assert await store.schedules.fired(after, last)
        assert await store.schedules.next_due() is None
        assert not await store.schedules.fired(self.row(404), after)

    async def test_replacing_at_once_leaves_one_of_them(self, store):
        await asyncio.gather(
            *(store.schedules.replace("a/b", [self.row(n, "x")]) for n in range(1, 9))
        )
        assert [row.name for row in await store.schedules.listed()] == ["x"]


class RolesSuite:
    async def test_a_role_is_held_by_one_and_then_by_the_next(self, store):
        order, wanted = [], asyncio.Event()

        async def second():
            wanted.set()
            async with store.roles.lead("loops") as lost:
                order.append("second")
                assert not lost.is_set()

        async with asyncio.TaskGroup() as group, store.roles.lead("loops") as lost:
            group.create_task(second())
            await wanted.wait()
            async with store.roles.lead("another role"):
                order.append("first")
            assert not lost.is_set()
        assert order == ["first", "second"]

    async def test_a_role_that_was_held_can_be_held_again(self, store):
        for _ in range(3):
            async with store.roles.lead("loops") as lost:
                assert not lost.is_set()

    async def test_one_who_waits_in_vain_can_give_up(self, store):
        begun = asyncio.Event()

        async def waiting():
            begun.set()
            async with store.roles.lead("loops"):
                raise AssertionError

        async with store.roles.lead("loops"):
            task = asyncio.create_task(waiting())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with store.roles.lead("loops"):
            pass

    async def test_a_name_is_held_by_one_at_a_time(self, store):
        inside, most = 0, 0

        async def one():
            nonlocal inside, most
            async with store.roles.exclusive("concurrency:é"):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

        await asyncio.gather(*(one() for _ in range(20)))
        assert (inside, most) == (0, 1)

    async def test_a_name_is_free_again_after_a_failure(self, store):
        message = "inside"
        with pytest.raises(ValueError, match=message):
            async with store.roles.exclusive("a"):
                raise ValueError(message)
        async with store.roles.exclusive("a"), store.roles.exclusive("b"):
            pass

    async def test_many_names_do_not_wait_for_one(self, store):
        async def one(number):
            async with store.roles.exclusive(str(number)):
                await asyncio.sleep(0)

        async with store.roles.exclusive("held"):
            await asyncio.gather(*(one(number) for number in range(20)))
