"""What every store does with variables, and with what is known of bytes that lie apart."""

import asyncio

import msgspec

from noetl.store.stored import HeldRow, RequestRow, ResultRow
from noetl.store.variables import VariableRow
from tests.conformance.store_suite import RUN, Run, at

replace = msgspec.structs.replace
OTHER = "999"
FIRST = at(1)
A, B = "a" * 64, "b" * 64


def variable(name, value=1, **more):
    return VariableRow(execution_id=RUN, var_name=name, var_value=value, **more)


class VariablesSuite:
    @staticmethod
    async def put(store, *rows, now=FIRST, most=100, run=RUN):
        return await store.variables.put(run, rows, now=now, most=most)

    async def test_a_variable_comes_back_and_its_reads_are_counted(self, store):
        value = {"b": 1, "a": [None, 1.50, "é\0"]}
        assert await self.put(store, variable("x", value, var_type="computed", source_step="load"))
        got = await store.variables.get(RUN, "x", now=at(2))
        assert got == variable(
            "x",
            value,
            var_type="computed",
            source_step="load",
            created_at=at(1),
            accessed_at=at(2),
            access_count=1,
        )
        assert list(got.var_value) == ["b", "a"]
        again = await store.variables.get(RUN, "x", now=at(3))
        assert (again.access_count, again.accessed_at) == (2, at(3))
        assert await store.variables.listed(RUN, now=at(4)) == [again]

    async def test_nothing_is_there_of_another_run_or_name(self, store):
        await self.put(store, variable("x", None))
        assert await store.variables.get(OTHER, "x", now=at(2)) is None
        assert await store.variables.get(RUN, "y", now=at(2)) is None
        assert await store.variables.listed(OTHER, now=at(2)) == []
        assert (await store.variables.get(RUN, "x", now=at(2))).var_value is None

    async def test_a_new_value_keeps_birth_and_reads(self, store):
        await self.put(store, variable("x", 1))
        await store.variables.get(RUN, "x", now=at(2))
        await self.put(store, variable("x", 2, var_type="step_result"), now=at(3))
        assert await store.variables.listed(RUN, now=at(4)) == [
            variable(
                "x",
                2,
                var_type="step_result",
                created_at=at(1),
                accessed_at=at(2),
                access_count=1,
            )
        ]

    async def test_the_last_of_two_equal_names_counts(self, store):
        await self.put(store, variable("x", 1), variable("x", 2), most=1)
        assert [row.var_value for row in await store.variables.listed(RUN, now=at(2))] == [2]

    async def test_variables_are_listed_by_name_in_pages(self, store):
        await self.put(store, *map(variable, ["b", "B", "a", "é", "a/b"]))
        names = [row.var_name for row in await store.variables.listed(RUN, now=at(2))]
        assert names == ["B", "a", "a/b", "b", "é"]
        page = await store.variables.listed(RUN, now=at(2), after="a", limit=2)
        assert [row.var_name for row in page] == ["a/b", "b"]

    async def test_a_run_has_only_so_many_and_all_or_none_is_kept(self, store):
        assert await self.put(store, variable("a"), variable("b"), most=2)
        assert not await self.put(store, variable("a", 2), variable("c"), most=2)
        assert [row.var_value for row in await store.variables.listed(RUN, now=at(2))] == [1, 1]
        assert await self.put(store, variable("a", 2), most=2)
        assert await self.put(store, variable("c"), most=2, run=OTHER)

    async def test_writers_at_once_stay_within_the_limit(self, store):
        puts = [self.put(store, variable(f"v{n}"), most=5) for n in range(20)]
        assert sum(await asyncio.gather(*puts)) == 5
        assert len(await store.variables.listed(RUN, now=at(2))) == 5

    async def test_one_whose_time_has_passed_is_not_there(self, store):
        await self.put(store, variable("x", expires_at=at(5)), variable("y"), most=2)
        assert (await store.variables.get(RUN, "x", now=at(4))).expires_at == at(5)
        assert await store.variables.get(RUN, "x", now=at(5)) is None
        assert [row.var_name for row in await store.variables.listed(RUN, now=at(5))] == ["y"]
        assert not await store.variables.delete(RUN, "x", now=at(5))
        await self.put(store, variable("x", expires_at=at(5)), most=2)
        assert await self.put(store, variable("z"), now=at(6), most=2)

    async def test_variables_are_forgotten_alone_and_all_at_once(self, store):
        await self.put(store, variable("x"), variable("y"), variable("z"))
        await self.put(store, variable("x"), run=OTHER)
        assert await store.variables.delete(RUN, "x", now=at(2))
        assert not await store.variables.delete(RUN, "x", now=at(2))
        assert await store.variables.clear(RUN) == 2
        assert await store.variables.clear(RUN) == 0
        assert len(await store.variables.listed(OTHER, now=at(2))) == 1


