"""Values over the inline limit."""

from __future__ import annotations

import pytest

from noetl.api.problems import Refused
from noetl.blobs.memory import MemoryBlobs
from noetl.dsl.views import Reference
from noetl.edge.errors import TooLargeToRead
from noetl.engine import events as ev
from noetl.server.ingest.large import Large
from tests.unit.server.rig import ONE_STEP, PYTHON, many, rig, virtually

BIG = {"rows": [{"n": n} for n in range(200)], "name": "x"}


def exited(result: object) -> ev.StepExited:
    routing = ev.Routing(mode="exclusive")
    return ev.StepExited(step="a", visit=1, outcome="COMPLETED", routing=routing, result=result)


async def test_a_value_at_the_limit_is_inline_and_one_byte_more_is_a_reference() -> None:
    large = Large(MemoryBlobs(), 1024)
    assert large.fits(exited("x" * 1022))
    assert not large.fits(exited("x" * 1023))
    made = await large.externalised("1", exited("x" * 1023))
    assert made.result is None
    assert (made.reference.size, made.reference.store) == (1025, "kv")
    assert await large.value(made.reference) == "x" * 1023
    assert await large.externalised("1", exited("x" * 1023)) == made


async def test_loop_items_go_in_chunks_and_ctx_values_alone() -> None:
    large = Large(MemoryBlobs(), 1024)
    loop = ev.LoopStarted(
        step="a", visit=1, total=2500, mode="parallel", max_in_flight=1, items=list(range(2500))
    )
    made = await large.externalised("1", loop)
    assert made.items is None
    assert [item.total for item in made.items_ref] == [1000, 1000, 500]
    ctx = ev.CtxUpdated(step="a", cause="c", ctx={"small": 1, "big": BIG})
    made = await large.externalised("1", ctx)
    assert made.ctx == {"small": 1}
    assert list(made.refs) == ["big"]
    assert await large.externalised("1", ev.ExecutionPaused()) == ev.ExecutionPaused()


async def test_what_an_expression_may_read_is_bounded() -> None:
    large = Large(MemoryBlobs())
    with pytest.raises(TooLargeToRead):
        await large.value(Reference(ref="noetl://x", store="kv", size=9 * 1024 * 1024))


@virtually
async def test_a_large_result_is_a_reference_in_the_log_and_a_value_for_readers() -> None:
    async with rig(inline_bytes=1024) as r:
        run = await r.start(ONE_STEP)
        (work,) = await r.claim()
        await r.done(work, BIG)
        told = await r.client.execution(run)
        assert (told.status, told.result, told.reference["size"]) == ("COMPLETED", None, 1911)
        assert told.reference["extracted"]["row_count"] == 200
        assert await r.client.step_result(run, "start") == BIG
        assert len(await r.client.get_result(told.reference["ref"])) == 1911


@virtually
async def test_a_decision_reads_a_large_value_when_it_must_and_only_then() -> None:
    body = (
        f"workflow:\n  - step: start\n    tool: {PYTHON}\n"
        "    next: {arcs: [{step: a, when: "
        "'{{ output.row_count == 200 and output.rows[7].n == 7 }}'}, {step: b}]}\n"
        "  - {step: a, tool: {kind: noop}}\n  - {step: b, tool: {kind: noop}}\n"
    )
    async with rig(inline_bytes=1024) as r:
        run = await r.start(body)
        (work,) = await r.claim()
        await r.done(work, BIG)
        told = await r.client.execution(run)
        assert (told.status, told.step_states["a"]["status"]) == ("COMPLETED", "COMPLETED")


@virtually
async def test_an_object_that_is_gone_fails_the_run_that_needs_it() -> None:
    body = (
        f"workflow:\n  - step: start\n    tool: {PYTHON}\n"
        f"    next: {{arcs: [{{step: a}}]}}\n"
        f"  - step: a\n    tool: {PYTHON}\n"
        "    next: {arcs: [{step: b, when: '{{ start.rows[7].n == 7 }}'}]}\n"
        "  - {step: b, tool: {kind: noop}}\n"
    )
    blobs = MemoryBlobs()
    async with rig(inline_bytes=1024, blobs=blobs) as r:
        run = await r.start(body)
        (work,) = await r.claim()
        (second,) = (await r.done(work, BIG, slots=1)).claimed
        for key in await blobs.listed():
            await blobs.delete(key)
        await r.done(second, 1)
        told = await r.client.execution(run)
        assert (told.status, told.error["kind"], told.error["code"]) == (
            "FAILED", "storage_access", "result_gone",
        )  # fmt: skip


@virtually
async def test_a_loop_over_many_items_and_with_many_results_ends() -> None:
    async with rig(inline_bytes=1024) as r:
        run = await r.start(many(1200, 64))
        work = await r.claim(slots=64)
        while work:
            reported = await r.report(
                *(r.event(item, "call.done", result=item.iteration) for item in work), slots=64
            )
            work = list(reported.claimed)
        told = await r.client.execution(run)
        assert (told.status, told.reference["total"]) == ("COMPLETED", 1200)
        assert await r.client.step_result(run, "start") == list(range(1200))


@virtually
async def test_a_worker_stores_values_of_its_own() -> None:
    async with rig() as r:
        run = await r.start(ONE_STEP)
        reference = await r.client.put_result(run, "start", b'{"a":1}')
        assert reference["extracted"] == {"a": 1, "_lengths": {}}
        assert await r.client.get_result(reference["ref"]) == b'{"a":1}'
        plain = await r.client.put_result(run, "start", b"\x00\x01", "application/x-thing")
        assert plain["media_type"] == "application/x-thing"
        with pytest.raises(Refused) as refused:
            await r.client.put_result(run, "start", b"{")
        assert refused.value.code == "bad_json"
        gone = reference["ref"][:-4] + "0000"
        with pytest.raises(Refused) as refused:
            await r.client.get_result(gone)
        assert (refused.value.code, refused.value.problem.status) == ("result_gone", 404)