def result(key, number, **more):
    row = ResultRow(
        key=key,
        result_id=str(number),
        execution_id=RUN,
        name="out/é",
        content_type="text/csv",
        size=3,
        sha256=A,
        tenant_id="acme",
        created_at=at(number),
    )
    return replace(row, **more)


class ResultsSuite:
    async def test_what_is_known_of_a_value_comes_back(self, store):
        row = result("execution/7/result/a/x", 1, source_step="load", expires_at=at(9))
        await store.results.keep(row)
        assert await store.results.found([row.key, "nowhere"]) == {row.key: row}
        assert await store.results.found([]) == {}

    async def test_a_second_wish_changes_scope_and_end_only(self, store):
        row = result("k", 1, expires_at=at(9))
        await store.results.keep(row)
        await store.results.keep(replace(row, result_id="2", scope="permanent", expires_at=None))
        assert await store.results.found(["k"]) == {
            "k": replace(row, scope="permanent", expires_at=None)
        }

    async def test_those_whose_time_has_passed_may_be_deleted(self, store):
        rows = [result(f"k{n}", n, expires_at=at(n * 10)) for n in (1, 2, 3)]
        for row in rows:
            await store.results.keep(row)
        await store.results.keep(result("for ever", 4))
        assert await store.results.forget_expired(at(20), 1) == [("k1", "k1")]
        assert await store.results.forget_expired(at(20)) == [("k2", "k2")]
        assert await store.results.forget_expired(at(20)) == []
        assert list(await store.results.found(["k1", "k2", "k3", "for ever"])) == ["k3", "for ever"]
        assert await store.results.delete(["k3", "for ever", "nowhere"]) == 2

    async def test_a_value_of_a_step_may_be_deleted_when_its_run_has_ended(self, store):
        run = Run()
        await run.write(store)
        row = result("k", 1, scope="step")
        await store.results.keep(row)
        assert await store.results.forget_expired(at(2)) == []
        await run.write(store, row={"status": "COMPLETED", "completed_at": at(3)})
        assert await store.results.forget_expired(at(4)) == [("k", "k")]

    async def test_runs_that_there_are_not_are_told(self, store):
        await Run().write(store)
        assert await store.results.ownerless([RUN, OTHER]) == {OTHER}
        assert await store.results.ownerless([]) == frozenset()


class RequestsSuite:
    @staticmethod
    def row(sha256=A, **more):
        return RequestRow(
            request_id="r-1", sha256=sha256, created_at=at(1), expires_at=at(50), **more
        )

    async def test_the_first_result_counts(self, store):
        row = self.row(execution_id=RUN)
        assert await store.requests.get("r-1", at(1)) is None
        assert await store.requests.first(row, at(1)) == row
        assert await store.requests.first(self.row(B), at(2)) == row
        assert await store.requests.get("r-1", at(3)) == row

    async def test_a_small_result_lies_in_its_row(self, store):
        row = self.row(body=b'{"a": "\\u0000"}\0', media_type="application/json")
        assert await store.requests.first(row, at(1)) == row
        assert await store.requests.first(self.row(B, body=b"2"), at(2)) == row
        assert await store.requests.get("r-1", at(3)) == row
        later = replace(self.row(B), expires_at=at(99))
        assert await store.requests.first(later, at(50)) == later

    async def test_one_of_many_at_once_counts(self, store):
        rows = [self.row(f"{n:064x}") for n in range(10)]
        told = await asyncio.gather(*(store.requests.first(row, at(1)) for row in rows))
        assert len({row.sha256 for row in told}) == 1

    async def test_a_result_whose_time_has_passed_gives_way(self, store):
        await store.requests.first(self.row(), at(1))
        assert await store.requests.get("r-1", at(50)) is None
        later = replace(self.row(B), expires_at=at(99))
        assert await store.requests.first(later, at(50)) == later


class HeldSuite:
    async def test_a_callback_is_held_once_until_it_is_dropped(self, store):
        row = HeldRow(
            execution_id=RUN,
            step="load",
            job_name="job",
            body={"state": "failed", "output": {"a": "\0"}},
            expires_at=at(9),
        )
        sooner = replace(row, job_name="other", expires_at=at(8))
        assert await store.held.put(row)
        assert not await store.held.put(replace(row, body={}))
        assert await store.held.put(sooner)
        assert await store.held.waiting() == [sooner, row]
        assert await store.held.waiting(1) == [sooner]
        assert await store.held.drop(row)
        assert not await store.held.drop(row)
        assert await store.held.waiting() == [sooner]


class ExportsSuite:
    async def test_a_run_holds_data_until_it_is_said_that_it_does_not(self, store):
        await Run().write(store)
        assert await store.exports.mark([OTHER, RUN, RUN], is_unexported=True) == [RUN]
        assert await store.exports.unexported([RUN, OTHER]) == {RUN}
        assert await store.exports.mark([RUN], is_unexported=False) == [RUN]
        assert await store.exports.unexported([RUN]) == frozenset()
